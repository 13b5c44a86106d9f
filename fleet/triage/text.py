"""A pasted log as clean, numbered lines, whatever was in it."""

from __future__ import annotations

import re
from dataclasses import dataclass

from fleet.model.masking import masked

MAX_BYTES = 64 << 20  # what is beyond is cut off, and said
MAX_LINE = 4000  # longer lines are binary noise or one JSON document

# CSI, OSC and other escape sequences of terminals (ECMA-48), then what is left of control codes.
_ESCAPES = re.compile(
    r"\x1b\[[0-?]{0,64}[ -/]{0,8}[@-~]|\x1b\][^\x07\x1b\n]{0,2000}(?:\x07|\x1b\\)?"
    r"|\x1b[PX^_][^\x1b\n]{0,2000}(?:\x1b\\)?|\x1b[ -/]{0,8}[0-~]|\x9b[0-?]{0,64}[@-~]"
)
_CONTROLS = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u200b-\u200f\u202a-\u202e\u2066-\u2069]")
_LINE_ENDS = re.compile(r"\r\n?|\n|\x0b|\x0c|\x85|\u2028|\u2029")


@dataclass(frozen=True)
class Line:
    """One line of a log; `number` counts from 1."""

    number: int
    text: str


def harmless(text: str) -> str:
    """Text that can be shown: no escape sequences, no controls, no turned direction, no revealed
    secret.
    """
    return masked(_CONTROLS.sub("", _ESCAPES.sub("", text)))


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
