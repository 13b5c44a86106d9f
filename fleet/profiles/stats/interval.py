"""The confidence interval of the middle of measured values."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from fleet.model.gates import fewest
from fleet.profiles.stats.trend import Floats, t_quantile, trend

GAP = 0.4  # a share of the whole range


@dataclass(frozen=True)
class Interval:
    """An interval. `mid` is the median; `low` and `high` bound it at `level`.

    A level of 0.95 means: in 95 of 100 cases. If the values drift, `mid` is their level over all
    repeats (the geometric mean), and `drift` is the change from the first to the last as a share;
    -0.25 is a fall by a quarter.
    """

    low: float
    mid: float
    high: float
    level: float
    count: int
    drift: float = 0.0

    @property
    def width(self) -> float:
        """The width as a share of the middle: 0.02 is two percent."""
        return (self.high - self.low) / abs(self.mid) if self.mid else float("inf")


def interval(values: Sequence[float] | Floats, level: float = 0.95) -> Interval | None:
    """Return the interval of values **in the order in which they were measured**.

    Returns None for fewer than `fewest(level)` values (five at 0.95), because so few values have no
    interval, whatever the shape of their distribution.

    The interval assumes no shape: its ends lie between two of the values, so it also holds for two
    modes and for long tails. Between neighbours it is interpolated with the method of
    Hettmansperger and Sheather (Statistics & Probability Letters 4, 1986). Values that are not
    finite are left out.
    """
    given = np.asarray(values, dtype=float)
    finite = given[np.isfinite(given)]
    if len(finite) < fewest(level):
        return None
    drifting = _drifting(finite, level)
    if drifting:
        return drifting
    ordered = np.sort(finite)
    rank, share = _ranks(len(finite), level)
    low = _between(ordered, rank, share)
    high = -_between(-ordered[::-1], rank, share)
    mid = (ordered[(len(finite) - 1) // 2] + ordered[len(finite) // 2]) / 2
    return Interval(low, float(mid), high, level, len(finite))


def _drifting(values: Floats, level: float) -> Interval | None:
    """Return the interval about a trend; None without a trend.

    Its middle is the mean of the logarithms; its width comes from the spread of the residuals.
    """
    ratio = bool(np.all(values > 0))
    logs = np.log(values) if ratio else values
    shown = trend(logs)
    if shown is None:
        return None
    mid = float(logs.mean())
    half = t_quantile(level, shown.df) * shown.noise / math.sqrt(len(values))
    ends = [mid - half, mid, mid + half]
    if ratio:
        ends = [math.exp(end) for end in ends]
        drift = math.expm1(shown.change)
    else:
        drift = shown.change / abs(mid) if mid else math.copysign(1, shown.change)
    return Interval(ends[0], ends[1], ends[2], level, len(values), drift)


def _between(ordered: Floats, rank: int, share: float) -> float:
    """Return the point at `share` of the way from the value of this rank (from 1) to the next
    value.

    If the step to the next value is a gap, as between two modes, return the value of the rank: no
    measured value lies in the gap.
    """
    low = float(ordered[rank - 1])
    step = float(ordered[rank]) - low
    return low if step > GAP * (ordered[-1] - ordered[0]) else low + share * step


@lru_cache(maxsize=4096)
def _ranks(count: int, level: float) -> tuple[int, float]:
    """Return the rank of the outer value (from 1), and the position of the end towards the next
    value.
    """
    if count > 1000:
        half = t_quantile(level, 10**6) * math.sqrt(count) / 2
        return max(1, int((count + 1) / 2 - half)), 0.0
    below = 0.0  # the probability that fewer than `rank` values lie below the median
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
