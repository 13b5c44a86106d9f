"""The interval in which the middle of what was measured lies."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from fleet.model.gates import fewest
from fleet.profiles.stats.special import t_quantile
from fleet.profiles.stats.trend import Floats, trend

GAP = 0.4  # of the whole range


@dataclass(frozen=True)
class Interval:
    """`mid` is the median; low and high bound it at `level` (0.95: in 95 of 100 cases).

    Where the values drift, `mid` is their level over all repeats (the geometric mean) and
    `drift` the change from the first to the last as a share: -0.25 fell by a quarter.
    """

    low: float
    mid: float
    high: float
    level: float
    count: int
    drift: float = 0.0

    @property
    def width(self) -> float:
        """Width as a share of the middle: 0.02 is two percent."""
        return (self.high - self.low) / abs(self.mid) if self.mid else float("inf")


def interval(values: Sequence[float] | Floats, level: float = 0.95) -> Interval | None:
    """The interval of values **in the order in which they were measured**.

    None for fewer than `fewest(level)` (five at 0.95): whatever the shape of their distribution,
    so few cannot say it. Assumes no shape: it lies between two of the values, so that it holds
    for two modes and for long tails too; between neighbours it is interpolated as Hettmansperger
    and Sheather do (Statistics & Probability Letters 4, 1986). Values that are not finite are
    left out.
    """
    given = np.asarray(values, dtype=float)
    found = given[np.isfinite(given)]
    if len(found) < fewest(level):
        return None
    drifting = _drifting(found, level)
    if drifting:
        return drifting
    ordered = np.sort(found)
    rank, share = _ranks(len(found), level)
    low = _between(ordered, rank, share)
    high = -_between(-ordered[::-1], rank, share)
    mid = (ordered[(len(found) - 1) // 2] + ordered[len(found) // 2]) / 2
    return Interval(low, float(mid), high, level, len(found))


def _drifting(found: Floats, level: float) -> Interval | None:
    """The interval about a trend: mean of the logarithms, spread of what the trend leaves."""
    ratio = bool(np.all(found > 0))
    logs = np.log(found) if ratio else found
    shown = trend(logs)
    if shown is None:
        return None
    mid = float(logs.mean())
    half = t_quantile(level, shown.df) * shown.noise / math.sqrt(len(found))
    ends = [mid - half, mid, mid + half]
    if ratio:
        ends = [math.exp(end) for end in ends]
        drift = math.expm1(shown.change)
    else:
        drift = shown.change / abs(mid) if mid else math.copysign(1, shown.change)
    return Interval(ends[0], ends[1], ends[2], level, len(found), drift)


def _between(ordered: Floats, rank: int, share: float) -> float:
    """From the value of this rank (from 1) `share` of the way to the next one.

    Not across a gap: between two modes, what lies between neighbours is nobody's value.
    """
    low = float(ordered[rank - 1])
    step = float(ordered[rank]) - low
    return low if step > GAP * (ordered[-1] - ordered[0]) else low + share * step


@lru_cache(maxsize=4096)
def _ranks(count: int, level: float) -> tuple[int, float]:
    """The rank of the outer value (from 1), and how far towards the next the end lies."""
    if count > 1000:
        half = t_quantile(level, 10**6) * math.sqrt(count) / 2
        return max(1, int((count + 1) / 2 - half)), 0.0
    below = 0.0  # how often fewer than `rank` values lie below the median
    rank, held = 0, 1.0
    while True:
        below += math.comb(count, rank) / 2**count
        inner = 1 - 2 * below
        if inner < level:
            break
        rank, held = rank + 1, inner
    if rank == 0:
        return 1, 0.0
    part = (held - level) / (held - inner)
    return rank, (count - rank) * part / (rank + (count - 2 * rank) * part)
