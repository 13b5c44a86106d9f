"""Profiles of other tools: the numbers, and whether a record counts for the NPU.

The texts are in our own words, in the shapes that the tools write (tests/inputs has the smallest
that fleet once got wrong).
"""

from __future__ import annotations

import json
import re

import pytest

from fleet.model.errors import ProfileError, UnknownProfileError
from fleet.profiles.formats import detect
from fleet.profiles.formats.base import Profile
from tests import inputs

PERF = """
precisions:
  w8a8:
    components:
      Net:
        performance_metrics:
          Some Phone:
            qnn_dlc: {inference_time_milliseconds: 1.25, primary_compute_unit: NPU}
            tflite: {inference_time_milliseconds: 9.5, primary_compute_unit: CPU}
  w4a16:
    components:
      Llm:
        performance_metrics:
          Some Phone:
            genie:
              llm_metrics:
              - context_length: 4096
                desired_compute_unit: npu
                time_to_first_token_range_milliseconds: {min: 80.5, max: 2600.0}
                tokens_per_second: 12.5
"""
LITERT = """Loaded model net.tflite
INFO: Replacing 40 out of 42 node(s) with delegate (TfLiteQnnDelegate) node, yielding 2 partitions.
count=50 first=1500 curr=1200 min=1190 max=1510 avg=1234.5 std=20
Inference timings in us: Init: 51000, First inference: 1600, Warmup (avg): 1.5e+03, \
Inference (avg): 1234.5
"""
WINML = {
    "benchmark_info": {"model_id": "net", "device": "npu", "ep": "QNNExecutionProvider"},
    "latency_ms": {"mean": 2.5, "min": 2.0, "p50": 2.4, "p90": 3.0},
    "raw_samples_ms": [2.0, 2.4, 3.0],
}
TABLE = """
│    │ event_block_name   │ event_name      │   avg (ms) │ delegate_backend_name   │
├────┼────────────────────┼─────────────────┼────────────┼─────────────────────────┤
│  0 │ Execute            │ DELEGATE_CALL   │        1.5 │ QnnBackend              │
│  1 │ Execute            │ native_call_add │        0.5 │                         │
│  2 │ Execute            │ Method::execute │        2.1 │                         │
"""


def read(text: str | bytes) -> list[Profile]:
    found = detect.read(text.encode() if isinstance(text, str) else text)
    made = [found] if isinstance(found, Profile) else found
    assert all(isinstance(one, Profile) for one in made)
    return [one for one in made if isinstance(one, Profile)]


def of(case: str) -> list[Profile]:
    return read(inputs.of(case).read_bytes())


@pytest.mark.parametrize(
    ("case", "runner", "numbers", "counts"),
    [
        ("C21", "mllm", {"prompt_tps": 200.0, "decode_tps": 50.0}, True),
        ("C22", "", {"netrun_execute_us": 2950, "rpc_execute_us": 2800, "ips": 310.0,
                     "accelerator_execute_cycles": 3400000, "execute_us": 2900}, True),
        ("C23", "executorch", {"prompt_tps": 157.894737, "decode_tps": 34.736532,
                               "init_ms": 973.0, "prompt_tokens": 9}, True),
        ("C24.aihub", "ai-hub", {"run_ms": 1.55, "run_min_ms": 1.543, "ops_off_npu": 0}, True),
        ("C24.geniex", "geniex", {"ttft_ms": 81.2, "padded_prompt_tps": 517.0,
                                 "decode_tps": 21.4}, True),
        ("C24.ort", "ort", {"run_ms": 0.9, "inferences": 1}, True),
        ("C20.mnn_demo", "mnn", {"prompt_tps": 91.66, "decode_tps": 36.36}, False),
        ("C19.both", "llama.cpp", {"mixed_tps": 48.0, "prompt_tokens": 512}, True),
    ],
)  # fmt: skip
def test_the_inputs_that_were_wrong(
    case: str, runner: str, numbers: dict[str, float], counts: bool
) -> None:
    (found,) = of(case)
    assert found.runner == runner
    assert {name: _value(found, name) for name in numbers} == pytest.approx(numbers)
    assert (not found.problems) == counts, found.problems


def _value(found: Profile, name: str) -> float | None:
    other = found.metrics.others.get(name)
    return other.value if other is not None else getattr(found.metrics, name, None)


