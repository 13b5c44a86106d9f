"""The drift of repeats: a board that warms up gets slower from one repeat to the next."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fleet.profiles.stats.special import t_tails

Floats = NDArray[np.float64]

# The probability that a series without a trend is mistaken for a trend. It is small, because the
# consequences of a false trend must not add to the false alarms.
DOUBT = 0.005
LEAST = 5
LEANING = -2.33  # standard deviations; one of a hundred series of independent values is below
LEAST_LEANING = 8
STEADY = (
    0.02  # a share; there is no trend if the last three runs lie within it, or change direction
)


@dataclass(frozen=True)
class Trend:
    """A trend that was detected.

    `change` is the last value minus the first on the fitted line, in units of the values. `noise`
    is the standard deviation about the trend, with `df` degrees of freedom.
    """

    change: float
    noise: float
    df: int


def trend(values: Floats) -> Trend | None:
    """Return the trend of values in their order; None if no trend is detected.

    The test is Student's t at `DOUBT` for a line fitted by least squares. The noise comes from the
    residuals of a parabola, because the warming of a board is not linear.
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
    """Return True if neighbours are more alike than by chance, so that something wanders slowly.

    The test is von Neumann's ratio (Annals of Mathematical Statistics 12, 1941) in its normal
    approximation.
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
    """Return True if the last three values do not go one way by more than STEADY."""
    last = [value for value in values[-3:] if math.isfinite(value)]
    if len(last) < 2 or not min(last) > 0:
        return True
    one_way = last in (sorted(last), sorted(last, reverse=True))
    return not one_way or max(last) / min(last) - 1 < STEADY
