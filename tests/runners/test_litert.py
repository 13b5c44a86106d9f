"""Runner litert without a board: what may run where is settled before anything is sent."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from fleet.bundles.inspect import inspect_bundle
from fleet.model.errors import InputError
from fleet.model.playbook import RunSpec
from fleet.runners import Ended, Kit
from fleet.runners.litert import LitertRunner

ASSETS = Path(__file__).parents[2] / "assets" / "tiny-litert-npu"
RUNNER, COMPILED = LitertRunner(), "tiny_SM8750.tflite"


def kit(model: str = "tiny.tflite", **options: Any) -> Kit:
    run = RunSpec(runner="litert", options={"model": model, **options}, timeout=30.0)
    return Kit(inspect_bundle(ASSETS, kind="litert"), run)


@pytest.mark.parametrize(
    ("given_kit", "said"),
    [
        (kit(), "4 of the 4 operations of tiny.tflite would run on the CPU.* not compiled"),
        (kit(off_npu=4), "4 of the 4 operations of tiny.tflite would run on the CPU"),
        (kit(COMPILED), "1 of the 2 operations of tiny_SM8750.tflite would.* allows only 0"),
        (kit(COMPILED, off_npu=1), "cannot tell which part of tiny_SM8750.tflite"),
        (kit(COMPILED, accelerator="cpu"), "1 part.* compiled for an NPU and cannot run on a CPU"),
    ],
)
def test_nothing_falls_back_to_the_cpu_in_silence(given_kit: Kit, said: str) -> None:
    with pytest.raises(InputError, match=said):
        RUNNER.start(given_kit)


def test_the_share_off_the_npu_is_a_number() -> None:
    partly = kit(COMPILED, off_npu=1, source="tiny.tflite")
    start = RUNNER.start(partly)
    spec = json.loads(start.config)
    assert (spec["accelerator"], spec["partly"], start.marks) == ("npu", True, ())
    outcome = {"session_ms": 1, "run_ms": 2, "runs_ms": [2, 2], "outputs": {}}
    ended = Ended(0, b"", {"outcome.json": json.dumps(outcome).encode()})
    others = RUNNER.read(start, partly, ended).metrics.others
    assert (others["ops_off_npu"].value, others["off_npu_share"].value) == (1, 0.25)
    cpu = kit(accelerator="cpu")
    start = RUNNER.start(cpu)
    assert (json.loads(start.config)["partly"], start.marks) == (False, ("cpu",))
    read = RUNNER.read(start, cpu, ended)
    assert (read.problems, read.metrics.others["off_npu_share"].value) == ((), 1)
    lost = RUNNER.read(start, cpu, Ended(0, b"", {"outcome.json": b"[]"}))
    assert lost.problems == ("unreadable: the result file of the run contains no times",)


def test_the_npu_needs_the_dispatch_library_and_the_cpu_no_qairt(tmp_path: Path) -> None:
    npu, cpu = RunSpec(runner="litert"), kit(accelerator="cpu").run
    with pytest.raises(InputError, match=r"libLiteRtDispatch_Qualcomm\.so to use the NPU"):
        RUNNER.check(npu)
    RUNNER.check(cpu)
    RUNNER.check(replace(npu, libraries=(tmp_path / "libLiteRtDispatch_Qualcomm.so",)))
    assert (RUNNER.fitted(npu).runtime, RUNNER.fitted(cpu).runtime) == ("litert", None)
