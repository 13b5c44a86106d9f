"""The drift of repeats: a board that warms up gets slower from one repeat to the next.

Student's t and Fisher's F come from one function; scipy.stats would add 0.7 s to each start.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

_STEPS = 300
_TINY = 1e-300
_ENOUGH = 1e-14


def beta_part(x: float, a: float, b: float) -> float:
    """Return the regularised incomplete beta function I_x(a, b) by continued fraction (DLMF
    8.17).
    """
    if x <= 0 or x >= 1:
        return float(x >= 1)
    if x > (a + 1) / (a + b + 2):
        return 1 - beta_part(1 - x, b, a)
    front = math.exp(
        math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b) + a * math.log(x) + b * math.log1p(-x)
    )
    c, d = 1.0, 1 / ((1 - (a + b) * x / (a + 1)) or _TINY)
    fraction = d
    for m in range(1, _STEPS):
        even = m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m))
        odd = -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1))
        for term in (even, odd):
            d = 1 / ((1 + term * d) or _TINY)
            c = (1 + term / c) or _TINY
            fraction *= c * d
        if abs(c * d - 1) < _ENOUGH:
            break
    return front * fraction / a


def t_tails(t: float, df: float) -> float:
    """Return the probability that Student's t is at least this far from 0, on either side."""
    return beta_part(df / (df + t * t), df / 2, 0.5) if math.isfinite(t) else 0.0


def f_tail(f: float, over: float, under: float) -> float:
    """Return the probability that Fisher's F with these degrees of freedom is at least this
    large.
    """
    return beta_part(under / (under + over * f), under / 2, over / 2) if math.isfinite(f) else 0.0


@lru_cache(maxsize=1024)
def t_quantile(level: float, df: int) -> float:
    """Return the t for which the share `level` (0.95) of all values lies within -t and t."""
    low, high = 0.0, 1e6
    for _ in range(200):
        middle = (low + high) / 2
        if 1 - t_tails(middle, df) < level:
            low = middle
        else:
            high = middle
    return high


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
