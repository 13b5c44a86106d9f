"""Corrections for many questions, worked by hand."""

from __future__ import annotations

import random

import pytest

from fleet.profiles.stats.difference import holm, questions


def test_holm() -> None:
    assert holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])
    assert holm([0.6, 0.5]) == [1.0, 1.0]
    assert holm([]) == []


def test_the_level_of_an_interval_says_what_the_corrected_p_says() -> None:
    found = [0.01, 0.04, 0.03, 0.005]
    assert questions(found, 0.05) == [3, 2, 2, 4]
    assert questions([0.6, 0.5], 0.05) == [2, 2]
    assert questions([], 0.05) == []
    rng = random.Random(1)
    for _ in range(200):
        found = [rng.random() ** 3 for _ in range(rng.randint(1, 9))]
        shown = [p * among <= 0.05 for p, among in zip(found, questions(found, 0.05), strict=True)]
        assert shown == [p <= 0.05 for p in holm(found)]
