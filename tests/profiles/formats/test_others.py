"""llama.cpp, mllm, ExecuTorch; and which of all formats a file has."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest

from fleet.model.errors import ProfileError, UnknownProfileError
from fleet.model.record import Measure, Op
from fleet.profiles.formats import detect, executorch, llama_cpp, mllm
from fleet.profiles.formats.base import Profile

DATA = Path(__file__).parents[1] / "data"
RUNS = Path(__file__).parents[2] / "runners" / "data" / "llama.cpp"
ROWS = [
    {"build_commit": "c46583b", "n_prompt": 512, "n_gen": 0, "avg_ts": 210.5, "stddev_ts": 2.1},
    {"build_commit": "c46583b", "n_prompt": 0, "n_gen": 128, "avg_ts": 8.4, "stddev_ts": 0.05},
]
BENCH_CSV = (
    '"build_commit","n_prompt","n_gen","avg_ts"\n"c46583b","512","0","210.5"\n'
    '"c46583b","0","128","8.4"\n'
)
TABLE = """ggml-hex: Hexagon Arch version v79
| model             |       size | backend | ngl |          test |                  t/s |
| ----------------- | ---------: | ------- | --: | ------------: | -------------------: |
| llama 1B Q4_0     | 729.75 MiB | HTP     |  99 |         pp512 |        210.50 ± 2.10 |
| llama 1B Q4_0     | 729.75 MiB | HTP     |  99 |         tg128 |          8.40 ± 0.05 |
"""
# Of llama-completion -lv 4 on a CPU, with a tiny model of ours; the weights as on an NPU.
LOG_CPU = (RUNS / "completion_lv4.stderr.txt").read_text("utf-8")
LOG = LOG_CPU.replace("  CPU_Mapped model buffer", "        HTP0 model buffer")
ESTIMATE = "Final estimate: PPL = 10.1494 +/- 3.22681"
OBSERVED = {
    "prompt_tokens": 20, "generated_tokens": 100, "model_load_start_ms": 1000,
    "model_load_end_ms": 1500, "inference_start_ms": 2000, "inference_end_ms": 4100,
    "prompt_eval_end_ms": 2100, "first_token_ms": 2120, "SCALING_FACTOR_UNITS_PER_SECOND": 1000,
}  # fmt: skip
MLLM = "Enter (or 'exit/quit'): hello\nprefill speed: 120.5 tok/s\ndecode: 9.25 tokens/s\n"


def profile_of(text: str | bytes) -> Profile:
    found = detect.read(text.encode() if isinstance(text, str) else text)
    assert isinstance(found, Profile)
    return found


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        (json.dumps(ROWS), "llama-bench"),
        ("\n".join(map(json.dumps, ROWS)) + "\n", "llama-bench"),
        (BENCH_CSV, "llama-bench-csv"),
        (TABLE, "llama-bench-table"),
    ],
)
def test_llama_bench_in_all_its_forms(text: str, kind: str) -> None:
    found = profile_of(text)
    assert (found.format, found.runner) == (kind, "llama.cpp")
    metrics = found.metrics
    assert (metrics.prompt_tokens, metrics.prompt_tps) == (512, 210.5)
    assert (metrics.generated_tokens, metrics.decode_tps) == (128, 8.4)


def test_llama_bench_with_several_tests_is_a_record_a_row() -> None:
    made = llama_cpp.read_rows([*ROWS, {**ROWS[0], "n_prompt": 128}])
    assert isinstance(made, list)
    assert [one.metrics.prompt_tokens for one in made] == [512, None, 128]
    assert [one.marks for one in made] == [("pp512",), ("tg128",), ("pp128",)]
    with pytest.raises(ProfileError, match="no rates"):
        llama_cpp.read_rows([{"n_prompt": 1}])


def test_a_log_of_llama_completion() -> None:
    found = profile_of(LOG)
    metrics = found.metrics
    assert (metrics.init_ms, metrics.prompt_tps, metrics.decode_tps) == (3.01, 20000, 8000)
    assert (metrics.prompt_tokens, metrics.generated_tokens) == (4, 1)
    assert (metrics.decode_ms, metrics.others["prompt_ms"]) == (0.12, Measure(0.2, "ms"))
    assert found.problems == ()
    for text in (LOG_CPU, "ggml-hex: Hexagon Arch version v79\n" + LOG_CPU):
        assert profile_of(text).problems[0].startswith("cpu-fallback"), "no weights on an HTP"


def test_rates_of_an_mllm_fork() -> None:
    found = profile_of(MLLM)
    assert (found.format, found.metrics.prompt_tps, found.metrics.decode_tps) == (
        "mllm-log", 120.5, 9.25,
    )  # fmt: skip
    with pytest.raises(ProfileError, match="no rates"):
        mllm.read("Enter (or 'exit/quit'): hello\n")


def test_the_line_of_pytorch_observer() -> None:
    found = profile_of(f"I 00:00 x\nPyTorchObserver {json.dumps(OBSERVED)}\n").metrics
    assert (found.init_ms, found.ttft_ms, found.prompt_tps, found.decode_tps) == (500, 120, 200, 50)
    for odd in ({**OBSERVED, "prompt_eval_end_ms": 1e400}, {**OBSERVED, "first_token_ms": 1}):
        assert executorch.observed(f"PyTorchObserver {json.dumps(odd)}") == {}, "not a time"


@pytest.mark.parametrize("first", ["[INFO] starting", "[json.exception] at line 1", "{ odd"])
def test_a_log_may_begin_like_json(first: str) -> None:
    """Loggers put their level into brackets, and a tokenizer's library prints its exception."""
    log = f"{first}\nPyTorchObserver {json.dumps(OBSERVED)}\n"
    assert profile_of(log).metrics.generated_tokens == OBSERVED["generated_tokens"]


