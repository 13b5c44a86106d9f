"""geniex-bench of Qualcomm's GenieX on a board behind a real sshd, with a model of ours.

Its releases are for ARM alone, so FLEET_GENIEX names a folder with bin/ and lib/ that somebody
built for this machine. It has no Hexagon here: the plugin llama_cpp computes on the CPU.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from fleet.config.playbook import load_playbook
from fleet.model.record import Record
from tests.engine.conftest import Bench

from .seen import ROOT, saw

PROMPT, TOKENS = "What is fleet?", 8
TINY = ROOT / "assets" / "tiny-gguf"


@pytest.fixture(scope="module")
def tree() -> Path:
    folder = os.environ.get("FLEET_GENIEX")
    if not folder:
        pytest.skip("FLEET_GENIEX does not name a folder of geniex-bench with bin/ and lib/")
    return Path(folder)


def deployed(bench: Bench, folder: Path, tree: Path, **options: Any) -> tuple[Record, ...]:
    text = {
        "name": "geniex",
        "bundle": {"path": str(TINY), "kind": "llama.cpp"},
        "run": {
            "runner": "geniex", "program": str(tree / "bin/geniex-bench"), "prompt": PROMPT,
            "max_tokens": TOKENS, "repeats": 2, "timeout": 60,
            "options": {"device": "cpu", "threads": 1, **options},
        },
    }  # fmt: skip
    path = folder / "playbook.yaml"
    path.write_text(json.dumps(text))
    bench.playbook = load_playbook(path)
    (result,) = bench.operation().deploy()
    assert result.error is None, result.error
    assert len(result.records) == 2
    return tuple(result.records)


def written(record: Record) -> dict[str, Any]:
    """The JSON file that geniex-bench wrote in this run, as it was collected."""
    data: dict[str, Any] = json.loads(Path(record.artifacts["geniex.json"]).read_text())
    return data


def test_a_text_and_every_number_of_its_own_json(bench: Bench, tmp_path: Path, tree: Path) -> None:
    first, second = deployed(bench, tmp_path, tree)
    for record in (first, second):
        data = written(record)
        (run,) = data["runs"]
        metrics = record.metrics
        assert (metrics.prompt_tokens, metrics.generated_tokens) == (
            run["prompt_tokens"],
            run["gen_tokens"],
        )
        assert (metrics.prompt_tps, metrics.decode_tps) == (run["prefill_tps"], run["decode_tps"])
        times = (metrics.ttft_ms, metrics.decode_ms, metrics.others["prompt_ms"].value)
        for value, key in zip(times, ("ttft_us", "decode_time_us", "prompt_time_us"), strict=True):
            assert value == pytest.approx(run[key] / 1000)
        assert (record.problems, record.counts) == ((), True), "the playbook asked for the CPU"
        assert "cpu" in record.marks
        assert record.finish == {"length": "token-limit", "eos": "eos"}[run["stop_reason"]]
    assert first.text == second.text != "", "seed and temperature are set"
    version = f"JSON schema {written(first)['schema_version']}"
    on = "the CPU of a board behind a real sshd (x86_64)"
    showed = "text and times, each equal to its own JSON; the plugin llama_cpp alone"
    saw("geniex", "geniex-bench", version, on, showed)


def test_repetitions_of_the_program_are_its_medians(
    bench: Bench, tmp_path: Path, tree: Path
) -> None:
    options = {"repetitions": 5, "warmups": 1, "prompt_tokens": 16}
    record = deployed(bench, tmp_path, tree, **options)[-1]
    data = written(record)
    assert (len(data["runs"]), data["params"]["warmup"]) == (5, 1)
    for value, key in (
        (record.metrics.ttft_ms, "ttft_ms"),
        (record.metrics.prompt_tps, "prefill_tps"),
        (record.metrics.decode_tps, "decode_tps"),
        (record.metrics.prompt_tokens, "prompt_tokens"),
    ):
        assert value == pytest.approx(data["agg"][key]["median"])
    assert record.metrics.prompt_tokens == 16
    assert "medians of 5 repetitions of geniex-bench" in record.marks


def test_temperature_0_takes_the_likeliest_token(bench: Bench, tmp_path: Path, tree: Path) -> None:
    """The plugin llama_cpp itself reads 0 as 0.8: then the seed decides on the text."""
    options = [{"seed": seed, "temperature": heat} for heat in (0, 0.8) for seed in (1, 2)]
    texts = [deployed(bench, tmp_path, tree, **each)[0].text for each in options]
    assert texts[0] == texts[1] != ""
    assert texts[2] != texts[3]


def test_hybrid_on_a_board_without_hexagon_does_not_count(
    bench: Bench, tmp_path: Path, tree: Path
) -> None:
    """GenieX computes on the CPU without a word; llama.cpp's log shows where the weights are."""
    (problem,) = deployed(bench, tmp_path, tree, device="hybrid")[-1].problems
    assert problem.startswith("cpu-fallback: ")


def test_the_npu_of_a_board_without_hexagon_is_no_release(
    bench: Bench, tmp_path: Path, tree: Path
) -> None:
    with pytest.raises(AssertionError, match="cannot open an NPU session"):
        deployed(bench, tmp_path, tree, device="npu")
    assert bench.current() is None
