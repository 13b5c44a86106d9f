"""ExecuTorch: real etdumps and real logs of qnn_executor_runner (../real/executorch).

Its reader needs torch, which is too large for these tests: inspected.json is what it said of
these files (record.py beside it), and the last test asks it again where it is installed.
"""

from __future__ import annotations

import importlib
import importlib.util
import json
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from fleet.model.record import Measure, Op
from fleet.profiles.formats import detect, executorch
from fleet.profiles.formats.base import Profile

DATA = Path(__file__).parents[1] / "real" / "executorch"
RECORDED: dict[str, list[dict[str, Any]]] = json.loads((DATA / "inspected.json").read_text("utf-8"))


def inspector(*, etdump_path: str) -> SimpleNamespace:
    """What ExecuTorch's Inspector said of the file with these bytes."""
    data = Path(etdump_path).read_bytes()
    name = next(name for name in RECORDED if (DATA / name).read_bytes() == data)
    blocks = [
        SimpleNamespace(
            name=block["name"],
            events=[
                SimpleNamespace(**event, perf_data=SimpleNamespace(raw=event["raw"]))
                for event in block["events"]
            ],
        )
        for block in RECORDED[name]
    ]
    return SimpleNamespace(event_blocks=blocks)


def etdump(level: int) -> Profile:
    found = detect.read((DATA / f"etdump_profile{level}.etdp").read_bytes())
    assert isinstance(found, Profile)
    return found


@pytest.fixture
def _reader(monkeypatch: pytest.MonkeyPatch) -> None:
    module = ModuleType("executorch.devtools")
    module.Inspector = inspector  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "executorch.devtools", module)


@pytest.mark.usefixtures("_reader")
def test_times_of_the_delegate_are_microseconds() -> None:
    """DELEGATE_CALL beside it, by the clock of ExecuTorch: 25.29, 23.83 and 18.87 ms."""
    found = etdump(1)
    others, source = found.metrics.others, found.metrics.source
    assert source["QNN (execute) time (us)"] == Measure(25179, "us")
    assert source["QNN (execute) time (us)#2"] == Measure(23771, "us")
    assert others["qnn_execute_us"].value == pytest.approx((25179 + 23771 + 18806) / 3)
    assert others["qnn_execute_first_us"] == Measure(25179, "us")
    assert others["accelerator_execute_us"].value == pytest.approx((25144 + 23737 + 18774) / 3)
    assert others["delegate_call_us"].value == pytest.approx(22659.956, abs=0.001)
    assert others["execute_us"].value == pytest.approx(22664.17, abs=0.01)
    assert others["execute_median_us"].value == pytest.approx(23829.299)
    assert others["execute_p90_us"].value == pytest.approx(25291.454)
    assert others["load_us"].value == pytest.approx(188261.819)


@pytest.mark.usefixtures("_reader")
@pytest.mark.parametrize("level", [0, 1])
def test_calls_times_and_counts_are_no_operations(level: int) -> None:
    assert etdump(level).ops == ()


@pytest.mark.usefixtures("_reader")
def test_operations_are_cycles_of_the_npu() -> None:
    found = etdump(2)
    assert {(op.unit, op.ran_on, op.graph) for op in found.ops} == {("cycles", "npu", "Execute")}
    values = {op.name: round(op.value, 2) for op in found.ops}
    assert values == {
        "Input": 608, "Output": 2374,
        "quantized_decomposed_quantize_per_tensor_default": 56586.33,
        "aten_permute_copy_default": 12612, "aten_convolution_default": 0,
        "aten_relu_default": 76771.67, "aten_permute_copy_default_1": 0,
        "aten_mean_dim": 2745.33, "aten_linear_default": 6316.67,
        "quantized_decomposed_dequantize_per_tensor_default_2": 0,
    }  # fmt: skip
    others = found.metrics.others
    assert others["accelerator_execute_cycles"].unit == "cycles"
    assert others["accelerator_execute_cycles"].value == pytest.approx(158014)
    assert others["hvx_threads"] == others["yields"] == Measure(0)
    assert others["power_on_us"].value == pytest.approx((143383 + 116944 + 74330) / 3)
    assert not any("cycles" in name for name, time in others.items() if time.unit == "us")


@pytest.mark.usefixtures("_reader")
def test_a_file_without_a_profile_has_the_times_of_executorch() -> None:
    found = etdump(0).metrics.others
    assert found["execute_us"].value == pytest.approx((1271.812 + 3185.779 + 1040.097) / 3)
    assert not any(name.startswith(("qnn", "accelerator")) for name in found)


def test_another_delegate_gives_times_by_its_own_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    """XNNPACK logs a start and an end, so the reader's ms are right: backends/xnnpack/runtime/
    profiling/XNNProfiler.cpp of pytorch/executorch. QNN logs 0 and the bare number:
    backends/qualcomm/runtime/backends/QnnProfiler.cpp.
    """
    event = {"is_delegated_op": True, "delegate_backend_name": None}
    name = "Fully Connected (NC, F32) GEMM #1"
    perf = SimpleNamespace(raw=[0.5, 1.5])
    block = SimpleNamespace(name="Execute", events=[SimpleNamespace(
        name=name, perf_data=perf, **event)])  # fmt: skip
    module = ModuleType("executorch.devtools")
    module.Inspector = lambda **_: SimpleNamespace(  # type: ignore[attr-defined]
        event_blocks=[block]
    )
    monkeypatch.setitem(sys.modules, "executorch.devtools", module)
    assert etdump(0).ops == (Op(name, 1000, "us", graph="Execute"),)


def test_the_line_of_qnn_executor_runner() -> None:
    text = (DATA / "stderr_profile0.txt").read_text("utf-8")
    found = executorch.inferences(text)
    assert found["run_mean_ms"] == Measure(5.505 / 3, "ms")
    assert found["inferences"] == Measure(3)
    assert found["ips"] == Measure(3000 / 5.505, "inf/s")
    assert (
        executorch.inferences("")
        == executorch.inferences("3 inference took 5.505000 ms, avg 1.835000 ms")
        == {}
    )


def test_several_rows_of_inputs_and_the_total_of_older_versions() -> None:
    """Before `Total` stood before it, the total was written like a row (1114539 of executorch)."""
    row = "x] Start inference ({0})\nx] 10 inference took {1}.000000 ms, avg {1}.000000 ms\n"
    for total in ("", "Total "):
        text = row.format(0, 20) + row.format(1, 40) + f"x] {total}2 inference took 60.0 ms, avg\n"
        found = executorch.inferences(text)
        assert (found["run_mean_ms"], found["inferences"]) == (Measure(3, "ms"), Measure(20))


def test_its_log_is_known_by_content() -> None:
    found = detect.read((DATA / "stderr_profile1.txt").read_bytes())
    assert isinstance(found, Profile)
    assert (found.format, found.runner) == ("executorch-log", "executorch")
    assert found.metrics.others["run_mean_ms"] == Measure(68.01 / 3, "ms")
    assert found.metrics.source == found.metrics.others


def test_the_recording_is_what_the_reader_says() -> None:
    try:
        importlib.import_module("executorch.devtools")
    except ImportError:
        pytest.skip("executorch is not installed: it brings torch, 1.6 GB")
    spec = importlib.util.spec_from_file_location("record", DATA / "record.py")
    assert spec
    assert spec.loader
    record = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(record)
    assert {name: record.said(DATA / name) for name in RECORDED} == RECORDED
