"""Runner ort without a board: its options, what it starts, how it reads any outcome."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fleet.model.errors import InputError
from fleet.model.files import FileRef
from fleet.model.playbook import RunSpec
from fleet.runners import Ended, Kit
from fleet.runners.ort import requirements
from fleet.runners.registry import OWN

from .kits import bundle

RUNNER = OWN["ort"]
JSON = st.recursive(
    st.none() | st.booleans() | st.floats() | st.integers() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner),
    max_leaves=12,
)


def kit(*models: str, files: tuple[str, ...] = (), **options: Any) -> Kit:
    made = bundle("ort", *models, *files)
    made = replace(made, config={"models": {name: {} for name in models}, "genai": None})
    return Kit(made, RunSpec(runner="ort", options=options, timeout=30.0))


def test_the_request_is_data_and_the_packages_are_isolated() -> None:
    start = RUNNER.start(kit("m.onnx", files=("x.npy",), inputs={"x": "x.npy"}, iterations=3))
    assert start.argv[:3] == ("python3", "-I", "{release}/run/fleet_ort.py")
    spec = json.loads(start.config)
    assert (spec["model"], spec["inputs"], spec["iterations"]) == ("m.onnx", {"x": "x.npy"}, 3)
    assert spec["provider"]["backend_path"] == "libQnnHtp.so"
    assert spec["provider"]["htp_performance_mode"] == "burst"
    emulator = RUNNER.start(replace(kit("m.onnx"), dsp=False))
    assert "htp_performance_mode" not in json.loads(emulator.config)["provider"]


@pytest.mark.parametrize(
    ("given_kit", "said"),
    [
        (kit("a.onnx", "b.onnx"), "several models.*: a.onnx, b.onnx"),
        (kit("a.onnx", model="c.onnx"), "`model` .* is c.onnx"),
        (kit("a.onnx", inputs={"x": "../x.npy"}), "uses the file ../x.npy for x"),
        (kit("a.onnx", reference={"o": "o.npy"}), "uses the file o.npy for o"),
    ],
)
def test_what_the_bundle_lacks_is_said_before_anything_is_sent(given_kit: Kit, said: str) -> None:
    with pytest.raises(InputError, match=said):
        RUNNER.start(given_kit)


@pytest.mark.parametrize(
    "options",
    [
        {"session": {"session.disable_cpu_ep_fallback": "0"}},
        {"provider": {"backend_path": "libQnnCpu.so"}},
        {"provider": {"backend_type": "gpu"}},
        {"provider": {"profiling_level": "off"}},
        {"iterations": 0},
        {"wrong": 1},
    ],
)
def test_options_that_would_hide_something_are_refused(options: dict[str, Any]) -> None:
    with pytest.raises(InputError):
        RUNNER.check(RunSpec(runner="ort", options=options))


def test_packages_that_pair() -> None:
    """Measured: 2.3.0 fails with onnxruntime 1.28 and later."""
    assert requirements("2.51.0.260929181845")[0] == "onnxruntime-qnn==2.7.0"
    assert requirements("2.47.0.260601114230")[:2] == (
        "onnxruntime-qnn==2.3.0",
        "onnxruntime>=1.24.4,<1.28",
    )
    with pytest.raises(InputError, match=r"QAIRT 2\.45\.0\.260326154327"):
        requirements("2.45.0.260326154327")


def test_files_are_script_and_site() -> None:
    asked: list[tuple[str, ...]] = []

    def site(names: tuple[str, ...]) -> tuple[FileRef, ...]:
        asked.append(names)
        return ()

    one = replace(kit("m.onnx"), build_id="2.51.0.260929181845", site=site)
    assert [file.name for file in RUNNER.files(one)] == ["run/fleet_ort.py"]
    assert asked == [requirements(one.build_id)]


PARTS = ("encoder.onnx", "decoder.onnx", "past.onnx")
GENERATION: dict[str, Any] = {"model": PARTS[0], "decoder": PARTS[1], "decoder_with_past": PARTS[2]}


def test_a_generation_is_of_three_models() -> None:
    given_kit = kit(*PARTS, **GENERATION)
    start = RUNNER.start(given_kit)
    assert start.argv[2] == "{release}/run/fleet_generate.py"
    spec = json.loads(start.config)
    assert {key: spec[key] for key in GENERATION} == GENERATION
    assert (spec["start_token"], spec["end_token"], spec["max_tokens"]) == (0, 1, 128)
    names = [file.name for file in RUNNER.files(given_kit)]
    assert names == ["run/fleet_generate.py", "run/fleet/device/npu/fleet_ort.py"]
    for missing in ("decoder", "decoder_with_past"):
        options = {**GENERATION, missing: None}
        with pytest.raises(InputError, match="both models are needed"):
            RUNNER.check(RunSpec(runner="ort", options=options))
    with pytest.raises(InputError, match=r"`decoder` .* is past2\.onnx"):
        RUNNER.start(kit(*PARTS, **{**GENERATION, "decoder": "past2.onnx"}))


def test_the_times_of_a_generation_and_its_end() -> None:
    given_kit = kit(*PARTS, **GENERATION)
    said: dict[str, Any] = {"run_ms": 9.0, "runs_ms": [9.0], "encoder_ms": 2.0}
    said |= {"token_seconds": [0.004, 0.006, 0.008], "finish": "eos", "cut_by_context": False}

    def read(**changes: Any) -> Any:
        files = {"outcome.json": json.dumps({**said, **changes}).encode()}
        return RUNNER.read(RUNNER.start(given_kit), given_kit, Ended(0, b"", files))

    outcome = read()
    assert (outcome.problems, outcome.finish) == ((), "eos")
    metrics = outcome.metrics
    assert (metrics.ttft_ms, metrics.generated_tokens, metrics.decode_tps) == (4.0, 3, 500.0)
    assert metrics.others["encoder_ms"].value == 2.0
    cut = read(finish="token-limit")
    assert cut.problems == ()
    assert cut.marks == ("cut: the output reached the token limit of 128",)
    assert read(cut_by_context=True).problems == (
        "cut: the output filled the context length of the model",
    )


def test_a_failure_says_its_reason() -> None:
    one = kit("m.onnx")
    said = json.dumps({"error": "Failed to create device: 14001"}).encode()
    outcome = RUNNER.read(RUNNER.start(one), one, Ended(11, b"", {"outcome.json": said}))
    assert outcome.problems == (
        "failed: the NPU session could not be opened: Failed to create device: 14001",
    )
    late = RUNNER.read(RUNNER.start(one), one, Ended(124, b""))
    assert late.problems == ("cut: the program did not end within 30 s",)
    nothing = RUNNER.read(RUNNER.start(one), one, Ended(0, b""))
    assert nothing.problems == ("unreadable: the result file of the run contains no times",)


def test_an_output_that_is_no_number_is_wrong() -> None:
    one = kit("m.onnx", tolerance=1.0)
    said = {"run_ms": 1.0, "runs_ms": [1.0], "outputs": {"o": {"max_abs": None, "cosine": None}}}
    ended = Ended(0, b"", {"outcome.json": json.dumps(said).encode()})
    outcome = RUNNER.read(RUNNER.start(one), one, ended)
    assert outcome.problems == ("wrong: the output o contains values that are not numbers (NaN)",)


@given(JSON, st.binary(max_size=60))
def test_any_outcome_is_read_or_a_problem(said: Any, profile: bytes) -> None:
    one = kit("m.onnx", tolerance=0.5)
    files = {"outcome.json": json.dumps(said).encode(), "profile.csv": profile}
    outcome = RUNNER.read(RUNNER.start(one), one, Ended(0, b"", files))
    assert outcome.problems
    assert "profile.csv" in outcome.raw
