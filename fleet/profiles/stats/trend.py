"""Whether repeats drift: a board that warms gets slower from one repeat to the next."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fleet.profiles.stats.special import t_tails

Floats = NDArray[np.float64]

# How often a series without a trend is taken for one. Small, for what follows a trend that is
# none must not add to the false alarms.
DOUBT = 0.005
LEAST = 5
LEANING = -2.33  # standard deviations: one series of independent values in a hundred
LEAST_LEANING = 8
STEADY = 0.02  # the last three runs lie within, or do not go one way: no trend any more


@dataclass(frozen=True)
class Trend:
    """A trend that was shown. `change`: last against first by the line, in units of the values.

    `noise`: the spread (standard deviation) about it, `df` what is left to know that by.
    """

    change: float
    noise: float
    df: int


def trend(values: Floats) -> Trend | None:
    """The trend of values in their order; None where none is shown.

    A line by least squares, tested by Student's t at `DOUBT`; the noise then comes from what a
    parabola leaves, for warming bends.
    """
    count = len(values)
    if count < LEAST or np.ptp(values) == 0:
        return None
    at = np.arange(count) - (count - 1) / 2
    square = float(at @ at)
    slope = float(at @ values) / square
    left = values - values.mean() - slope * at
    spread = math.sqrt(float(left @ left) / (count - 2))
    t = slope / (spread / math.sqrt(square)) if spread else math.inf
    if t_tails(t, count - 2) > DOUBT:
        return None
    bend = at * at - square / count
    left = left - bend * float(bend @ left) / float(bend @ bend)
    return Trend(slope * (count - 1), math.sqrt(float(left @ left) / (count - 3)), count - 3)


def leans(values: Floats) -> bool:
    """True where neighbours are more alike than chance makes them: something wanders slowly.

    Von Neumann's ratio (Annals of Mathematical Statistics 12, 1941) by its normal approximation.
    """
    count = len(values)
    away = values - values.mean()
    square = float(away @ away)
    if count < LEAST_LEANING or np.ptp(values) == 0:
        return False
    steps = np.diff(values)
    ratio = float(steps @ steps) / (count - 1) / (square / count)
    expected = 2 * count / (count - 1)
    spread = 2 * math.sqrt((count - 2) / (count * count - 1))
    return (ratio - expected) / spread < LEANING


def steady(values: Sequence[float]) -> bool:
    """True where the last of the values do not go one way by more than STEADY."""
    last = [value for value in values[-3:] if math.isfinite(value)]
    if len(last) < 2 or not min(last) > 0:
        return True
    one_way = last in (sorted(last), sorted(last, reverse=True))
    return not one_way or max(last) / min(last) - 1 < STEADY
