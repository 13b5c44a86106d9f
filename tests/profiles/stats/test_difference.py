"""Two groups: which way they are compared, and where there is no answer."""

from __future__ import annotations

import math

import numpy as np
import pytest

from fleet.profiles.stats.difference import difference

RNG = np.random.default_rng(11)


def sample(n: int, middle: float = 100.0, noise: float = 0.02, seed: int = 0) -> list[float]:
    rng = np.random.default_rng(seed)
    return [float(v) for v in middle * np.exp(noise * rng.standard_normal(n))]


def test_a_change_of_five_percent() -> None:
    found = difference([sample(10, seed=1)], [sample(10, 95, seed=2)])
    assert found.how == "values"
    assert found.low is not None
    assert found.high is not None
    assert found.low < -0.05 < found.high < 0
    assert found.p < 0.01
    assert found.above < 0.1
    back = difference([sample(10, 95, seed=2)], [sample(10, seed=1)])
    assert back.p == found.p
    assert back.above == pytest.approx(1 - found.above)
    assert back.mid == pytest.approx(1 / (1 + (found.mid or 0)) - 1)


@pytest.mark.parametrize("n", [1, 2, 3, 4])
def test_too_few_say_so_whatever_they_are(n: int) -> None:
    found = difference([sample(n)], [[10.0] * 10])
    assert found.p == 1
    assert found.low is None
    assert str(n) in found.why
    assert found.mid is not None
    assert found.mid < -0.8


def test_no_value_at_all() -> None:
    assert difference([], [[1.0]]).why == "the metric has no value in A"
    assert difference([[math.nan]], []).why == "the metric has no value in A and B"
    late = [math.nan] * 6 + [1.0] * 6
    assert (
        difference([late], [[1.0] * 6]).why == "no repeat has a value of the metric in both A and B"
    )


def test_drift_is_compared_repeat_by_repeat() -> None:
    fall = np.exp(np.linspace(0, math.log(0.75), 10))
    a, b = np.array(sample(10, seed=3)) * fall, np.array(sample(10, 96, seed=4)) * fall
    found = difference([a], [b])
    assert found.how == "repeats"
    assert found.p < 0.05
    assert found.high is not None
    assert found.high < 0
    assert "A and B drift" in found.remarks[0]
    steep = np.exp(np.linspace(0, math.log(0.75), 5))
    few = difference([sample(5, noise=0.01) * steep], [sample(5, noise=0.01, seed=9) * steep])
    assert few.low is None
    assert "drift" in few.why


def test_only_as_many_repeats_as_the_other_has() -> None:
    """The longer run is warmer at its end: that is no difference of the two."""
    late = [*sample(6, seed=5), *sample(24, 80, seed=6)]
    found = difference([sample(6, seed=7)], [late])
    assert found.p > 0.05
    assert found.remarks == ("only the first 6 repeats of A and of B are compared",)


def test_runs_that_differ_among_themselves() -> None:
    a = [sample(10, 100, seed=1), sample(10, 106, seed=2)]
    found = difference(a, [sample(10, 97, seed=3), sample(10, 98, seed=4)])
    assert found.how == ""
    assert "runs of A differ" in found.why
    assert found.a is None


def test_the_run_is_the_unit_where_there_are_five() -> None:
    """Boots differ by 4 %; 50 repeats each would call the smallest difference sure."""
    rng = np.random.default_rng(8)

    def group(middle: float) -> list[list[float]]:
        return [
            [float(v) for v in middle * boot * np.exp(0.002 * rng.standard_normal(10))]
            for boot in np.exp(0.04 * rng.standard_normal(5))
        ]

    found = [difference(group(100), group(100)) for _ in range(200)]
    assert {one.how for one in found} == {"runs"}
    assert sum(one.p <= 0.049 for one in found) <= 14
    assert difference(group(100), group(70)).p < 0.01


def test_what_wanders_has_no_answer() -> None:
    walk = 100 + np.repeat([0.0, 3, 1, 4, 0.5, 2], 4) + 0.1 * RNG.standard_normal(24)
    found = difference([walk], [sample(24)])
    assert "change slowly" in found.why
    assert found.p == 1


def test_values_that_are_not_above_zero() -> None:
    a, b = [-1.0, 0, 1, -2, 2, 0.5], [9.0, 10, 11, 8, 12, 10.5]
    found = difference([a], [b])
    assert found.p < 0.05
    assert found.above == 1
    zero = difference([[0.0] * 6], [b])
    assert zero.mid is None
    assert zero.p < 0.05


def test_equal_constants_and_rounded_values() -> None:
    same = difference([[31.0] * 8], [[31.0] * 8])
    assert (same.p, same.low, same.mid, same.high, same.above) == (1, 0, 0, 0, 0.5)
    tied = difference([[10.0, 10.1] * 5], [[10.1, 10.0] * 5])
    assert tied.p == 1


def test_no_answer_depends_on_luck() -> None:
    one = [difference([sample(12, seed=1)], [sample(12, seed=2)]) for _ in range(2)]
    assert one[0] == one[1]