def test_a_row_of_llama_bench_is_a_record() -> None:
    depth = of("C19.depth")
    assert [(one.metrics.prompt_tps, one.metrics.decode_tps) for one in depth] == [
        (101.0, None), (None, 9.9),
    ]  # fmt: skip
    assert {one.metrics.others["depth_tokens"].value for one in depth} == {2048}
    assert depth[0].marks == ("m, pp512 @ d2048",)
    many = of("C19.many")
    assert [one.metrics.prompt_tokens or one.metrics.generated_tokens for one in many] == [
        128, 512, 128,
    ]  # fmt: skip
    assert not any(one.problems for one in (*depth, *many))


@pytest.mark.parametrize(
    ("column", "test"), [("test", "pp64+tg32"), ("llm_demo", "prompt=64<br>decode=32")]
)
def test_two_speeds_of_a_row_of_mnn(column: str, test: str) -> None:
    text = (
        f"| model | modelSize | backend | threads | {column} | speed(tok/s) |\n"
        "| --- | --: | --- | --: | --: | --: |\n"
        f"| m | 1 MiB | HEXAGON | 4 | {test} | 80.10 ± 0.20<br>12.30 ± 0.10 |\n"
    )
    (found,) = read(text)
    assert (found.runner, found.metrics.prompt_tps, found.metrics.decode_tps) == ("mnn", 80.1, 12.3)
    assert (found.metrics.prompt_tokens, found.metrics.generated_tokens) == (64, 32)
    assert found.problems == ()


def test_another_backend_is_no_npu() -> None:
    (mnn,) = of("C20.mnn_bench")
    assert (mnn.runner, mnn.metrics.prompt_tps, mnn.metrics.decode_tps) == ("mnn", 500.0, 45.0)
    assert mnn.problems == ("cpu-fallback: the row says that the model ran on the backend OPENCL",)
    rows = [{"n_prompt": 8, "n_gen": 0, "avg_ts": 9.0, "backends": "CPU", "devices": "none"}]
    (cpu,) = read(json.dumps(rows))
    assert "backend CPU" in cpu.problems[0]
    (npu,) = read(json.dumps([{**rows[0], "backends": "HTP"}]))
    assert npu.problems == ()


def test_perf_yaml_is_a_record_a_row() -> None:
    npu, cpu, llm = read(PERF)
    assert _value(npu, "run_min_ms") == 1.25
    assert (npu.problems, npu.marks) == ((), ("w8a8 / Net / Some Phone / qnn_dlc",))
    assert cpu.problems == ("cpu-fallback: the figure is of the CPU",)
    assert (llm.metrics.decode_tps, llm.metrics.ttft_ms) == (12.5, None)
    assert (_value(llm, "ttft_min_ms"), _value(llm, "ttft_max_ms")) == (80.5, 2600.0)
    assert llm.origin["context"] == 4096


@pytest.mark.parametrize(
    ("old", "new", "problem"),
    [
        ("", "", None),
        ("TfLiteQnnDelegate", "TfLiteXNNPackDelegate", "the delegate is TfLiteXNNPackDelegate"),
        ("INFO: Replacing", "INFO: kept", "no delegate took a node"),
    ],
)
def test_benchmark_model_counts_where_the_delegate_took_it(
    old: str, new: str, problem: str | None
) -> None:
    (found,) = read(LITERT.replace(old, new) if old else LITERT)
    assert (_value(found, "run_mean_ms"), _value(found, "init_ms")) == (1.2345, 51.0)
    assert bool(found.problems) == (problem is not None)
    assert all(problem and problem in text for text in found.problems)


def test_a_log_of_several_benchmarks_is_a_record_a_run() -> None:
    failed = "ERROR: Node number 3 (ADD) failed to prepare.\nERROR: Benchmarking failed.\n"
    runs = [("a", LITERT), ("b", failed), ("c", LITERT.replace("1234.5", "99.5")), ("d", "")]
    text = "".join(f"INFO: STARTING!\nINFO: Graph: [./m/{n}.tflite]\n{log}" for n, log in runs)
    found = read(text)
    assert [profile.marks for profile in found] == [(f"{name}.tflite",) for name, _ in runs]
    assert [_value(found[at], "run_mean_ms") for at in (0, 2)] == [1.2345, 0.0995]
    assert [profile.problems for profile in found] == [
        (),
        ("failed: Node number 3 (ADD) failed to prepare.",),
        (),
        ("failed: the log of the run ends before its times",),
    ]


