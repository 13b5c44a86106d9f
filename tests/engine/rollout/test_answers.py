"""A canary with wrong answers at the right speed goes back; a right one stays."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from fleet.model.errors import AnswerError

from . import boards
from .boards import Yard, yard

# A stand-in for llama-completion: the same times, whatever it answers; the model says how.
PROGRAM = """#!/bin/sh
if [ "$1" = --help ]; then echo ' -no-cnv'; exit; fi
while [ $# -gt 0 ]; do
  case $1 in
    -f) prompt=$(cat "$2") ;;
    -m) model=$(tr -d '\\000' < "$2") ;;
    --log-file) log=$2 ;;
  esac
  shift
done
case $model in
  *one*|*two*) case $prompt in *France*) echo Paris ;; *) echo 42 ;; esac ;;
  *) echo "time is of the essence" ;;
esac
rate='40.00 tokens per second'
{
  echo "load_tensors: HTP0 model buffer size = 12.00 MiB"
  echo "common_perf_print: prompt eval time = 10.00 ms / 8 tokens ( 1.25 ms per token, 800.0 t/s)"
  echo "common_perf_print: eval time = 100.00 ms / 4 runs ( 25.00 ms per token, $rate)"
  echo "common_perf_print: total time = 110.00 ms / 12 tokens"
} > "$log"
"""
PLAYBOOK = """
name: app
bundle: {path: bundle, kind: llama.cpp}
run: {program: llama-completion, prompt: hi, max_tokens: 4}
strategy: {parallel: %d, keep: 2}
suite:
  gate: GATE
  prompts:
    - {prompt: What is the capital of France?, expect: {contains: Paris}}
    - {prompt: What is 6 times 7?, expect: {number: 42}}
"""
BACK = "{canary: 1, on_fail: rollback}"


@pytest.fixture
def two(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Yard]:
    monkeypatch.setattr(boards, "PLAYBOOK", PLAYBOOK.replace("GATE", "run"))
    with yard(tmp_path, 2) as found:
        program = tmp_path / "llama-completion"
        program.write_text(PROGRAM)
        program.chmod(0o755)
        yield found


def goes_back(two: Yard, first: list[str | None], model: str) -> None:
    two.write_model(model)
    operation = two.operation(BACK, run="always")
    canary, other = operation.deploy()
    assert isinstance(canary.error, AnswerError), canary
    assert [record.metrics.decode_tps for record in canary.records][:1] == [40.0]
    assert other.outcome == "not attempted"
    assert operation.ending.word == "rolled back"
    assert two.live == first


def stays(two: Yard, model: str) -> list[str | None]:
    two.write_model(model)
    operation = two.operation(BACK, run="always")
    results = operation.deploy()
    assert [result.error for result in results] == [None, None]
    found = [record.suite for result in results for record in result.records if record.suite]
    assert [suite.shown for suite in found] == ["2 of 2 prompts"] * 2
    assert len(set(two.live)) == 1
    return two.live


def test_a_canary_with_wrong_answers_goes_back(two: Yard) -> None:
    first = stays(two, "one")
    goes_back(two, first, "three")
    assert stays(two, "two") != first


def test_before_the_switch_it_never_goes_live(two: Yard, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(boards, "PLAYBOOK", PLAYBOOK.replace("GATE", "health"))
    first = stays(two, "one")
    two.write_model("three")
    canary, other = two.operation("{canary: 1}", run="always").deploy()
    assert isinstance(canary.error, AnswerError)
    assert (canary.error.step, other.outcome) == ("verify", "not attempted")
    assert two.live == first


@pytest.mark.slow
def test_fifty_of_each(two: Yard) -> None:
    first = stays(two, "one")
    for number in range(int(os.environ.get("FLEET_CANARIES", "50"))):
        goes_back(two, first, f"three {number}")
        first = stays(two, f"two {number}")
