"""The real client against the stand-in: what lands in the folder, and what does not."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import pytest
from onnx import TensorProto, helper
from qai_hub import public_api_pb2 as pb

from fleet.bundles.aihub.pull import lay_out, pull
from fleet.bundles.inspect import inspect_bundle
from fleet.model.errors import AiHubError, InputError
from tests.standins.aihub import AiHub, Asset

from .conftest import BUILD, CONTEXT, IQ9, genie_zip, zipped


def names(folder: Path) -> set[str]:
    return {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}


def test_a_context_binary(hub: AiHub, tmp_path: Path) -> None:
    done = pull("aihub:jbin1", tmp_path / "tiny")
    assert names(done.folder) == {"tiny.bin", "tool-versions.yaml", "aihub.json", "SHA256SUMS"}
    assert (done.folder / "tiny.bin").read_bytes() == CONTEXT
    assert (done.folder / "tool-versions.yaml").read_text() == f"qairt: {BUILD}\n"
    record = json.loads((done.folder / "aihub.json").read_text())
    assert record == done.record
    assert (record["chip"], record["soc_model"], record["hexagon_arch"]) == ("QCS9075", 77, "v73")
    assert record["job"]["id"] == "jbin1"
    assert record["job"]["finished"] == "2025-10-09T08:58:20+00:00"
    assert record["model"]["id"] == "mbin1"
    assert record["device"]["name"] == "Dragonwing IQ-9075 EVK"
    assert (record["runtime"], record["kind"]) == ("qnn_context_binary", "qnn")
    assert record["qairt"] == BUILD
    files = {one["name"]: one["sha256"] for one in record["files"]}
    assert files["tiny.bin"] == hashlib.sha256(CONTEXT).hexdigest()
    assert done.notes == ()
    assert done.next_commands == [
        f"fleet bundle inspect --kind qnn {done.folder}",
        f"fleet bundle wrap-ep {done.folder}/*.bin",
    ]
    bundle = inspect_bundle(done.folder, None, hashes=True, kind="qnn")
    assert bundle.usable
    assert (bundle.qairt, bundle.checked_by) == (BUILD, "SHA256SUMS")


def test_a_model_id_finds_its_job(hub: AiHub, tmp_path: Path) -> None:
    record = pull("aihub:mbin1", tmp_path / "tiny").record
    assert record["job"]["id"] == "jbin1"
    assert record["chip"] == "QCS9075"


def test_the_default_folder_has_the_name_of_the_model(
    hub: AiHub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    hub.models["mbin1"].name = "../Tiny net\x1b[31m.bin"
    folder = pull("aihub:jbin1", None).folder
    assert folder == Path("Tiny_net_31m-jbin1")
    assert "Tiny_net_31m.bin" in names(folder)


def test_an_uploaded_model_has_no_job(hub: AiHub, tmp_path: Path) -> None:
    hub.model("mup1", Asset("net.onnx", b"onnx"), kind=pb.MODEL_TYPE_ONNX, name="net.onnx")
    done = pull("aihub:mup1", tmp_path / "net")
    assert done.record["job"] is None
    assert done.record["chip"] is None
    assert names(done.folder) == {"net.onnx", "aihub.json", "SHA256SUMS"}
    assert any("did not write tool-versions.yaml" in note for note in done.notes)


@pytest.mark.parametrize("top", ["", "llama-genie-w4a16-qualcomm_qcs9075/"])
def test_a_genie_archive(hub: AiHub, tmp_path: Path, top: str) -> None:
    hub.assets["mbin1"] = Asset("tiny.genie.zip", genie_zip(top))
    done = pull("aihub:jbin1", tmp_path / "tiny")
    assert done.record["kind"] == "genie"
    assert inspect_bundle(done.folder, None, hashes=True, kind="genie").usable
    assert done.next_commands == [f"fleet bundle inspect --kind genie {done.folder}"]
    assert done.notes == ()
    assert not [name for name in names(done.folder) if "/" in name]


def test_a_precompiled_onnx_archive(hub: AiHub, tmp_path: Path) -> None:
    node = helper.make_node(
        "EPContext", ["x"], ["y"], "g", domain="com.microsoft",
        embed_mode=0, main_context=1, ep_cache_context="model.bin",
    )  # fmt: skip
    x, y = (helper.make_tensor_value_info(one, TensorProto.FLOAT, [1]) for one in "xy")
    model = helper.make_model(helper.make_graph([node], "g", [x], [y])).SerializeToString()
    files = {"job_jbin1.onnx/model.onnx": model, "job_jbin1.onnx/model.bin": CONTEXT}
    hub.assets["mbin1"] = Asset("job_jbin1.onnx.zip", zipped(files))
    done = pull("aihub:jbin1", tmp_path / "net")
    assert done.record["kind"] == "ort"
    assert done.next_commands == [f"fleet bundle inspect --kind ort {done.folder}"]
    bundle = inspect_bundle(done.folder, None, hashes=True, kind="ort")
    assert bundle.usable, bundle
    assert bundle.qairt == BUILD


def test_a_link_job_over_s3(hub: AiHub, tmp_path: Path) -> None:
    job = hub.link_job("jlink1", "mlink1", device=IQ9, options="")
    hub.model(
        "mlink1",
        Asset("linked.bin", CONTEXT, s3=True),
        producer="jlink1",
        kind=pb.MODEL_TYPE_QNN_CONTEXT_BINARY,
        qnn_context_bin_soc_model="77",
        qnn_context_bin_hexagon_version="73",
    )
    detail = pb.LinkDetail(tool_versions=[pb.ToolVersion(name="QAIRT", version=f"v{BUILD}_1")])
    hub.results["jlink1"] = pb.JobResult(
        link_job_result=pb.LinkJobResult(link_job_id="jlink1", link_detail=detail)
    )
    job.device.CopyFrom(pb.Device(name="Dragonwing IQ-9075 EVK"))  # as asked for, no attributes
    hub.devices.append(IQ9)
    done = pull("aihub:jlink1", tmp_path / "linked")
    assert (done.folder / "mlink1.bin").read_bytes() == CONTEXT
    assert done.record["qairt"] == BUILD
    assert done.record["qairt_source"] == "tool version QAIRT of the job"
    assert done.record["chip"] == "QCS9075"
    assert done.record["hexagon_arch"] == "v73"
    assert "/standin-bucket/mlink1" in hub.seen


def test_records_that_disagree_are_said(hub: AiHub, tmp_path: Path) -> None:
    other = "2.45.0.260326154327"
    files = {"tool-versions.yaml": f"qairt: {other}\n".encode(), "net.bin": CONTEXT}
    hub.assets["mbin1"] = Asset("net.onnx.zip", zipped(files))
    hub.models["mbin1"].metadata.entries[pb.MODEL_METADATA_KEY_QNN_CONTEXT_BIN_HEXAGON_VERSION] = (
        "v75"
    )
    done = pull("aihub:jbin1", tmp_path / "net")
    assert other in (done.folder / "tool-versions.yaml").read_text()
    text = "\n".join(done.notes)
    assert f"archive says QAIRT 2.45.0.260326154327, AI Hub says {BUILD}" in text
    assert "Hexagon arch: the model says v75, the device says v73" in text
    assert done.record["notes"] == list(done.notes)


def test_a_broken_download_starts_again(hub: AiHub, tmp_path: Path) -> None:
    hub.assets["mbin1"].cuts = [1000, len(CONTEXT) - 1, 0]
    done = pull("aihub:jbin1", tmp_path / "tiny")
    assert (done.folder / "tiny.bin").read_bytes() == CONTEXT
    assert hub.seen.count("/files/mbin1") == 4
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith(".")] == []


@pytest.mark.parametrize("s3", [False, True])
def test_a_download_that_never_ends_leaves_nothing(hub: AiHub, tmp_path: Path, s3: bool) -> None:
    hub.assets["mbin1"].cuts = [1000] * 99
    hub.assets["mbin1"].s3 = s3
    before = set(tmp_path.iterdir())
    with pytest.raises(
        AiHubError, match="the connection to AI Hub broke while fleet asked for the download"
    ):
        pull("aihub:jbin1", tmp_path / "tiny")
    assert set(tmp_path.iterdir()) == before
    hub.assets["mbin1"].cuts = []
    pull("aihub:jbin1", tmp_path / "tiny")


def test_what_is_there_is_not_written_over(hub: AiHub, tmp_path: Path) -> None:
    (tmp_path / "tiny").mkdir()
    (tmp_path / "tiny" / "mine").write_text("x")
    with pytest.raises(InputError, match="fleet does not overwrite it"):
        pull("aihub:jbin1", tmp_path / "tiny")
    assert hub.seen == []  # refused before anybody was asked
    assert names(tmp_path / "tiny") == {"mine"}


def test_a_folder_of_somebody_else_meanwhile_wins(
    hub: AiHub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from fleet.bundles.aihub import pull as module

    def slow(asset: Path, folder: Path, stem: str) -> None:
        lay_out(asset, folder, stem)
        (tmp_path / "tiny").mkdir()

    monkeypatch.setattr(module, "lay_out", slow)
    with pytest.raises(InputError, match="fleet does not overwrite it"):
        pull("aihub:jbin1", tmp_path / "tiny")
    assert list((tmp_path / "tiny").iterdir()) == []


def test_two_pulls_to_one_folder(
    hub: AiHub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from fleet.bundles.aihub import pull as module

    def second(asset: Path, folder: Path, stem: str) -> None:
        with pytest.raises(AiHubError, match="another fleet process"):
            pull("aihub:jbin1", tmp_path / "tiny")
        lay_out(asset, folder, stem)

    monkeypatch.setattr(module, "lay_out", second)
    assert (pull("aihub:jbin1", tmp_path / "tiny").folder / "tiny.bin").read_bytes() == CONTEXT


def test_a_job_that_runs_is_waited_for(
    hub: AiHub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fleet.bundles.aihub.pull.POLL_SECONDS", 0.01)
    running = [pb.JOB_STATE_CREATED, pb.JOB_STATE_OPTIMIZING_MODEL, pb.JOB_STATE_OPTIMIZING_MODEL]
    hub.states = [*running, pb.JOB_STATE_DONE]
    told: list[str] = []
    pull("aihub:jbin1", tmp_path / "tiny", wait_seconds=60, say=told.append)
    assert [text.split(",")[0] for text in told] == [
        "job jbin1: created",
        "job jbin1: optimizing_model",
    ]


def test_a_job_that_runs_is_an_error_without_wait(hub: AiHub, tmp_path: Path) -> None:
    hub.jobs["jbin1"].compile_job.job_state = pb.JOB_STATE_OPTIMIZING_MODEL
    with pytest.raises(
        AiHubError, match="not finished on AI Hub; its state is optimizing_model"
    ) as caught:
        pull("aihub:jbin1", tmp_path / "tiny")
    assert caught.value.hint == "fleet bundle pull aihub:jbin1 --wait 3600"


def test_two_segments_of_a_version_stay_text(hub: AiHub, tmp_path: Path) -> None:
    hub.models["mbin1"].metadata.entries[pb.MODEL_METADATA_KEY_QAIRT_SDK_VERSION] = "2.40"
    hub.assets["mbin1"] = Asset("net.dlc", b"dlc")
    folder = pull("aihub:jbin1", tmp_path / "net").folder
    assert inspect_bundle(folder, None, hashes=True, kind="qnn").qairt == "2.40"


@pytest.mark.parametrize("s3", [False, True])
def test_progress_is_told_to_people_only(
    hub: AiHub, tmp_path: Path, capfd: pytest.CaptureFixture[str], s3: bool
) -> None:
    hub.assets["mbin1"].s3 = s3
    pull("aihub:jbin1", tmp_path / "quiet")
    assert capfd.readouterr() == ("", "")
    pull("aihub:jbin1", tmp_path / "told", verbose=True)
    out, err = capfd.readouterr()
    assert out == ""
    assert "100%" in err
    assert "B/s" in err
