"""CSV of qnn-profile-viewer and onnxruntime-qnn: figures read from the samples by hand."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from fleet.model.errors import ProfileError, RunnerError
from fleet.model.record import Measure, Op
from fleet.profiles.formats import qnn_json
from fleet.profiles.formats.qnn import read

DATA = Path(__file__).parents[1] / "data"
HEAD = "Msg Timestamp,Message,Time,Unit of Measurement,Timing Source,Event Level,Event Identifier\n"
OPS = ("Input", "Transpose_token_5", "_token_2", "Relu5", "Transpose_token_12", "Output")
# Of each sample: others in µs, cycles of the graph, cycles of the operations above.
SAMPLES: dict[str, tuple[dict[str, float], float | None, tuple[float, ...]]] = {
    "ctx_basic": (
        {"accelerator_load": 7347, "load": 13995, "accelerator_execute": 18255, "execute": 18536},
        None,
        (),
    ),
    "ctx_detailed": (
        {
            "accelerator_load": 2697,
            "load": 14670,
            "vtcm_acquire": 4363,
            "power_on": 103226,
            "accelerator_execute": 17003,
            "execute": 17141,
        },
        1005567,
        (6949, 21006, 0, 949626, 24748, 3238),
    ),
    "prof_basic": (
        {"finalize": 31731, "accelerator_execute": 59532, "execute": 59611},
        None,
        (),
    ),
    "prof_detailed": (
        {
            "finalize": 16390,
            "vtcm_acquire": 3165,
            "power_on": 457380,
            "accelerator_execute": 73342,
            "execute": 73473,
        },
        409026,
        (18844, 38227, 0, 312359, 37948, 1648),
    ),
    "prof_optrace": (
        {
            "finalize": 14029,
            "vtcm_acquire": 4271,
            "power_on": 129701,
            "accelerator_execute": 56111,
            "execute": 56249,
        },
        362174,
        (5854, 23659, 0, 307893, 23039, 1729),
    ),
}


def text_of(name: str) -> str:
    return (DATA / f"{name}.csv").read_text("utf-8")


@pytest.mark.parametrize("name", SAMPLES)
def test_the_samples(name: str) -> None:
    times, cycles, ops = SAMPLES[name]
    found = read(text_of(name))
    others = found.metrics.others
    assert {k: v for k, v in others.items() if v.unit == "us" and "estimated" not in k} == {
        f"{key}_us": Measure(time, "us") for key, time in times.items()
    }
    assert others.get("accelerator_execute_cycles") == (
        None if cycles is None else Measure(cycles, "cycles")
    )
    assert others["hvx_threads"] == Measure(0, "")
    assert found.ops == tuple(Op(op, took, "cycles") for op, took in zip(OPS, ops, strict=False))
    assert len(found.ops) == len(ops)
    assert found.problems == ()


def test_numbers_as_written_stay() -> None:
    source = read(text_of("prof_optrace")).metrics.source
    assert source["QNN (execute) time"] == Measure(56249, "US")
    assert source["QNN (finalize) time / Graph Optimizations"] == Measure(10725, "US")
    assert source["Accelerator (execute) time (cycles)"] == Measure(362174, "CYCLES")
    assert not any("Hextimate" in name for name in source), "UNKNOWN is no number"


def test_what_was_simulated_is_named_an_estimate() -> None:
    others = read(text_of("prof_basic")).metrics.others
    simulated = {name: one for name, one in others.items() if name.startswith("estimated_")}
    assert simulated == {
        "estimated_accelerator_exec_cycles": Measure(13355, "cycles"),
        "estimated_accelerator_exec_lower_cycles": Measure(11586, "cycles"),
        "estimated_accelerator_exec_upper_cycles": Measure(15462, "cycles"),
        "estimated_accelerator_exec_time_us": Measure(8, "us"),
        "estimated_accelerator_exec_time_lower_us": Measure(7, "us"),
        "estimated_accelerator_exec_time_upper_us": Measure(10, "us"),
        "estimated_input_fill_bytes": Measure(16384, "bytes"),
        "estimated_intermediate_fill_bytes": Measure(0, "bytes"),
        "estimated_intermediate_spill_bytes": Measure(0, "bytes"),
        "estimated_inter_htp_fill_bytes": Measure(0, "bytes"),
        "estimated_inter_htp_spill_bytes": Measure(0, "bytes"),
        "estimated_output_spill_bytes": Measure(16384, "bytes"),
    }


def test_several_inferences_are_averaged_and_graphs_told_apart() -> None:
    def block(total: int, *ops: tuple[str, int]) -> str:
        rows = [f"0,BACKEND,{total},CYCLES,BACKEND,ROOT,Accelerator (execute) time (cycles)"]
        rows += [f"0,NODE,{took},CYCLES,BACKEND,SUB-EVENT,{op} (cycles)" for op, took in ops]
        return "\n".join(rows) + "\n"

    one, two = ("Conv:OpId_1", 100), ("Conv:OpId_7", 40)
    found = read(
        HEAD
        + block(140, one, two)
        + block(240, ("Conv:OpId_1", 200), two)
        + block(9, ("Mul:OpId_2", 9))
    )
    assert found.ops == (
        Op("Conv", 150, "cycles", graph="#1"),
        Op("Conv#2", 40, "cycles", graph="#1"),
        Op("Mul", 9, "cycles", graph="#2"),
    )


@pytest.mark.parametrize(
    ("unit", "name", "normal"),
    [
        ("US", "execute_us", Measure(1500, "us")),
        ("MICROSEC", "execute_us", Measure(1500, "us")),
        ("MS", "execute_us", Measure(1500000, "us")),
        ("NS", "execute_us", Measure(1.5, "us")),
        ("CYCLES", "execute_cycles", Measure(1500, "cycles")),
        ("PARSEC", "execute_parsec", Measure(1500, "PARSEC")),
        ("", "execute_unitless", Measure(1500, "")),
    ],
)
def test_units_are_read_and_the_name_says_them(unit: str, name: str, normal: Measure) -> None:
    found = read(f"{HEAD}0,EXECUTE,1500,{unit},BACKEND,ROOT,QNN (execute) time\n").metrics.others
    assert found == {name: normal}


ROW = "0,EXECUTE,18536,US,BACKEND,ROOT,QNN (execute) time\n"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "columns of qnn-profile-viewer"),
        ("a,b\n1,2\n", "columns of qnn-profile-viewer"),
        ("\x00", "columns of qnn-profile-viewer"),
        (HEAD.replace(",", ";"), r"separated by ';'.*\(line 1\)"),
        (HEAD + ROW.replace("18536", "18,5"), r"8 values for 7 columns.*\(line 2\)"),
        (HEAD + ROW + ROW.replace("18536", '"18,5"'), r"time '18,5' is not a number.*\(line 3\)"),
        (HEAD + ROW.replace("18536", "1.853,6"), r"\(line 2\)"),
        (HEAD + ROW.replace("18536", "0x4868"), r"\(line 2\)"),
        (HEAD + ROW + ROW[:20] + "\n", r"truncated.*5 values for 7 columns.*\(line 3\)"),
        (HEAD + ROW[:-6], r"truncated.*\(line 2\)"),
        (HEAD + ROW.replace("QNN", '"QNN'), r"\(line 2\)|broken"),
    ],
)
def test_damage_has_a_place_a_cause_and_is_one_error(text: str, said: str) -> None:
    with pytest.raises(RunnerError, match=said):
        read(text)


def test_a_decimal_comma_has_a_cure() -> None:
    with pytest.raises(ProfileError) as caught:
        read(HEAD + ROW.replace("18536", "18,5"))
    assert "qnn-profile-viewer" in caught.value.hint
    assert caught.value.line == 2


def test_a_file_without_a_number_is_cut() -> None:
    assert read(HEAD).problems == ("cut: the profile contains no numbers",)


def test_the_json_of_the_viewer_says_its_runtime() -> None:
    event = {
        "identifier": "Accelerator (execute) time (cycles)", "unit": "CYCLES", "type": "BACKEND",
        "value": 90, "sub-events": [
            {"identifier": "Add:OpId_3 (cycles)", "unit": "CYCLES", "type": "NODE", "value": 80},
            {"identifier": "x", "unit": "CYCLES", "value": "UNKNOWN", "sub-events": 5}, 7,
        ],
    }  # fmt: skip
    time = {"identifier": "QNN (execute) time", "unit": "MICROSEC", "type": "EXECUTE", "value": 12}
    data = {
        "metadata": {"appVersion": "v2.49.0.260730134355"},
        "messages": [{"method": "BACKEND_EXECUTE", "profilingEvents": [event, time]}, None],
    }
    found = qnn_json.read(json.loads(json.dumps(data)))
    assert found.runtime == "2.49.0.260730134355"
    assert found.metrics.others == {
        "accelerator_execute_cycles": Measure(90, "cycles"),
        "execute_us": Measure(12, "us"),
    }
    assert found.ops == (Op("Add", 80, "cycles"),)
    with pytest.raises(ProfileError):
        qnn_json.read({"messages": 5})
