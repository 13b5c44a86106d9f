"""The conditions for the start of a run and for its repetition."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from typing import Literal

from fleet.model.errors import InputError
from fleet.model.metrics import PRIMARY

AUTO = "auto"
DEFAULT_COOL_SECONDS = 600.0
DEFAULT_METRIC = PRIMARY.name
DEFAULT_AT_MOST = 30
DEFAULT_LEVEL = 0.95
DEFAULT_SAMPLE_SECONDS = 1.0
# Tolerance for the level of an interval: five values reach 93.75 %, docs/compare.md.
SHORT = 0.0125
_CELSIUS = re.compile(r"\s*(\d{1,3}(?:\.\d{1,2})?)\s*°?\s*[Cc]?\s*")
_PERCENT = re.compile(r"\s*(\d{1,2}(?:\.\d{1,3})?)\s*%\s*")


def fewest(level: float = DEFAULT_LEVEL) -> int:
    """Return the least number of values for an interval of this level.

    The whole range of n values contains the median with probability 1 - 2^(1-n).
    """
    return math.ceil(1 - math.log2(1 - level + SHORT))


LEAST_REPEATS = fewest()  # fewer values give no interval and no comparison


@dataclass(frozen=True)
class CoolSpec:
    """A wait until a zone is below `below` °C, before each run that counts.

    `zone` is `auto`, or a name or glob of thermal zones, of which the hottest counts. After
    `timeout` seconds, or without such a zone, `otherwise` decides.
    """

    below: float
    zone: str = AUTO
    timeout: float = DEFAULT_COOL_SECONDS
    otherwise: Literal["fail", "go on"] = "fail"


@dataclass(frozen=True)
class UntilSpec:
    """A repetition until the interval of `metric` is narrower than `narrower` (0.03: 3 %) of its
    middle.

    `at_most` counts all runs, including those that do not count. `level` is that of the interval.
    """

    narrower: float
    metric: str = DEFAULT_METRIC
    at_most: int = DEFAULT_AT_MOST
    level: float = DEFAULT_LEVEL


def parse_celsius(text: str | float) -> float:
    """Return the °C of `45C`, `45 °C` or `45`. Raises InputError unless it is from 1 to 150."""
    match = _CELSIUS.fullmatch(str(text))
    if match is None or not 1 <= float(match[1]) <= 150:
        raise InputError(
            f"'{text}' is not a temperature from 1 to 150 °C", hint="write it like 45C"
        )
    return float(match[1])


def parse_percent(text: str) -> float:
    """Return the share of `3%`, 0.03. Raises InputError unless it is above 0 and below 100 %."""
    match = _PERCENT.fullmatch(text)
    if match is None or float(match[1]) == 0:
        raise InputError(
            f"'{text}' is not a percentage between 0% and 100%", hint="write it like 3%"
        )
    return round(float(match[1]) / 100, 8)