def test_a_load_that_a_runner_did_not_time_is_unknown() -> None:
    """The multimodal runner leaves both times at 0."""
    untimed = {**OBSERVED, "model_load_start_ms": 0, "model_load_end_ms": 0}
    found = executorch.observed(f"PyTorchObserver {json.dumps(untimed)}")
    assert "init_ms" not in found
    assert found["ttft_ms"].value == 120


def test_moments_that_a_runner_did_not_take_are_unknown() -> None:
    untimed = {**OBSERVED, "prompt_eval_end_ms": 0, "first_token_ms": 0}
    found = executorch.observed(f"PyTorchObserver {json.dumps(untimed)}")
    assert {name: found[name].value for name in found} == {
        "init_ms": 500, "prompt_tokens": 20, "generated_tokens": 100
    }  # fmt: skip


def test_an_excerpt_of_benchmark_model_does_not_say_where_it_ran() -> None:
    line = "Inference timings in us: Init: 9, First inference: 8, Warmup (avg): 7, "
    line += "Inference (avg): 6\n"
    (excerpt,) = profile_of(f"I tflite  : {line}").problems
    assert excerpt.startswith("unreadable: the output of benchmark_model")
    (whole,) = profile_of(f"Loaded model m.tflite\n{line}").problems
    assert whole.startswith("cpu-fallback: no delegate")


def test_an_etdump_needs_executorch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "executorch.devtools", None)
    with pytest.raises(ProfileError, match="is not installed") as caught:
        detect.read(b"\0\0\0\0ED00....")
    assert caught.value.hint == "pip install executorch"


