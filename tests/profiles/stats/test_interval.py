"""The interval of one group: how many values it takes, drift, two modes, odd values."""

from __future__ import annotations

import math

import numpy as np
import pytest

from fleet.model.gates import fewest
from fleet.profiles.stats.interval import interval
from fleet.profiles.stats.trend import leans, trend


def test_four_values_say_nothing_five_their_range() -> None:
    assert fewest() == 5
    assert fewest(0.99) == 7
    assert interval([3, 1, 2, 5]) is None
    found = interval([3, 1, 2, 5, 4.5])
    assert found is not None
    assert (found.low, found.mid, found.high, found.count) == (1, 3, 5, 5)
    assert found.width == pytest.approx(4 / 3)
    assert found.drift == 0


def test_between_neighbours_but_not_across_a_gap() -> None:
    """Ten values: the level lies between ranks 2 and 3; the share is Hettmansperger's 0.343."""
    found = interval([5, 1, 10, 3, 8, 2, 6, 9, 4, 7])
    assert found is not None
    part = (1 - 2 * 11 / 1024 - 0.95) / (2 * 45 / 1024)
    assert found.low == pytest.approx(2 + 8 * part / (2 + 6 * part))
    assert found.low + found.high == pytest.approx(11)
    two = interval([101.0, 1, 104, 100, 1.5, 103, 99, 98, 102, 97])
    assert two is not None
    assert two.low == 1.5


def test_drift_is_seen_and_does_not_widen() -> None:
    rng = np.random.default_rng(2)
    falling = 100 * np.exp(np.linspace(0, math.log(0.75), 10) + 0.02 * rng.standard_normal(10))
    found = interval(falling)
    assert found is not None
    assert found.drift == pytest.approx(-0.25, abs=0.05)
    assert found.width < 0.06
    assert found.low < 100 * math.sqrt(0.75) < found.high
    shuffled = interval(rng.permutation(falling))
    assert shuffled is not None
    assert shuffled.drift == 0
    assert shuffled.width > 0.1


def test_constant_and_odd_values() -> None:
    same = interval([10.03] * 7)
    assert same is not None
    assert (same.low, same.high, same.width, same.drift) == (10.03, 10.03, 0, 0)
    nothing = interval([0.0] * 6)
    assert nothing is not None
    assert nothing.width == float("inf")
    assert interval([1, 2, math.nan, math.inf, 3, 4]) is None
    assert interval([]) is None
    below = interval([-3, -1, -2, -5, -4, -2.5])
    assert below is not None
    assert below.low < below.mid < below.high < 0


def test_many_values() -> None:
    values = np.random.default_rng(1).normal(100, 2, 5000)
    found = interval(values)
    assert found is not None
    assert found.low < 100 < found.high
    assert found.width == pytest.approx(2 * 1.96 * 1.2533 * 0.02 / 5000**0.5, rel=0.2)


def test_a_trend_of_a_straight_line_and_none() -> None:
    line = trend(np.arange(6.0))
    assert line is not None
    assert line.change == pytest.approx(5)
    assert line.noise == pytest.approx(0, abs=1e-9)
    assert trend(np.arange(4.0)) is None
    assert trend(np.array([1.0, 2, 1, 2, 1, 2])) is None


def test_leaning() -> None:
    assert leans(np.array([1.0] * 6 + [2.0] * 6))
    assert not leans(np.array([1.0, 2.0] * 6))
    assert not leans(np.array([1.0] * 3 + [2.0] * 3))
    assert not leans(np.array([0.1] * 12))
