"""llama-bench and llama-completion of Debian on a board behind a real sshd, with a model of ours.

There is no Hexagon in them, so every run is a CPU fallback by the programs' own words, and none
counts; the times are theirs all the same.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from statistics import mean
from typing import Any

import pytest

from fleet.config.playbook import load_playbook
from fleet.model.record import Record
from tests.engine.conftest import Bench

from .clocks import beside, clocked
from .debian import llama_cpp, wrapped
from .larger import make
from .seen import ROOT, VERSIONS, saw, saw_pair

PROMPT, TOKENS = "What is fleet?", 8
TINY = ROOT / "assets" / "tiny-gguf"
CLOCK = "a clock around the calls into libllama in the same process"
ON = "the CPU of a board behind a real sshd (x86_64)"


@pytest.fixture(scope="module")
def tree() -> tuple[Path, str]:
    return llama_cpp()


def deployed(
    bench: Bench, folder: Path, program: Path, bundle: Path = TINY, **options: Any
) -> tuple[Record, ...]:
    text = {
        "name": program.name,
        "bundle": {"path": str(bundle), "kind": "llama.cpp"},
        "run": {
            "runner": "llama.cpp", "program": str(program), "prompt": PROMPT, "max_tokens": TOKENS,
            "repeats": 2, "timeout": 60, "options": {"device": "none", **options},
        },
    }  # fmt: skip
    path = folder / "playbook.yaml"
    path.write_text(json.dumps(text))
    bench.playbook = load_playbook(path)
    (result,) = bench.operation().deploy()
    assert result.error is None, result.error
    assert len(result.records) == 2
    return tuple(result.records)


@pytest.fixture
def large(tmp_path: Path) -> Path:
    """8 million weights: some milliseconds a token."""
    folder = tmp_path / "large"
    folder.mkdir()
    make("make_gguf", folder / "large.gguf", WIDTH=512, LAYERS=2, HEADS=8, INNER=2048)
    return folder


def called(times: Path) -> list[tuple[int, int]]:
    """By the preloaded clock: when calls into libllama began, and when each had been waited for."""
    rows = [line.split() for line in times.read_text().splitlines()]
    found, began = list[tuple[int, int]](), 0
    for name, start, end in rows:
        if name == "llama_process":
            began = int(start)
        elif began:
            found.append((began, int(end)))
            began = 0
    return found


def lasted(*calls: tuple[int, int]) -> float:
    """Seconds from the first to the last."""
    return (calls[-1][1] - calls[0][0]) / 1e9


def test_the_rates_of_llama_bench_are_those_of_another_clock(
    bench: Bench, tmp_path: Path, large: Path, tree: tuple[Path, str]
) -> None:
    """In the same process, around the same calls and what lies between them, as llama-bench has it,
    so that no load of the machine parts them.
    """
    program, tries, prompt = wrapped(tree[0], "llama-bench", tmp_path), 5, 16
    times = clocked(program)
    options = {"prompt_tokens": prompt, "repetitions": tries, "extra": ["-t", "1"]}
    record = deployed(bench, tmp_path, program, large, **options)[-1]
    calls = called(times)  # before each test a warm-up
    prompts, calls = [lasted(call) for call in calls[1 : 1 + tries]], calls[-tries * TOKENS :]
    answers = [lasted(*calls[at : at + TOKENS]) for at in range(0, len(calls), TOKENS)]
    metrics, pairs = record.metrics, ((prompts, prompt), (answers, TOKENS))
    prompt_tps, decode_tps = (mean(count / took for took in found) for found, count in pairs)
    beside("llama.cpp", "prompt rate of llama-bench", CLOCK, metrics.prompt_tps, prompt_tps)
    beside("llama.cpp", "its generation rate", CLOCK, metrics.decode_tps, decode_tps)


def test_the_times_of_llama_completion_are_those_of_another_clock(
    bench: Bench, tmp_path: Path, large: Path, tree: tuple[Path, str]
) -> None:
    program = wrapped(tree[0], "llama-completion", tmp_path)
    times = clocked(program)
    metrics = deployed(bench, tmp_path, program, large, extra=["-t", "1"])[-1].metrics
    prompt, *answer = map(lasted, called(times)[-TOKENS:])
    said, answered = metrics.others["prompt_ms"].value, metrics.decode_ms
    beside("llama.cpp", "prompt of llama-completion", CLOCK, said, 1000 * prompt)
    beside("llama.cpp", "its generation", CLOCK, answered, 1000 * sum(answer))


def test_llama_bench_gives_its_rates_and_where_it_ran(
    bench: Bench, tmp_path: Path, tree: tuple[Path, str]
) -> None:
    program = wrapped(tree[0], "llama-bench", tmp_path)
    for record in deployed(bench, tmp_path, program, prompt_tokens=16):
        rows = json.loads(Path(record.artifacts["bench.json"]).read_text())
        prompt, generated = sorted(rows, key=lambda row: int(row["n_gen"]))
        assert (prompt["n_prompt"], generated["n_gen"]) == (16, 8)
        assert record.metrics.prompt_tps == pytest.approx(prompt["avg_ts"])
        assert record.metrics.decode_tps == pytest.approx(generated["avg_ts"])
        took_seconds = generated["avg_ns"] / 1e9
        assert record.metrics.decode_tps == pytest.approx(8 / took_seconds, rel=0.02)
        (problem,) = record.problems
        assert problem.startswith("cpu-fallback: llama-bench ran on devices none with backends CPU")
        assert not record.counts
    for qairt in VERSIONS:
        saw_pair(f"llama.cpp of Debian {tree[1]}", qairt, "takes no QAIRT")
    saw("llama.cpp", "llama-bench", f"Debian {tree[1]}", ON, "rates; not on the NPU by its rows")


def test_llama_completion_gives_text_and_times(
    bench: Bench, tmp_path: Path, tree: tuple[Path, str]
) -> None:
    program = wrapped(tree[0], "llama-completion", tmp_path)
    first, second = deployed(bench, tmp_path, program)
    for record in (first, second):
        (problem,) = record.problems
        assert problem.startswith("cpu-fallback: the log shows no weights on none")
        assert re.search(r"; the weights are on (AMX, )?CPU\w*$", problem), "AMX is of the CPU"
        assert record.metrics.generated_tokens == 7, "the first token is of the prompt's pass"
        assert record.metrics.decode_tps is not None
        assert record.metrics.decode_ms is not None
        rate = 7000 / record.metrics.decode_ms
        assert record.metrics.decode_tps == pytest.approx(rate, rel=0.02)
    assert first.text == second.text != "", "seed and temperature are set"
    assert not first.text.startswith(PROMPT)
    version = f"Debian {tree[1]}"
    saw("llama.cpp", "llama-completion", version, ON, "text and times; not on the NPU by its log")


def test_a_device_that_is_not_there_is_no_release(
    bench: Bench, tmp_path: Path, tree: tuple[Path, str]
) -> None:
    program = wrapped(tree[0], "llama-bench", tmp_path)
    with pytest.raises(AssertionError, match=r"cannot open an NPU session \(exit status 1\)"):
        deployed(bench, tmp_path, program, device="HTP0")
    assert bench.current() is None
