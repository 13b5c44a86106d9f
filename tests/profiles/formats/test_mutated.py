"""Damaged profiles: our error or numbers that stand in the file, never anything else."""

from __future__ import annotations

import random
from collections import Counter

import pytest

from fleet.profiles.formats import genie, qnn_events
from tests.profiles.formats.mutating import judge, mutated


def run(count: int, seed: int) -> Counter[str]:
    chance = random.Random(seed)
    return Counter(judge(mutated(chance)) for _ in range(count))


def test_six_hundred_mutated_profiles() -> None:
    seen = run(600, 1)
    assert seen["error"] > 100
    assert seen["genie"] > 10
    assert seen["qnn-csv"] > 50


@pytest.mark.slow
def test_twenty_thousand_mutated_profiles() -> None:
    assert sum(run(20_000, 2).values()) == 20_000


def test_the_judge_sees_a_unit_that_is_assumed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(genie, "milliseconds", lambda value, _: value and value / 1000)
    with pytest.raises(AssertionError):
        run(3000, 1)
    monkeypatch.undo()
    monkeypatch.setattr(qnn_events, "_MICROSECONDS", dict.fromkeys(("US", "MS", "COUNT"), 1.0))
    with pytest.raises(AssertionError):
        run(3000, 1)
