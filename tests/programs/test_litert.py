"""LiteRT with a .tflite of ours on a board behind a real sshd, on its CPU: no package has what
dispatches to Qualcomm's NPU. And its own words on a part that was compiled for one.
"""

from __future__ import annotations

import json
import subprocess
from dataclasses import replace
from pathlib import Path
from statistics import median
from typing import Any

import pytest

from fleet.config.playbook import load_playbook
from fleet.engine.pool import DeviceResult
from fleet.model.playbook import Playbook
from fleet.profiles.formats.base import RATE
from fleet.runners.litert import DISPATCH, PACKAGES
from fleet.runtimes.stage import file_lock
from tests.engine.conftest import Bench
from tests.support_runtime import NEW, X86, cache_root, cached_runtime, cached_store
from tests.transport.sshd import Sshd

from .clocks import beside, board
from .larger import make
from .seen import ROOT, VERSIONS, saw, saw_pair

VERSION = PACKAGES[0].partition("==")[2]


@pytest.fixture
def bench(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> Bench:
    monkeypatch.setenv("FLEET_HOME", str(cache_root() / "home"))  # packages outlive the run
    return bench


def playbook(path: Path, bundle: str, runtime: str = NEW, **run: Any) -> Playbook:
    text = {
        "name": "litert",
        "bundle": {"path": str(ROOT / "assets" / bundle), "kind": "litert"},
        "runtime": runtime,
        "run": {"repeats": 2, "timeout": 60, **run},
    }
    path.write_text(json.dumps(text))
    return load_playbook(path)


def deployed(bench: Bench, path: Path, bundle: str, **run: Any) -> DeviceResult[Any]:
    own = replace(bench, store=cached_store(), playbook=playbook(path, bundle, **run))
    with file_lock(cache_root() / "packages.lock", 900):
        (result,) = own.operation().deploy()
    return result


def test_a_model_on_the_cpu_of_a_board(bench: Bench, tmp_path: Path) -> None:
    options = {
        "accelerator": "cpu", "inputs": {"x": "x.npy"}, "reference": {"y": "y.npy"},
        "tolerance": 1e-5, "iterations": 50,
    }  # fmt: skip
    result = deployed(bench, tmp_path / "playbook.yaml", "tiny-litert", options=options)
    assert result.error is None, result.error
    for record in result.records:
        assert (record.problems, record.marks) == ((), ("cpu",))
        others = record.metrics.others
        assert 0 <= others["y_max_abs"].value <= 1e-5
        assert (others["ops_off_npu"].value, others["off_npu_share"].value) == (4, 1)
        assert others["inferences"].value == 50
        assert others["run_min_ms"].value <= others["run_ms"].value <= others["run_max_ms"].value
        assert not any("libQnn" in name for name in record.files)
    on = "the CPU of a board behind a real sshd (x86_64)"
    saw("litert", "ai-edge-litert", VERSION, on, "outputs within 1e-5 of numpy's, times")


def test_the_time_of_a_run_is_that_of_another_clock(bench: Bench, tmp_path: Path) -> None:
    """Of the same inferences, in a model that takes some milliseconds."""
    folder = make("make_litert", tmp_path / "larger", INNER=400_000)
    options = {"accelerator": "cpu", "iterations": 50, "warmups": 2}
    with board(tmp_path) as (server, times):
        own = replace(bench, host=server.host(base_dir=str(bench.base), soc="QCS9075"))
        result = deployed(own, tmp_path / "p.yaml", str(folder), options=options, repeats=1)
    assert result.error is None, result.error
    (record,) = result.records
    others, took = record.metrics.others, json.loads(times.read_text())[2:]
    assert len(took) == others["inferences"].value == 50
    by = "a clock around the inferences in the same process"
    beside("litert", "the median of 50 runs", by, others["run_ms"].value, 1000 * median(took))
    beside("litert", "inferences a second", by, others[RATE].value, 50 / sum(took))


@pytest.mark.parametrize("version", VERSIONS)
def test_a_qairt_that_litert_refuses_is_warned_about_before_a_byte(
    bench: Bench, board_server: Sshd, tmp_path: Path, version: str
) -> None:
    """Never refused: what was tried is LiteRT's compiler, which refused 2.47 to 2.49."""
    empty = tmp_path / DISPATCH
    subprocess.run(["cc", "-shared", "-x", "c", "/dev/null", "-o", str(empty)], check=True)
    cached_runtime(version, X86)
    own = replace(bench, host=board_server.host(base_dir=str(bench.base), soc="SM8750"))
    own = replace(
        own,
        store=cached_store(),
        playbook=playbook(
            tmp_path / "p.yaml",
            "tiny-litert-npu",
            runtime=version,
            libraries=[str(empty)],
            options={"model": "tiny_SM8750.tflite", "off_npu": 1, "source": "tiny.tflite"},
        ),
    )
    with file_lock(cache_root() / "packages.lock", 900):
        (result,) = own.operation().plan()
    assert result.plan is not None, result.error
    found = [found for found in result.plan.findings if found.rule == "litert-qairt"]
    warned = version in VERSIONS[:3]
    assert [finding.severity for finding in found] == ["warn"] * warned
    for finding in found:
        assert version in finding.message + finding.have
        assert f"LiteRT {VERSION}" in finding.message
    saw_pair(
        f"ai-edge-litert {VERSION}, for the NPU",
        version,
        "warned" if warned else "no objection; never run",
    )
    saw_pair(f"ai-edge-litert {VERSION}, on the CPU", version, "works: takes no QAIRT")


def test_a_part_for_the_npu_never_runs_on_the_cpu(
    bench: Bench, board_server: Sshd, tmp_path: Path
) -> None:
    """Its dispatch library cannot be had, so an empty one stands for it; LiteRT says what it makes
    of it, and the release is not switched.
    """
    empty = tmp_path / DISPATCH
    subprocess.run(["cc", "-shared", "-x", "c", "/dev/null", "-o", str(empty)], check=True)
    cached_runtime(NEW, X86)
    own = replace(bench, host=board_server.host(base_dir=str(bench.base), soc="SM8750"))
    options = {"model": "tiny_SM8750.tflite", "off_npu": 1, "source": "tiny.tflite"}
    result = deployed(
        own, tmp_path / "playbook.yaml", "tiny-litert-npu", options=options, libraries=[str(empty)]
    )
    assert "cannot open an NPU session" in str(result.error)
    assert "litert/runtime/dispatch/dispatch_delegate.cc" in str(result.error)
    assert own.current() is None
