"""A pasted log as clean, numbered lines, whatever was in it."""

from __future__ import annotations

import re
from dataclasses import dataclass

from fleet.model.text import harmless

MAX_BYTES = 64 << 20  # what is beyond is cut off, and said
MAX_LINE = 4000  # longer lines are binary noise or one JSON document

_LINE_ENDS = re.compile(r"\r\n?|\n|\x0b|\x0c|\x85|\u2028|\u2029")


@dataclass(frozen=True)
class Line:
    """One line of a log; `number` counts from 1."""

    number: int
    text: str


def decode(data: bytes) -> str:
    """Bytes of a log as text: UTF-8, or UTF-16 where it says so; what is neither is replaced."""
    data = data[:MAX_BYTES]
    if data[:2] in {b"\xff\xfe", b"\xfe\xff"}:
        return data.decode("utf-16", "replace")
    return data.decode("utf-8-sig", "replace")


def lines_of(text: str) -> list[Line]:
    """The lines that have something in them, each shortened to MAX_LINE characters."""
    found = []
    for number, raw in enumerate(_LINE_ENDS.split(text[:MAX_BYTES]), 1):
        clean = harmless(raw[: MAX_LINE * 2])[:MAX_LINE].strip()
        if clean:
            found.append(Line(number, clean))
    return found
