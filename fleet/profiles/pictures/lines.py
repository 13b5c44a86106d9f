"""Sparklines and bars of letters; plain ASCII where the terminal knows no more."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

STEPS, ASCII_STEPS = "▁▂▃▄▅▆▇█", "_.-=*#"
LEAST = 10  # columns of a picture; with fewer it says nothing


def known(encoding: str | None) -> bool:
    """True where a stream of this encoding can show the block letters."""
    try:
        STEPS.encode(encoding or "ascii")
    except (LookupError, UnicodeEncodeError):
        return False
    return True


def sparkline(values: Sequence[float | None], width: int = 60, *, plain: bool = False) -> str:
    """One letter a value, the lowest to the highest; a gap where there is none.

    More values than columns: each letter is the mean of its neighbours. All alike: the middle.
    `plain`: ASCII only.
    """
    steps = ASCII_STEPS if plain else STEPS
    columns = _pooled(values, max(width, 1))
    there = [one for one in columns if one is not None]
    if not there:
        return ""
    low, span = min(there), max(there) - min(there)
    top = len(steps) - 1
    return "".join(
        " " if one is None else steps[round((one - low) / span * top) if span else top // 2]
        for one in columns
    )


def _pooled(values: Sequence[float | None], width: int) -> list[float | None]:
    good = [one if one is not None and math.isfinite(one) else None for one in values]
    if len(good) <= width:
        return good
    found: list[float | None] = []
    for place in range(width):
        some = good[place * len(good) // width : (place + 1) * len(good) // width]
        there = [one for one in some if one is not None]
        found.append(sum(there) / len(there) if there else None)
    return found


@dataclass(frozen=True)
class Bar:
    """One line: what it is, its middle, and its interval where there is one."""

    name: str
    middle: float
    low: float | None = None
    high: float | None = None


def bars(found: Sequence[Bar], width: int = 80, *, plain: bool = False) -> list[str]:
    """One line a bar: name, a bar from 0 to the middle, the interval as a whisker, the number.

    Negative numbers and a terminal of fewer than 30 columns have no bar, only the number.
    """
    if not found:
        return []
    names = min(max(len(one.name) for one in found), max(width // 3, 8))
    numbers = max(len(f"{one.middle:.4g}") for one in found)
    room = width - names - numbers - 4
    most = max(max(one.middle, one.high or one.middle) for one in found)
    drawn = room >= LEAST and most > 0 and all(one.middle >= 0 for one in found)
    lines = []
    for one in found:
        name = one.name if len(one.name) <= names else one.name[: names - 1] + "~"
        piece = _bar(one, room, most, plain=plain) if drawn else ""
        lines.append(f"{name:<{names}}  {one.middle:>{numbers}.4g}  {piece}".rstrip())
    return lines


def _bar(one: Bar, room: int, most: float, *, plain: bool) -> str:
    fill, line, end = ("#", "-", "|") if plain else ("█", "─", "│")

    def at(value: float) -> int:
        return min(max(round(value / most * room) - 1, 0), room - 1)

    letters = [fill if place <= at(one.middle) else " " for place in range(room)]
    if one.low is not None and one.high is not None:
        left, right = at(one.low), at(one.high)
        for place in range(left, right + 1):
            letters[place] = line
        letters[left] = letters[right] = end
    return "".join(letters)
