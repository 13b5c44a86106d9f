"""Backend geniex over a stand-in for `geniex serve` (tests/serving/geniex_standin.py).

The program itself was not run: it is published for ARM, and the Go modules to build it from its
sources were not available here.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import MappingProxyType

import httpx
import pytest

from fleet.device.server.api import SAMPLING
from tests.transport.sshd import free_port

from .conftest import ROOT, TOKEN, Echo, config

STANDIN = Path(__file__).with_name("geniex_standin.py")


def install(folder: Path, plugin: str) -> Path:
    """A folder in the layout of a geniex-cli archive, with the stand-in as its program."""
    (folder / plugin).mkdir(parents=True)
    shutil.copy(STANDIN, folder / "geniex")
    (folder / "geniex").chmod(0o755)
    (folder / plugin / "libgeniex_plugin.so").write_bytes(b"")
    return folder


@contextlib.contextmanager
def serving(
    folder: Path, files: Mapping[str, bytes] = MappingProxyType({}), **spec: object
) -> Iterator[Echo]:
    root, bundle = install(folder / "cli", "llama_cpp"), folder / "bundle"
    bundle.mkdir()
    for name, content in {"tiny.gguf": b"GGUF", **files}.items():
        (bundle / name).write_bytes(content)
    given = {
        "root": str(root), "program": "geniex", "plugin": "llama_cpp", "model": "tiny.gguf",
        "argv": ["--compute", "cpu", "--nctx", "64"], **spec,
    }  # fmt: skip
    port = free_port()
    (folder / "config.json").write_text(json.dumps(config(port, backend="geniex", geniex=given)))
    (folder / "token").write_text(TOKEN)
    (folder / "token").chmod(0o600)
    argv = [sys.executable, str(ROOT / "fleet/device/server/fleet_server.py"), str(folder)]
    with (folder / "log").open("ab") as log:
        process = subprocess.Popen(
            argv, cwd=bundle, stdout=log, stderr=log, env={**os.environ, "PYTHONPATH": str(ROOT)}
        )
    one = Echo(process, folder, port)
    try:
        yield one
    finally:
        process.kill()
        process.wait()


@pytest.fixture
def geniex(tmp_path: Path) -> Iterator[Echo]:
    with serving(tmp_path) as one:
        one.ready()
        yield one


def calls(one: Echo) -> list[dict[str, object]]:
    return [json.loads(line) for line in (one.folder / "calls").read_text().splitlines()]


def test_a_prompt_whole_and_streamed(geniex: Echo) -> None:
    whole = geniex.post({"prompt": "a b c"}).json()
    assert (whole["text"], whole["finish_reason"]) == ("a b c ", "stop")
    assert whole["usage"] == {"prompt_tokens": 3, "completion_tokens": 3, "total_tokens": 6}
    short = geniex.post({"prompt": "a b c", "max_tokens": 2}).json()
    assert (short["text"], short["finish_reason"]) == ("a b ", "length")
    stopped = geniex.post({"prompt": "a b c", "stop": "b"}).json()
    assert (stopped["text"], stopped["finish_reason"]) == ("a ", "stop")
    with geniex.client() as client:
        stream = client.post("/generate/stream", json={"prompt": "a b c"}).text
    assert [line for line in stream.splitlines() if line.startswith("data:")][:2] == [
        'data: {"text": "a "}', 'data: {"text": "b "}',
    ]  # fmt: skip
    assert geniex.health().json()["backend"] == "geniex"


def test_the_chat_template_is_applied_here_and_the_sampler_there(geniex: Echo) -> None:
    turn = {"messages": [{"role": "user", "content": "hi"}], "temperature": 0, "top_k": 5}
    with geniex.client() as client:
        answer = client.post("/v1/chat/completions", json=turn).json()
    assert "ignored" not in answer
    last = calls(geniex)[-1]
    assert last["prompt"] == "<s>[INST] hi [/INST]"
    assert (last["temperature"], last["top_k"]) == (-1, 5)


def test_a_zero_of_a_request_is_none_that_geniex_reads_as_not_given(geniex: Echo) -> None:
    """GenieX takes its own value for 0: a random seed, 0.05 for min_p, 40 for top_k."""
    given = {"temperature": 0.5, "seed": -3, "min_p": 0.1}
    with geniex.client() as client:
        for fields in (dict.fromkeys(SAMPLING, 0), given):
            answer = client.post("/v1/completions", json={"prompt": "a", **fields}).json()
            assert answer["choices"][0]["text"] == "a "
    zeros, other = ({key: call[key] for key in SAMPLING if key in call}
                    for call in calls(geniex)[-2:])  # fmt: skip
    assert zeros == {
        "temperature": -1, "top_p": 1e-6, "top_k": -1, "min_p": 1e-9, "seed": 1,
        "presence_penalty": 1e-9, "frequency_penalty": 1e-9, "repetition_penalty": 0,
    }  # fmt: skip
    assert other == given


def test_errors_of_geniex_have_their_status(geniex: Echo) -> None:
    long = geniex.post({"prompt": "w " * 21})
    assert (long.status_code, long.json()["error"]["code"]) == (400, "context_exceeded")
    failed = geniex.post({"prompt": "fail"})
    assert (failed.status_code, failed.json()["error"]["code"]) == (500, "generation_failed")
    assert "SDKError(Text generation failed)" in failed.json()["error"]["message"]
    ids = geniex.post({"prompt": [1, 2]})
    assert ids.status_code == httpx.codes.BAD_REQUEST
    logits = geniex.post({"prompt": "a", "logits": True})
    assert logits.json()["error"]["code"] == "unsupported"


def test_a_client_that_leaves_ends_its_generation(geniex: Echo) -> None:
    with (
        geniex.client() as client,
        client.stream("POST", "/generate/stream", json={"prompt": "hold"}) as stream,
    ):
        next(stream.iter_lines())
    assert geniex.post({"prompt": "next"}).json()["text"] == "next "
    assert geniex.health().json()["served"]["cancelled"] == 1


def test_a_program_that_ends_ends_the_service(geniex: Echo) -> None:
    """The supervisor starts both again."""
    answer = geniex.post({"prompt": "gone"})
    assert answer.json()["error"]["code"] == "broken"
    assert geniex.process.wait(30) == 70


def test_the_program_ends_with_the_service(geniex: Echo) -> None:
    children = Path(f"/proc/{geniex.process.pid}/task")
    (child,) = {
        pid for task in children.iterdir() for pid in (task / "children").read_text().split()
    }
    argv = Path(f"/proc/{child}/cmdline").read_text().split("\0")
    assert "--skip-update" in argv  # a board asks no host for a newer GenieX
    geniex.process.kill()
    geniex.process.wait()
    end = time.monotonic() + 30
    while (stat := Path(f"/proc/{child}/stat")).exists() and ") Z " not in stat.read_text():
        assert time.monotonic() < end, "geniex serve outlives the service"
        time.sleep(0.02)


def test_a_model_that_does_not_load_is_no_service(tmp_path: Path) -> None:
    with serving(tmp_path, plugin="qairt") as one:
        assert one.process.wait(60) == 11
        assert "GenieX: SDKError(Invalid plugin)" in one.log


def test_a_program_without_an_option_of_ours_is_no_service(tmp_path: Path) -> None:
    """`geniex serve` before 0.3.15 has no --compute and --nctx."""
    with serving(tmp_path, argv=["--unknown"]) as one:
        assert one.process.wait(60) == 11
        assert "unrecognized arguments: --unknown" in one.log
        assert "geniex serve does not answer" in one.log


def test_a_manifest_in_the_bundle_stays_as_it_is(tmp_path: Path) -> None:
    """A bundle that was copied from the cache of GenieX has one."""
    with serving(tmp_path, files={"geniex.json": b"{}"}) as one:
        one.ready()
        assert one.post({"prompt": "a"}).json()["text"] == "a "
        assert (tmp_path / "bundle" / "geniex.json").read_bytes() == b"{}"