LITERT_2 = """INFO: [benchmark_litert_model.cc:201] Loading model from: m/a.tflite
INFO: [litert_dispatch.cc:145] Loading shared library: ./libLiteRtDispatch_Qualcomm.so
VERBOSE: Replacing 2 out of 3 node(s) with delegate (DispatchDelegate) node, yielding 3 partitions.
INFO: [benchmark_litert_model.h:89]
========== BENCHMARK RESULTS ==========
INFO: [benchmark_litert_model.h:94] Model initialization: 45.50 ms
INFO: [benchmark_litert_model.h:96] Warmup (first):       7.25 ms
INFO: [benchmark_litert_model.h:98] Warmup (avg):         6.00 ms (1 runs)
INFO: [benchmark_litert_model.h:100] Inference (avg):      4.50 ms (10 runs)
INFO: [benchmark_litert_model.h:104] Inference (min):      4.25 ms
INFO: [benchmark_litert_model.h:115] Throughput:           27.46 MB/s
"""


def test_benchmark_model_of_litert_2() -> None:
    (npu,) = read(LITERT_2)
    names = ("init_ms", "run_first_ms", "run_mean_ms", "run_min_ms", "ops_off_npu")
    assert [_value(npu, name) for name in names] == [45.5, 7.25, 4.5, 4.25, 1]
    assert (npu.problems, npu.marks) == ((), ("a.tflite",))
    (other,) = read(LITERT_2.replace("Dispatch_Qualcomm", "Dispatch_MediaTek"))
    assert other.problems[0].startswith("unreadable: the output of DispatchDelegate of LiteRT")
    (cpu,) = read(LITERT_2.replace("DispatchDelegate", "TfLiteXNNPackDelegate"))
    assert cpu.problems == ("cpu-fallback: the delegate is TfLiteXNNPackDelegate",)
    twice = read(LITERT_2 + LITERT_2.replace("4.50", "4.40"))
    assert [_value(run, "run_mean_ms") for run in twice] == [4.5, 4.4]


def test_benchmark_model_before_tensorflow_2_2() -> None:
    (old,) = read("Average inference timings in us: Warmup: 83235, Init: 38500, no stats: 79250\n")
    assert [_value(old, name) for name in ("init_ms", "run_mean_ms")] == [38.5, 79.25]


@pytest.mark.parametrize(
    ("line", "off"),
    [
        ("TfLiteQnnDelegate delegate: 11 nodes delegated out of 42 nodes with 7 partitions.", 31),
        ("TfLiteQnnDelegate delegate: 0 nodes delegated out of 42 nodes with 0 partitions.", None),
        ("Replacing 0 out of 42 node(s) with delegate (TfLiteQnnDelegate) node", None),
    ],
)
def test_the_qnn_delegates_own_line(line: str, off: int | None) -> None:
    cpu = "INFO: Replacing 31 out of 42 node(s) with delegate (TfLiteXNNPackDelegate) node"
    (found,) = read(re.sub("INFO: Replacing.*", f"{cpu}\nINFO: {line}", LITERT))
    assert _value(found, "ops_off_npu") == off
    assert (found.problems == ()) == (off is not None)


def test_layers_without_a_time_have_cycles() -> None:
    layers = [
        {"name": "conv", "compute_unit": "NPU", "execution_time": 0, "execution_cycles": 812},
        {"name": "add", "compute_unit": "NPU", "execution_time": 3, "execution_cycles": 90},
        {"name": "none", "compute_unit": "NPU", "execution_time": 0},
    ]
    summary = {"estimated_inference_time": 1200, "all_inference_times": [1200]}
    (found,) = read(json.dumps({"execution_summary": summary, "execution_detail": layers}))
    ops = [(op.name, op.value, op.unit) for op in found.ops]
    assert ops == [("conv", 812, "cycles"), ("add", 3, "us")]


OLD_GENIE = """[BEGIN]: Bern.[END]

[KPIS]:
Init Time: 2500000 us
Prompt Processing Time: 200000 us, Prompt Processing Rate : 85.000000 toks/sec
Token Generation Time: 500000 us, Token Generation Rate: 12.000000 toks/sec
"""


