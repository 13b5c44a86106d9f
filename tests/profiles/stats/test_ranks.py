"""Rank tests against every arrangement counted out by hand."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest

from fleet.profiles.stats import ranks

TIED = [1.0, 2, 2, 3, 5, 5, 5, 9, 12]
CLEAR = [1.0, 4, 2.5, 3, 7, 5.5, 5, 9, 12]


@pytest.mark.parametrize("values", [TIED, CLEAR])
@pytest.mark.parametrize("size", [3, 4, 6])
def test_rank_sum_is_the_share_of_all_choices(values: list[float], size: int) -> None:
    whole = np.array(values)
    every = ranks.doubled_ranks(whole)
    sums = [sum(every[list(p)]) for p in itertools.combinations(range(9), size)]
    middle = sum(sums) / len(sums)
    for picked in itertools.islice(itertools.combinations(range(9), size), 0, None, 7):
        others = [n for n in range(9) if n not in picked]
        away = abs(sum(every[list(picked)]) - middle)
        share = sum(abs(one - middle) >= away - 1e-9 for one in sums) / len(sums)
        found = ranks.rank_sum(whole[list(picked)], whole[others])
        assert found == pytest.approx(share)
        assert ranks.rank_sum(whole[others], whole[list(picked)]) == pytest.approx(share)


@pytest.mark.parametrize("gaps", [[1, -2, 3, 4, 5, -6.5], [1, 1, -1, 2, 2, 2], [0, 0, 3, -1, 2]])
def test_signed_rank_is_the_share_of_all_signs(gaps: list[float]) -> None:
    kept = np.array([one for one in gaps if one])
    size = ranks.doubled_ranks(np.abs(kept))
    sums = [np.dot(size, s) for s in itertools.product((-1, 1), repeat=len(kept))]
    seen = abs(float(np.dot(size, np.sign(kept))))
    share = sum(abs(one) >= seen - 1e-9 for one in sums) / len(sums)
    assert ranks.signed_rank(np.array(gaps, dtype=float)) == pytest.approx(share)


def test_the_interval_is_what_the_test_does_not_rule_out() -> None:
    """Moved by a bit more than its end the shift is significant, by a bit less it is not."""
    rng = np.random.default_rng(5)
    a, b = rng.normal(0, 1, 8), rng.normal(1, 1, 11)
    found = ranks.shift(a, b, 0.95)
    assert found is not None
    for end, inside in ((found[0], 1), (found[2], -1)):
        assert ranks.rank_sum(a, b - end - inside * 1e-6) > 0.05
        assert ranks.rank_sum(a, b - end + inside * 1e-6) <= 0.05
    gaps = rng.normal(1, 1, 9)
    pairs = ranks.centre(gaps, 0.95)
    assert pairs is not None
    for end, inside in ((pairs[0], 1), (pairs[2], -1)):
        assert ranks.signed_rank(gaps - end - inside * 1e-6) > 0.05
        assert ranks.signed_rank(gaps - end + inside * 1e-6) <= 0.05


def test_too_small_for_an_interval() -> None:
    assert ranks.shift(np.arange(3.0), np.arange(3.0), 0.95) is None
    assert ranks.shift(np.arange(4.0), np.arange(4.0), 0.95) is not None
    assert ranks.centre(np.arange(5.0), 0.95) is None
    assert ranks.centre(np.arange(6.0), 0.95) is not None
    assert ranks.least_rank_sum(4, 4) == pytest.approx(2 / 70)
    assert ranks.least_signed_rank(6) == 2 / 64


def test_large_samples_join_the_counted_ones() -> None:
    """Where counting ends the normal distribution says nearly the same."""
    rng = np.random.default_rng(3)
    a, b = rng.normal(0, 1, 30), rng.normal(0.5, 1, 30)
    counted, found = ranks.rank_sum(a, b), ranks.shift(a, b, 0.95)
    more = ranks.rank_sum(np.append(a, np.median(a)), b)
    assert found is not None
    assert abs(math.log(counted) - math.log(more)) < 0.3
    a, b = rng.normal(0, 1, 3000), rng.normal(0.5, 1, 2000)
    large = ranks.shift(a, b, 0.95)
    assert large is not None
    assert large[0] < 0.5 < large[2]
    assert large[2] - large[0] == pytest.approx(
        2 * 1.96 * 1.02 * (1 / 3000 + 1 / 2000) ** 0.5, rel=0.1
    )
    pairs = ranks.centre(rng.normal(0.5, 1, 5000), 0.95)
    assert pairs is not None
    assert pairs[2] - pairs[0] == pytest.approx(2 * 1.96 * 1.02 / 5000**0.5, rel=0.1)


def test_welch_of_a_noisier_side() -> None:
    """Variances 2.5 and 10: Satterthwaite's 5.88 degrees of freedom, less at least one."""
    a, b = np.arange(1.0, 6), np.arange(2.0, 12, 2)
    found = ranks.Welch.of(a, b)
    assert (found.gap, found.df) == (3, 4)
    assert found.error == pytest.approx(2.5**0.5)
    assert found.p == pytest.approx(0.1306, abs=3e-4)
    low, high = found.ends(1 - found.p)
    assert low == pytest.approx(0, abs=1e-6)
    assert high == pytest.approx(6)
    assert ranks.Welch.of(np.ones(5), np.ones(5)).p == 1
    assert ranks.Welch.of(np.zeros(5), np.ones(5)).p == 0


def test_a_noisier_side_makes_no_more_false_alarms() -> None:
    """One side three times as noisy, five of each: the rank sum alone is wrong in 7 of 100."""
    rng, wrong, alone = np.random.default_rng(3), 0, 0
    for _ in range(2000):
        a, b = rng.standard_normal(5), 3 * rng.standard_normal(5)
        by_ranks = ranks.rank_sum(a, b) <= 0.049 / 5
        alone += by_ranks
        wrong += by_ranks and ranks.Welch.of(a, b).p <= 0.049 / 5
    assert wrong / 2000 <= 0.0125 < alone / 2000
