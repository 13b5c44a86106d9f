"""Which of many runs are drawn: honest about what is left out."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

BUDGET = 4000  # points of all distributions of a page: what keeps it under 2 MB
LEAST = 8

_One = TypeVar("_One")


def thinned(ordered: Sequence[_One], most: int) -> list[_One]:
    """At most so many of the values in their order: the ends, and evenly spaced ranks between."""
    most = max(most, 2)
    if len(ordered) <= most:
        return list(ordered)
    step = (len(ordered) - 1) / (most - 1)
    return [ordered[round(place * step)] for place in range(most)]


def share_of(rows: int, charts: int) -> int:
    """How many points each row of each chart may have."""
    return max(LEAST, BUDGET // max(1, rows * charts))
