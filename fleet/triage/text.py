"""The clean, numbered lines of a pasted log."""

from __future__ import annotations

import re
from dataclasses import dataclass

from fleet.model.text import harmless

MAX_BYTES = 64 << 20  # the rest of a longer log is cut off
MAX_LINE = 4000  # longer lines are binary noise or one JSON document

# The process that wrote a line of logcat: threadtime, Android Studio, brief; and a kernel's or
# systemd's `name[pid]:`.
_PROCESS = re.compile(
    r"^(?:\d{4}-)?\d\d-\d\d \d\d:\d\d:\d\d\.\d+ +(?P<threadtime>\d+)(?: +\d+ [VDIWEFS] |-\d+ )"
    r"|^\d\d:\d\d:\d\d\.\d+ +(?P<studio>\d+)-\d+ "
    r"|^[VDIWEF]/[^(]{1,40}\( *(?P<brief>\d+)\):"
    r"|^\w{3} +\d+ \d\d:\d\d:\d\d \S+ [\w.@-]+\[(?P<syslog>\d+)\]:"
)
# A line below the level of an error: verbose, debug, information or warning.
_QUIET = re.compile(
    r"^(?:\W{0,3}(?:debug\d?|verbose|trace|info|note|notice|hint|warn(?:ing)?|\[?[VDIW]\]?)\b(?![/\\])"
    r"|-- |CMake Warning|.{0,120}(?:<[VDIW]>|\[(?:[VDIW]:|DBG|INF|WRN|DEBUG|INFO|WARN)|: ?warning\b"
    r"| [VDIW] [\w.-]{1,40} *:| [VDIW]  | - (?:WARN(?:ING)?|INFO|DEBUG)\b|[.:]warning:))",
    re.IGNORECASE,
)
_LINE_ENDS = re.compile(r"\r\n?|\n|\x0b|\x0c|\x85|\u2028|\u2029")


@dataclass(frozen=True)
class Line:
    """A line of a log; `number` counts from 1."""

    number: int
    text: str


def is_quiet(text: str) -> bool:
    """Return True if the program itself gives the line a level below an error."""
    return bool(_QUIET.match(text))


def process_of(text: str) -> str:
    """Return the process ID in a line of logcat or of the journal, "" for none."""
    match = _PROCESS.match(text)
    return next((pid for pid in match.groups() if pid), "") if match else ""


def decode(data: bytes) -> str:
    """Decode the bytes of a log: UTF-8, or UTF-16 with a byte order mark.

    Invalid bytes are replaced.
    """
    data = data[:MAX_BYTES]
    if data[:2] in {b"\xff\xfe", b"\xfe\xff"}:
        return data.decode("utf-16", "replace")
    return data.decode("utf-8-sig", "replace")


def lines_of(text: str) -> list[Line]:
    """Return the lines that are not empty, each shortened to MAX_LINE characters."""
    lines = []
    for number, raw in enumerate(_LINE_ENDS.split(text[:MAX_BYTES]), 1):
        clean = harmless(raw[: MAX_LINE * 2])[:MAX_LINE].strip()
        if clean:
            lines.append(Line(number, clean))
    return lines
