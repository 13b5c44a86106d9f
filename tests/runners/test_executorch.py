"""What qnn_executor_runner and qnn_llama_runner leave: real files (tests/profiles/real)."""

from __future__ import annotations

import json
from array import array
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from fleet.model.errors import InputError
from fleet.model.files import FileRef
from fleet.model.playbook import RunSpec
from fleet.model.record import Measure, Metrics
from fleet.runners import Ended
from fleet.runners.executorch import NO_INPUTS
from fleet.runners.registry import OWN

from .kits import kit

DATA = Path(__file__).parents[1] / "profiles" / "real" / "executorch"
SPEED = (DATA / "inference_speed_iteration3.txt").read_bytes()  # of --iteration 3
LOG = (DATA / "stderr_profile0.txt").read_bytes()  # of the same run
FAR = "wrong: output_0_0.raw differs by 0.6 from its reference y.raw, but the tolerance is 0.5"
OBSERVED = {
    "prompt_tokens": 20, "generated_tokens": 100, "model_load_start_ms": 1000,
    "model_load_end_ms": 1500, "inference_start_ms": 2000, "inference_end_ms": 4100,
    "prompt_eval_end_ms": 2100, "first_token_ms": 2120, "SCALING_FACTOR_UNITS_PER_SECOND": 1000,
}  # fmt: skip


def read(program: str, ended: Ended, **options: Any) -> Metrics:
    run = RunSpec(prompt="hello", timeout=30.0, program=Path(f"/x/{program}"), options=options)
    one = kit("executorch", ("m.pte", "input_list.txt", "tokenizer.json"), run)
    found = OWN["executorch"].read(OWN["executorch"].start(one), one, ended)
    assert found.problems == ()
    return found.metrics


@pytest.mark.parametrize(
    ("given", "problems"),
    [
        ([1.0, 2.5], ()),
        ([1.0, 2.6], (FAR,)),
        ([1.0], ("wrong: output_0_0.raw has 1 numbers, but its reference y.raw has 2",)),
    ],
)
def test_outputs_come_back_and_are_compared(
    tmp_path: Path, given: list[float], problems: tuple[str, ...]
) -> None:
    (tmp_path / "y.raw").write_bytes(array("f", [1.0, 2.0]))
    options = {"reference": {"output_0_0.raw": "y.raw"}, "tolerance": 0.5}
    run = RunSpec(timeout=30.0, program=Path("/x/qnn_executor_runner"), options=options)
    one = kit("executorch", ("m.pte", "input_list.txt"), run)
    reference = FileRef(tmp_path / "y.raw", "y.raw", 8, "0" * 64)
    one = replace(one, bundle=replace(one.bundle, files=(*one.bundle.files, reference)))
    start = OWN["executorch"].start(one)
    assert "outputs/output_0_0.raw" in start.collect
    files = {"outputs/output_0_0.raw": array("f", given).tobytes()}
    found = OWN["executorch"].read(start, one, Ended(0, b"", files, LOG))
    assert found.problems == problems


def test_the_speed_file_is_the_sum_of_its_iterations() -> None:
    ended = Ended(0, b"", {"inference_speed.txt": SPEED})
    metrics = read("qnn_executor_runner", ended, iterations=3)
    assert SPEED == b"5.505"
    assert metrics.others == {
        "run_mean_ms": Measure(5.505 / 3, "ms"),
        "ips": Measure(1000 / (5.505 / 3), "inf/s"),
    }
    more = read("qnn_executor_runner", ended, iterations=1, extra=["--iteration=5"])
    assert more.others["run_mean_ms"] == Measure(5.505 / 5, "ms"), "the last one is in force"


def test_the_log_says_more_than_the_file() -> None:
    ended = Ended(0, b"", {"inference_speed.txt": SPEED}, LOG)
    metrics = read("qnn_executor_runner", ended, iterations=3)
    assert metrics.others["run_mean_ms"] == Measure(1.835, "ms")
    assert metrics.others["inferences"] == Measure(3)
    assert metrics.source["inference_speed.txt"] == Measure(5.505, "ms of 3 iterations")


def test_the_file_of_qnn_llama_runner_is_a_rate_of_the_whole() -> None:
    """Tokens over the whole inference, the prompt's pass too: not what is decoded a second."""
    said = f"PyTorchObserver {json.dumps(OBSERVED)}\n".encode()
    metrics = read("qnn_llama_runner", Ended(0, said, {"inference_speed.txt": b"47.619"}))
    assert metrics.decode_tps == 50
    assert metrics.others["inference_tps"] == Measure(47.619, "tok/s")
    silent = read("qnn_llama_runner", Ended(0, b"", {"inference_speed.txt": b"47.619"}))
    assert silent.decode_tps is None
    assert silent.others == {"inference_tps": Measure(47.619, "tok/s")}


def test_what_two_programs_write_into_that_file_has_two_names() -> None:
    ended = Ended(0, b"", {"inference_speed.txt": SPEED})
    names = [set(read(one, ended).others) for one in ("qnn_executor_runner", "qnn_llama_runner")]
    assert names[0].isdisjoint(names[1])
    garbage = Ended(0, b"", {"inference_speed.txt": b"nan\xff", "etdump.etdp": b""})
    assert read("qnn_executor_runner", garbage) == Metrics()


def test_without_a_list_the_program_fills_its_inputs_and_the_record_says_so() -> None:
    """qnn_executor_runner has default inputs; a reference cannot be compared with them."""
    run = RunSpec(program=Path("/x/qnn_executor_runner"))
    bare, listed = kit("executorch", ("m.pte",), run), ("m.pte", "input_list_2.txt")
    start = OWN["executorch"].start(bare)
    assert "--input_list_path" not in start.argv
    assert start.marks == (NO_INPUTS,)
    start = OWN["executorch"].start(kit("executorch", listed, run))
    assert "--input_list_path input_list_2.txt" in " ".join(start.argv)
    assert start.marks == ()
    options = {"reference": {"output_0_0.raw": "m.pte"}}
    with pytest.raises(InputError, match="contains no input list"):
        OWN["executorch"].start(kit("executorch", ("m.pte",), replace(run, options=options)))