@pytest.mark.parametrize("text", [OLD_GENIE, OLD_GENIE.replace("\n", "\r\n")])
def test_what_genie_t2t_run_prints(text: str) -> None:
    (found,) = read(text)
    metrics = found.metrics
    assert (metrics.init_ms, metrics.prompt_tokens, metrics.prompt_tps) == (2500, 17, 85)
    assert (metrics.generated_tokens, metrics.decode_tps, metrics.decode_ms) == (6, 12, 500)
    assert found.problems == (
        "unreadable: the output of genie-t2t-run does not say where the model ran",
    )


SQL = """CREATE TABLE IF NOT EXISTS test (
  backends TEXT, model_type TEXT, n_prompt INTEGER, n_gen INTEGER, n_depth INTEGER, avg_ts REAL
);
INSERT INTO test (backends, model_type, n_prompt, n_gen, n_depth, avg_ts) VALUES
  ('HTP', 'it''s 1B', '512', '0', '0', '210.5');
INSERT INTO test (backends, model_type, n_prompt, n_gen, n_depth, avg_ts) VALUES
  ('HTP', 'it''s 1B', '0', '128', '0', '12.25');
"""


def test_llama_bench_in_sql() -> None:
    (found,) = read(SQL)
    assert (found.metrics.prompt_tps, found.metrics.decode_tps) == (210.5, 12.25)
    assert found.problems == ()


@pytest.mark.parametrize(
    "text",
    [SQL.replace(" test (", " llama_bench ("), SQL.replace("\n", "\r\n")],
    ids=["table of newer versions", "written on Windows"],
)
def test_other_sql_of_llama_bench(text: str) -> None:
    (found,) = read(text)
    assert (found.metrics.prompt_tps, found.metrics.decode_tps) == (210.5, 12.25)


def test_no_sql_is_run() -> None:
    doubled = ", ".join(f"c{n} AS (c{n - 1}||c{n - 1})" for n in range(1, 27))
    (found,) = read(SQL.replace("avg_ts REAL", f"avg_ts REAL, c0 TEXT, {doubled}"))
    assert found.metrics.prompt_tps == 210.5
    with pytest.raises(ProfileError):
        read(SQL.replace("'210.5'", "'210.5', '1'"))
    with pytest.raises(UnknownProfileError):
        read(f"A page that quotes it:\n{SQL}")


def test_a_part_that_genie_t2t_run_did_not_time() -> None:
    text = OLD_GENIE.replace(
        "200000 us, Prompt Processing Rate : 85.000000", "0 us, Prompt Processing Rate : inf"
    )
    (found,) = read(text)
    assert (_value(found, "prompt_ms"), found.metrics.prompt_tps) == (None, None)
    assert found.metrics.decode_tps == 12


STATISTICS = (
    "I 00:00:01.000000 executorch:stats.h:161] \tPrompt Tokens: 9    Generated Tokens: 5\n"
    "I 00:00:01.000000 executorch:stats.h:196] \t\tGenerated 5 tokens:\t0.500000 (seconds)\t\t "
    "Rate: \t10.000000 (tokens/second)\n"
)
OBSERVED = (
    'PyTorchObserver {"prompt_tokens":9,"generated_tokens":5,"model_load_start_ms":0,'
    '"model_load_end_ms":0,"inference_start_ms":100,"inference_end_ms":1000,'
    '"prompt_eval_end_ms":500,"first_token_ms":500}\n'
)


@pytest.mark.parametrize("one", [STATISTICS, OBSERVED, STATISTICS + OBSERVED])
def test_each_run_in_a_log_of_executorch(one: str) -> None:
    other = one.replace("10.000000", "20.000000").replace(":1000,", ":750,")
    assert len(read(one)) == 1
    first, second = (run.metrics.decode_tps for run in read(one + "more\n" + other))
    assert (first, second) == (10, 20)


def test_a_clock_that_stood_still_measured_nothing() -> None:
    text = (
        "I 00:00:01.000000 executorch:stats.h:84] Prompt Tokens: 9    Generated Tokens: 5\n"
        "I 00:00:01.000000 executorch:stats.h:90] Model Load Time: 1.5 (seconds)\n"
        "I 00:00:01.000000 executorch:stats.h:119] Generated 5 tokens: 0.000000 (seconds) "
        "Rate: inf (tokens/second)\n"
        "I 00:00:01.000000 executorch:stats.h:127] Time to first generated token: 0.000000 "
        "(seconds)\n"
    )
    (found,) = read(text)
    metrics = found.metrics
    assert (metrics.init_ms, metrics.ttft_ms, metrics.decode_ms) == (1500, None, None)
    assert found.problems == ("the program measured no time for its tokens",)


