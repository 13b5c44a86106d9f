"""Exact rank tests, and the intervals that belong to them (Hodges and Lehmann).

They assume no shape of the noise, are deterministic, and a single extreme value has little
influence. Two samples are compared with Wilcoxon's rank sum (Mann-Whitney), pairs with Wilcoxon's
signed ranks.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from fleet.profiles.stats.trend import Floats, t_quantile, t_tails

EXACT = 60  # values in total up to which p is exact; beyond, the normal distribution is close
REACH = 0.6  # share of the ranks; less finds less in calm noise, more leaves wild values undecided
MANY = 400  # values of each side; more are replaced by that number of quantiles


def doubled_ranks(values: Floats) -> Floats:
    """Return twice the ranks from 1, so that the middle ranks of ties are integers."""
    ordered = np.sort(values)
    below, upto = (np.searchsorted(ordered, values, side) for side in ("left", "right"))
    return np.asarray(below + upto + 1, dtype=float)


def rank_sum(a: Floats, b: Floats) -> float:
    """Return the two-sided p: the probability that chance alone moves two samples so far apart."""
    ranks = doubled_ranks(np.concatenate([a, b]))
    few, many = sorted((len(a), len(b)))
    mine = ranks[: len(a)] if len(a) <= len(b) else ranks[len(a) :]
    middle = few * (few + many + 1)
    away = abs(float(mine.sum()) - middle)
    if few + many <= EXACT:
        tied = len(np.unique(ranks)) < len(ranks)
        ways = _choices(ranks, few) if tied else _untied(few, many)
        sums = np.arange(len(ways)) * (1 if tied else 2)
        return min(1.0, float(ways[np.abs(sums - middle) >= away - 1e-9].sum()))
    spread = math.sqrt(float(ranks.var(ddof=1)) * few * many / (few + many))
    return math.erfc(max(0.0, away - 1) / spread / math.sqrt(2)) if spread else 1.0


@dataclass(frozen=True)
class Welch:
    """The distance of the mean of b above that of a; their noise may differ (Biometrika 34, 1947).

    `df` is Satterthwaite's number less one to two, because it is too large for few values.
    """

    gap: float
    error: float
    df: int

    @classmethod
    def of(cls, a: Floats, b: Floats) -> Welch:
        """Return the distance of two samples of at least two values."""
        parts = [float(side.var(ddof=1)) / len(side) for side in (a, b)]
        free = sum(part**2 / (len(side) - 1) for part, side in zip(parts, (a, b), strict=True))
        df = max(1, math.floor(sum(parts) ** 2 / free - 1)) if free else 1
        return cls(float(b.mean() - a.mean()), math.sqrt(sum(parts)), df)

    @property
    def p(self) -> float:
        """The two-sided probability that chance alone causes such a distance."""
        if not self.error:
            return 0.0 if self.gap else 1.0
        return t_tails(self.gap / self.error, self.df)

    def ends(self, level: float) -> tuple[float, float]:
        """Return the ends of the interval at this level."""
        half = t_quantile(level, self.df) * self.error
        return self.gap - half, self.gap + half


def signed_rank(gaps: Floats) -> float:
    """Return the two-sided p: the probability that chance alone moves pairs so far from 0.

    Gaps of 0 are not pairs.
    """
    moved = gaps[gaps != 0]
    count = len(moved)
    if not count:
        return 1.0
    ranks = doubled_ranks(np.abs(moved))
    total = float(ranks.sum())
    away = abs(2 * float(ranks[moved > 0].sum()) - total)
    if count <= EXACT:
        ways = _signs(ranks)
        sums = np.arange(len(ways))
        return min(1.0, float(ways[np.abs(2 * sums - total) >= away - 1e-9].sum()))
    spread = math.sqrt(float(ranks @ ranks))
    return math.erfc(max(0.0, away - 2) / spread / math.sqrt(2))


def least_rank_sum(few: int, many: int) -> float:
    """Return the smallest p that two samples of these sizes can give."""
    ways = math.lgamma(few + many + 1) - math.lgamma(few + 1) - math.lgamma(many + 1)
    return min(1.0, 2 * math.exp(-ways)) if few and many else 1.0


def least_signed_rank(count: int) -> float:
    """Return the smallest p that this number of pairs can give."""
    return min(1.0, 2.0 ** (1 - count))


def shift(a: Floats, b: Floats, level: float) -> tuple[float, float, float] | None:
    """Return the distance of b above a: low, middle, high; None if the samples are too small."""
    tail = _rank_tail(min(len(a), len(b)), max(len(a), len(b)), level)
    if tail < 1:
        return None
    share = tail / (len(a) * len(b))
    left, right = _thinned(a), _thinned(b)
    gaps = (right[:, None] - left[None, :]).reshape(-1)
    if len(left) < len(a) or len(right) < len(b):
        tail = max(1, int(share * len(gaps)))
    return _bounds(gaps, tail)


def centre(gaps: Floats, level: float) -> tuple[float, float, float] | None:
    """Return the distance of pairs from 0: low, middle, high; None if there are too few pairs."""
    count = len(gaps)
    tail = _signed_tail(count, level)
    if tail < 1:
        return None
    thin = _thinned(gaps)
    first, second = np.triu_indices(len(thin))
    means = (thin[first] + thin[second]) / 2
    if len(thin) < count:
        tail = max(1, int(tail * len(means) / (count * (count + 1) / 2)))
    return _bounds(means, tail)


def centres(gaps: Floats, level: float) -> Floats | None:
    """Return low, middle and high of each row, like `centre`, but with bounded scores.

    Ranks above REACH of their count weigh as much as that rank, so extreme values weigh less. The
    means are therefore those of values that are near each other in their order (Bauer, JASA 67,
    1972).
    """
    count = gaps.shape[1]
    reach = max(1, round(REACH * count))
    tail = _signed_tail(count, level, reach)
    if tail < 1:
        return None
    ordered = np.sort(gaps, axis=1)
    first, second = np.triu_indices(count)
    near = second - first < reach
    return np.array(_ends((ordered[:, first[near]] + ordered[:, second[near]]) / 2, tail))


def _bounds(values: Floats, tail: int) -> tuple[float, float, float]:
    low, mid, high = (float(end) for end in _ends(values, tail))
    return low, mid, high


def _ends(values: Floats, tail: int) -> tuple[Floats, Floats, Floats]:
    """Return, for each row, the value of rank `tail`, the median, and that rank from the end."""
    count = values.shape[-1]
    places = (tail - 1, (count - 1) // 2, count // 2, count - tail)
    ordered = np.partition(values, sorted(set(places)), axis=-1)
    low, left, right, high = (ordered[..., place] for place in places)
    return low, (left + right) / 2, high


def _thinned(values: Floats) -> Floats:
    if len(values) <= MANY:
        return values
    return np.asarray(np.quantile(values, (np.arange(MANY) + 0.5) / MANY), dtype=float)


def _choices(ranks: Floats, few: int) -> Floats:
    """Return the probability of each sum of `few` drawn ranks, indexed by the sum."""
    whole = ranks.astype(int)
    ways = np.zeros((few + 1, int(np.sort(whole)[-few:].sum()) + 1))
    ways[0, 0] = 1
    for rank in whole:
        ways[1:, rank:] += ways[:-1, : ways.shape[1] - rank].copy()
    return np.asarray(ways[few] / ways[few].sum(), dtype=float)


def _signs(ranks: Floats) -> Floats:
    """Return the probability of each sum if a coin decides about each rank, indexed by the sum."""
    ways = np.zeros(int(ranks.sum()) + 1)
    ways[0] = 1
    for rank in ranks.astype(int):
        ways[rank:] += ways[: len(ways) - rank].copy()
    return np.asarray(ways / ways.sum(), dtype=float)


@lru_cache(maxsize=4096)
def _untied(few: int, many: int) -> Floats:
    return _choices(np.arange(1, few + many + 1, dtype=float), few)


@lru_cache(maxsize=4096)
def _rank_tail(few: int, many: int, level: float) -> int:
    """Return the rank, from the end, of the sorted difference that bounds the shift; 0 if none
    does.
    """
    if few + many > EXACT:
        half = t_quantile(level, 10**6) * math.sqrt(few * many * (few + many + 1) / 12)
        return max(0, int(few * many / 2 - half))
    ways = _untied(few, many)
    below = 2 * np.cumsum(ways[few * (few + 1) // 2 :])
    return int(np.searchsorted(below, 1 - level + 1e-12, side="right"))


@lru_cache(maxsize=4096)
def _signed_tail(count: int, level: float, reach: int = 0) -> int:
    """Return the rank, from the end, of the sorted mean that bounds the centre; 0 if none does.

    `reach` is the largest score, 0 if the scores are not bounded.
    """
    scores = np.minimum(np.arange(1.0, count + 1), reach or count)
    if count > EXACT:
        half = t_quantile(level, 10**6) * math.sqrt(float(scores @ scores))
        return max(0, int((float(scores.sum()) - half) / 2))
    below = 2 * np.cumsum(_signs(scores))
    return int(np.searchsorted(below, 1 - level + 1e-12, side="right"))
