"""What goes wrong at AI Hub: each error says the cause and the cure, and no secret."""

from __future__ import annotations

import errno
import json
import logging
import sys
import traceback
from pathlib import Path

import pytest
from qai_hub import public_api_pb2 as pb

from fleet.bundles.aihub import hub as border
from fleet.bundles.aihub.pull import pull
from fleet.model.errors import AiHubError, FleetError, InputError
from fleet.model.extras import install_extra
from fleet.model.plain import to_plain
from tests.standins.aihub import SECRETS, SIGNATURE, TOKEN, AiHub

from .conftest import configure

JOB, MODEL, DOWNLOAD = (
    "/api/v1/jobs/jbin1/",
    "/api/v1/models/mbin1/",
    "/api/v1/models/mbin1/download/",
)


def refused(tmp_path: Path, reference: str = "aihub:jbin1") -> FleetError:
    """The error of a pull; nothing was left, and it holds no secret anywhere."""
    before = {path: path.stat().st_mtime_ns for path in tmp_path.iterdir()}
    with pytest.raises((AiHubError, InputError)) as caught:
        pull(reference, tmp_path / "tiny")
    assert {path: path.stat().st_mtime_ns for path in tmp_path.iterdir()} == before
    error = caught.value
    everything = "".join(traceback.format_exception(error)) + json.dumps(to_plain(error))
    chain: BaseException | None = error
    while chain is not None:
        everything += repr(chain) + str(chain)
        chain = chain.__cause__ or chain.__context__
    assert not [secret for secret in SECRETS if secret in everything], everything
    assert error.hint
    return error


@pytest.mark.parametrize(
    ("path", "answer", "kind", "words", "hint"),
    [
        (JOB, (401, ""), AiHubError, "refuses the API token (401)", "qai-hub configure"),
        (JOB, (403, json.dumps({"detail": f"not for {TOKEN}"})), AiHubError,
         "no access to job jbin1 (403): not for ***", "share"),
        (JOB, (403, f"<html>{TOKEN}</html>"), AiHubError, "no access to job jbin1 (403)", "share"),
        (JOB, (404, ""), InputError, "cannot find job jbin1", "check the id"),
        (JOB, (400, "odd\nid"), AiHubError, "job jbin1 (HTTP status 400): odd id", "the id"),
        (JOB, (426, ""), AiHubError, "too old for AI Hub (426)", "pip install --upgrade qai-hub"),
        (JOB, (429, ""), AiHubError, "too many requests from your account", "minutes"),
        (JOB, (503, ""), AiHubError, "has a problem with job jbin1 (HTTP status 503)", "minutes"),
        (MODEL, (403, ""), AiHubError, "no access to model mbin1 (403)", "share"),
        (DOWNLOAD, (404, "gone"), InputError, "find the download of model mbin1", "check the id"),
        (DOWNLOAD, (500, ""), AiHubError, "model mbin1 (HTTP status 500)", "minutes"),
        (JOB, (200, "not a message"), AiHubError, "job jbin1 (HTTP status 200)", "minutes"),
    ],
)  # fmt: skip
def test_answers(
    hub: AiHub, tmp_path: Path, *, path: str, answer: tuple[int, str],
    kind: type[FleetError], words: str, hint: str,
) -> None:  # fmt: skip
    hub.refusals[path] = answer
    error = refused(tmp_path)
    assert type(error) is kind
    assert words in error.message
    assert hint in error.hint


@pytest.mark.parametrize("s3", [False, True])
def test_the_storage_refuses(hub: AiHub, tmp_path: Path, s3: bool) -> None:
    hub.assets["mbin1"].status, hub.assets["mbin1"].s3 = 403, s3
    error = refused(tmp_path)
    assert (
        error.message == "AI Hub gives this account no access to the download of model mbin1 (403)"
    )


def test_a_failed_job_says_why(hub: AiHub, tmp_path: Path) -> None:
    job = hub.jobs["jbin1"].compile_job
    job.job_state, job.failure_reason = pb.JOB_STATE_FAILED, f"op Foo is\nnot supported {TOKEN}"
    error = refused(tmp_path)
    assert error.message == "the compile job jbin1 failed on AI Hub: op Foo is not supported ***"


def test_a_profile_job_makes_no_model(hub: AiHub, tmp_path: Path) -> None:
    inner = pb.InferenceJob(inference_job_id="jprof1", model=pb.Model(model_id="mbin1"))
    hub.jobs["jprof1"] = pb.Job(inference_job=inner)
    error = refused(tmp_path, "aihub:jprof1")
    assert error.message == "job jprof1 is of kind inference, and such a job produces no model"
    assert error.hint == "fleet bundle pull aihub:mbin1 (pulls the model of this job)"


def test_a_wrong_token(hub: AiHub, tmp_path: Path) -> None:
    configure(tmp_path / "client.ini", hub.url, "tok-wrong")
    assert "refuses the API token" in refused(tmp_path).message