def test_winml_perf_says_device_and_provider() -> None:
    (found,) = read(json.dumps(WINML))
    assert (_value(found, "run_ms"), _value(found, "run_mean_ms")) == (2.4, 2.5)
    assert found.problems == ()
    for change in ({"device": "cpu"}, {"ep": "DmlExecutionProvider"}):
        info = WINML["benchmark_info"] | change  # type: ignore[operator]
        (found,) = read(json.dumps(WINML | {"benchmark_info": info}))
        assert found.problems[0].startswith("cpu-fallback: winml perf ran on")


def test_the_inspectors_table() -> None:
    (found,) = read(TABLE)
    assert _value(found, "execute_us") == pytest.approx(2100)
    assert _value(found, "delegate_call_us") == pytest.approx(1500)
    assert [(op.name, op.value) for op in found.ops] == [("native_call_add", 500.0)]


@pytest.mark.parametrize(
    "data",
    [
        {"execution_summary": {}, "execution_detail": []},
        {"agg": {}, "plugin": "qairt", "device": "npu"},
        {"benchmark_info": {}, "latency_ms": {"mean": "x"}},
        [{"cat": "Node", "dur": -1, "name": "n"}],
    ],
)
def test_a_file_without_numbers_is_damaged(data: object) -> None:
    with pytest.raises(ProfileError, match="contains no times"):
        read(json.dumps(data))


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("| m Q4 | 1 GiB | HTP | HTP0 | pp128 | 77.1 ± 0.2 |\n", "without the line that names"),
        ("[ Prompt: 120.5 t/s | Generation: 12.3 t/s ]\n", "llama-cli"),
        ('{"traceEvents": []}', "Chrome trace"),
        ("Layer Times:\n0: 12 us\n", "snpe-diagview"),
        ("SNPE SDK version:,2.2.1\n\nConfiguration used:\n", "snpe_bench"),
        (inputs.of("C25").read_text(), "no profile format"),
        ('[{"cat": "Node", "name": "a", "args": {}}]', "without durations"),
        ("=== Performance Summary ===\nTotal Trades: 1\n", "no profile format"),
        ("the prefill of the cup took 3 t/s\ndecode 2 t/s\n", "no profile format"),
        ("[dump_profile_info, 444]: [npu] finalize 4905 US\n", "no profile format"),
        ("[    0.512345] cdsprpc: created 12 sessions\n", "no profile format"),
        ("{main} 12 ms in libQnnHtp.so\n", "no profile format"),
    ],
)
def test_what_is_not_read_is_not_damaged(text: str, words: str) -> None:
    with pytest.raises(UnknownProfileError, match=words) as caught:
        detect.read(text.encode())
    assert caught.value.hint


def test_the_inspectors_table_of_a_cpu_delegate_does_not_count() -> None:
    head = "| event_block_name | event_name | avg (ms) | delegate_backend_name |\n"
    row = "| Execute | {} | 0.5 | {} |\n"
    for delegate, counts in (("XnnpackBackend", False), ("QnnBackend", True), ("", True)):
        text = head + row.format("DELEGATE_CALL", delegate) + row.format("Method::execute", "")
        (found,) = read(text)
        assert (found.problems == ()) is counts, delegate
        assert _value(found, "execute_us") == pytest.approx(500)


def test_the_prefill_of_mllms_first_version() -> None:
    (found,) = read(
        "Prefill Tokens: 64\nPrefill Time taken: 2.0 seconds\nPrefill Speed: 32.0 tokens/s\n"
    )
    assert (found.runner, found.metrics.prompt_tps, found.metrics.decode_tps) == (
        "mllm",
        32.0,
        None,
    )
    assert found.metrics.prompt_tokens == 64
    assert "does not say where the model ran" in found.problems[0]


def test_each_run_of_genie_t2t_run_in_one_text() -> None:
    runs = "".join(
        f"Init Time: {n}000 us\nPrompt Processing Time: {n}0000 us, Prompt Processing Rate : "
        f"100.0 toks/sec\n"
        f"Token Generation Time: {n}000000 us, Token Generation Rate: 10.0 toks/sec\n"
        for n in (1, 2)
    )
    found = read(runs)
    assert [(p.metrics.init_ms, p.metrics.prompt_tokens, p.metrics.decode_ms) for p in found] == [
        (1, 1, 1000), (2, 2, 2000)
    ]  # fmt: skip