def test_an_etdump_is_read_by_executorchs_reader(monkeypatch: pytest.MonkeyPatch) -> None:
    """Stands for executorch.devtools.Inspector, whose times are in ms."""
    seen: list[bytes] = []

    def event(name: str, *raw: float, backend: str = "") -> SimpleNamespace:
        perf = SimpleNamespace(raw=list(raw))
        return SimpleNamespace(name=name, perf_data=perf, delegate_backend_name=backend)

    def inspector(*, etdump_path: str) -> SimpleNamespace:
        seen.append(Path(etdump_path).read_bytes())
        events = [
            event("Method::init", 7.0), event("Method::execute", 3.0),
            event("conv", 1.0, 2.0, backend="QnnBackend"), event("OPERATOR_CALL", 0.5),
            event("Program::load_method", 9.0), event("no numbers"),
        ]  # fmt: skip
        return SimpleNamespace(event_blocks=[SimpleNamespace(name="Execute", events=events)])

    module = ModuleType("executorch.devtools")
    module.Inspector = inspector  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "executorch.devtools", module)
    found = profile_of(b"\0\0\0\0ED00....")
    assert seen == [b"\0\0\0\0ED00...."]
    assert found.metrics.others == {
        "load_us": Measure(7000, "us"),
        "execute_us": Measure(3000, "us"),
    }
    assert found.ops == (
        Op("conv", 1500, "us", ran_on="npu", graph="Execute"),
        Op("OPERATOR_CALL", 500, "us", graph="Execute"),
    )
    module.Inspector = lambda **_: 1 / 0  # type: ignore[attr-defined]
    with pytest.raises(ProfileError, match="division by zero"):
        detect.read(b"\0\0\0\0ED00....")


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("genie_dialog.json", "genie"), ("genie_profile.json", "genie"),
        ("ctx_basic.csv", "qnn-csv"), ("ctx_detailed.csv", "qnn-csv"),
        ("prof_basic.csv", "qnn-csv"), ("prof_detailed.csv", "qnn-csv"),
        ("prof_optrace.csv", "qnn-csv"),
    ],
)  # fmt: skip
def test_the_samples_are_known_by_their_content(name: str, kind: str) -> None:
    assert profile_of((DATA / name).read_bytes()).format == kind


def test_a_file_that_powershell_wrote_is_read() -> None:
    text = (DATA / "ctx_basic.csv").read_text("utf-8")
    for coded in (text.encode("utf-16"), b"\xef\xbb\xbf" + text.encode()):
        assert profile_of(coded).metrics.others["load_us"] == Measure(13995, "us")


def test_records_of_fleet_are_plain_data() -> None:
    one = {"run_id": "r", "host": "h", "metrics": {}}
    assert detect.read(json.dumps(one).encode()) == [one]
    assert detect.read(f"{json.dumps(one)}\n\n{json.dumps(one)}\n".encode()) == [one, one]
    assert detect.read(json.dumps([one, one], indent=1).encode()) == [one, one]


@pytest.mark.parametrize(
    ("data", "said", "hint"),
    [
        (b"", "is empty", "again"),
        (
            (DATA / "prof_basic_qnn.log").read_bytes(),
            "binary QNN profiling log",
            "qnn-profile-viewer",
        ),
        (
            (DATA / "net_run_client.log").read_bytes(),
            "binary QNN profiling log",
            "qnn-profile-viewer",
        ),
        (b"\0\1\2\3elf", "file is binary", "one of these formats: record.json"),
        (
            b"hello\nworld\n",
            "in no profile format that fleet knows",
            "one of these formats: record.json",
        ),
        (b'{"a": 1}', r"its first keys: a", "one of these formats: record.json"),
        (b"[1, 2]", "the file contains a JSON list", "formats"),
        (
            b'{"run_id": "r", "host": "h", "metrics": {}}\n{"run',
            r"not valid JSON.*\(line 2\)",
            "export",
        ),
        (b'{\n"a": 1,5}', r"not valid JSON.*\(line 2\)", "decimal comma"),
        (b'{"components": [', r"is truncated \(line 1\)", "again"),
        (
            b"head\nbr\xfcder\n",
            r"byte 7 of the file is not valid utf-8 text \(line 2\)",
            "binary mode",
        ),
    ],
)
def test_what_cannot_be_read_is_told_with_its_cure(data: bytes, said: str, hint: str) -> None:
    with pytest.raises(ProfileError, match=said) as caught:
        detect.read(data)
    assert hint in caught.value.hint


def test_no_profile_and_a_broken_profile_are_told_apart() -> None:
    for data in (b"some log\n", b'{"a": 1}', b'{"event": "x"}\n{"event": "y"}\n', b"\0\0"):
        with pytest.raises(UnknownProfileError):
            detect.read(data)
    with pytest.raises(ProfileError) as caught:
        detect.read((DATA / "ctx_basic.csv").read_bytes()[:-30])
    assert not isinstance(caught.value, UnknownProfileError)
