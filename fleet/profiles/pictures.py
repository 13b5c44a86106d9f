"""Sparklines and bars made of characters; plain ASCII if the terminal supports only that."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

STEPS, ASCII_STEPS = "▁▂▃▄▅▆▇█", "_.-=*#"
LEAST = 10  # columns of a chart; a smaller chart shows nothing


def known(encoding: str | None) -> bool:
    """Return True if a stream of this encoding can show the block characters."""
    try:
        STEPS.encode(encoding or "ascii")
    except (LookupError, UnicodeEncodeError):
        return False
    return True


def sparkline(values: Sequence[float | None], width: int = 60, *, plain: bool = False) -> str:
    """Return a character for each value, from the lowest to the highest; a gap if there is no
    value.

    If there are more values than columns, each character is the mean of neighbouring values. If all
    values are equal, the middle character is used. `plain` limits the output to ASCII.
    """
    steps = ASCII_STEPS if plain else STEPS
    columns = _pooled(values, max(width, 1))
    there = [number for number in columns if number is not None]
    if not there:
        return ""
    low, span = min(there), max(there) - min(there)
    top = len(steps) - 1
    return "".join(
        " " if number is None else steps[round((number - low) / span * top) if span else top // 2]
        for number in columns
    )


def _pooled(values: Sequence[float | None], width: int) -> list[float | None]:
    good = [number if number is not None and math.isfinite(number) else None for number in values]
    if len(good) <= width:
        return good
    means: list[float | None] = []
    for place in range(width):
        some = good[place * len(good) // width : (place + 1) * len(good) // width]
        there = [number for number in some if number is not None]
        means.append(sum(there) / len(there) if there else None)
    return means


@dataclass(frozen=True)
class Bar:
    """A bar: its name, its middle, and its interval if there is one."""

    name: str
    middle: float
    low: float | None = None
    high: float | None = None


def bars(items: Sequence[Bar], width: int = 80, *, plain: bool = False) -> list[str]:
    """Return a line for each bar: name, number, a bar from 0 to the middle, the interval as a
    whisker.

    With a negative number, or below about 30 columns, there are no bars, only numbers. `plain`
    draws in ASCII.
    """
    if not items:
        return []
    names = min(max(len(bar.name) for bar in items), max(width // 3, 8))
    numbers = max(len(f"{bar.middle:.4g}") for bar in items)
    room = width - names - numbers - 4
    most = max(max(bar.middle, bar.high or bar.middle) for bar in items)
    drawn = room >= LEAST and most > 0 and all(bar.middle >= 0 for bar in items)
    lines = []
    for bar in items:
        name = bar.name if len(bar.name) <= names else bar.name[: names - 1] + "~"
        piece = _bar(bar, room, most, plain=plain) if drawn else ""
        lines.append(f"{name:<{names}}  {bar.middle:>{numbers}.4g}  {piece}".rstrip())
    return lines


def _bar(bar: Bar, room: int, most: float, *, plain: bool) -> str:
    fill, line, end = ("#", "-", "|") if plain else ("█", "─", "│")

    def at(value: float) -> int:
        return min(max(round(value / most * room) - 1, 0), room - 1)

    letters = [fill if place <= at(bar.middle) else " " for place in range(room)]
    if bar.low is not None and bar.high is not None:
        left, right = at(bar.low), at(bar.high)
        for place in range(left, right + 1):
            letters[place] = line
        letters[left] = letters[right] = end
    return "".join(letters)