@pytest.mark.parametrize(
    "text", [None, "", f"api_token = {TOKEN}\n", f"[api]\napi_token = {TOKEN}\n", "[api\x00",
             f"[api]\napi_token =\napi_url = x\nweb_url = {TOKEN}\n"],
)  # fmt: skip
def test_no_usable_configuration(hub: AiHub, tmp_path: Path, text: str | None) -> None:
    path = tmp_path / "client.ini"
    path.unlink()
    if text is not None:
        path.write_text(text)
    error = refused(tmp_path)
    assert ("is not configured" in error.message) is (text is None)
    assert "qai-hub configure --api_token TOKEN" in error.hint


def test_nobody_answers(hub: AiHub, tmp_path: Path) -> None:
    configure(tmp_path / "client.ini", "http://127.0.0.1:1")
    error = refused(tmp_path)
    assert (
        error.message
        == "the connection to AI Hub broke while fleet asked for job jbin1: ConnectionError"
    )


def test_a_full_disk(hub: AiHub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device", SIGNATURE)

    monkeypatch.setattr("qai_hub.api_utils._download_to_verified_path", full)
    assert "workstation: No space left on device" in refused(tmp_path).message


def test_the_client_is_not_installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "qai_hub", None)
    error = refused(tmp_path)
    assert "not installed" in error.message
    assert error.hint == install_extra("aihub")


@pytest.mark.parametrize(
    "reference", ["jbin1", "aihub:", "hub:jbin1", "aihub:../users", "aihub:a/b", "aihub:J1?x", ""]
)
def test_references(hub: AiHub, tmp_path: Path, reference: str) -> None:
    assert "is not a job or model" in refused(tmp_path, reference).message


@pytest.mark.parametrize(
    ("reference", "command"),
    [
        ("hf:onnx-community/Llama-3.2-3B", "hf download onnx-community/Llama-3.2-3B "),
        ("https://huggingface.co/a/b-c/", "hf download a/b-c --local-dir b-c "),
        ("hf:a/b;rm", "fleet bundle pull aihub:ID "),
        ("hf:a/--help", "fleet bundle pull aihub:ID "),
    ],
)
def test_a_model_of_hugging_face(hub: AiHub, tmp_path: Path, reference: str, command: str) -> None:
    assert str(refused(tmp_path, reference).hint).startswith(command)
    assert hub.seen == []


def test_no_folder_for_it(hub: AiHub, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="there is no folder"):
        pull("aihub:jbin1", tmp_path / "none" / "tiny")


def test_the_loudest_log_has_no_secret(
    hub: AiHub, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    for s3 in (False, True):
        hub.assets["mbin1"].s3 = s3
        hub.assets["mbin1"].cuts = [10]
        pull("aihub:jbin1", tmp_path / f"tiny{s3}")
    assert not [secret for secret in SECRETS if secret in caplog.text]
    assert repr(border.Hub()) == "Hub()"


@pytest.mark.parametrize(
    ("manifest", "said", "hint"),
    [
        ({"orchestrator_runtimes": ["geniex_qairt", "geniex_llamacpp", "genie"],
          "supported_precisions": ["q4_0", "w4a16"]},
         "geniex_qairt: runner geniex, geniex_llamacpp: runner geniex, genie: runner genie",
         "qai-hub-models fetch llm_4b --runtime geniex_qairt --precision w4a16 (of"),
        ({"orchestrator_runtimes": ["geniex_llamacpp"], "supported_precisions": ["q4_0"]},
         "geniex_llamacpp: runner geniex",
         "qai-hub-models fetch llm_4b --runtime geniex_llamacpp --precision q4_0 (of"),
        ({"orchestrator_runtimes": ["voice_ai"], "supported_precisions": ["float"]},
         "voice_ai: none yet", "fleet config runners"),
        ({"orchestrator_runtimes": [], "supported_precisions": ["float"]},
         "by its own program", "qai-hub-models fetch llm_4b --help (of"),
        (None, "by its own program", "qai-hub-models fetch llm_4b --help (of"),
    ],
)  # fmt: skip
def test_a_model_of_ai_hubs_manifests_is_no_job(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, manifest: dict[str, list[str]] | None,
    said: str, hint: str,
) -> None:  # fmt: skip
    """What fleet cannot run yet is said before anything is fetched."""
    if manifest is not None:
        about = tmp_path / "site/qai_hub_models-0.65.0.dist-info"
        about.mkdir(parents=True)
        (about / "METADATA").write_text(
            "Metadata-Version: 2.4\nName: qai_hub_models\nVersion: 0.65.0\n"
        )
        folder = tmp_path / "site/qai_hub_models/models/llm_4b"
        folder.mkdir(parents=True)
        (folder / "manifest.yaml").write_text(json.dumps(manifest))
        monkeypatch.syspath_prepend(str(tmp_path / "site"))
    error = refused(tmp_path, "aihub:llm_4b")
    assert said in error.message
    assert hint in error.hint
