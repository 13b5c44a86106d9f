"""The interval in which the middle of what was measured lies."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

RESAMPLES = 4000


@dataclass(frozen=True)
class Interval:
    """`mid` is the median; low and high bound it at `level` (0.95: in 95 of 100 cases)."""

    low: float
    mid: float
    high: float
    level: float
    count: int

    @property
    def width(self) -> float:
        """Width as a share of the middle: 0.02 is two percent."""
        return (self.high - self.low) / abs(self.mid) if self.mid else float("inf")


def interval(values: Sequence[float], level: float = 0.95) -> Interval | None:
    """None for fewer than three values: nothing can be said of their spread."""
    if len(values) < 3:
        return None
    found = np.asarray(values, dtype=float)
    rng = np.random.default_rng(0)
    draws = np.median(rng.choice(found, (RESAMPLES, len(found))), axis=1)
    low, high = np.quantile(draws, [(1 - level) / 2, (1 + level) / 2])
    return Interval(float(low), float(np.median(found)), float(high), level, len(found))
