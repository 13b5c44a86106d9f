"""Calls between two rooms of the house, counted while something runs, in all of its threads."""

from __future__ import annotations

import contextlib
import sys
import threading
from collections import Counter
from collections.abc import Iterator
from types import FrameType
from typing import Any

Calls = Counter[tuple[str, str]]


def _place(frame: FrameType | None) -> tuple[str, str]:
    """Room and function of a frame; "" outside of the house."""
    if frame is None:
        return "", ""
    name = str(frame.f_globals.get("__name__", ""))
    parts = name.split(".")
    room = parts[1] if parts[0] == "fleet" and len(parts) > 1 else ""
    return room, f"{name}:{frame.f_code.co_qualname}"


@contextlib.contextmanager
def calls_between(one: str, other: str) -> Iterator[Calls]:
    """Who called whom, either way. That a generator goes on is no call, and what is called once
    for each piece of a file says nothing: EACH.
    """
    found: Calls = Counter()

    def look(frame: FrameType, event: str, _: Any) -> None:
        if event != "call" or frame.f_lasti > 2 * _HEAD:
            return
        (here, name), (there, caller) = _place(frame), _place(frame.f_back)
        if {here, there} == {one, other} and not name.endswith(EACH):
            found[caller, name] += 1

    threading.setprofile(look)
    sys.setprofile(look)
    try:
        yield found
    finally:
        sys.setprofile(None)
        threading.setprofile(None)


EACH = ("_stream.<locals>.count", ":SharedSource.read", ":read_file")
_HEAD = 4  # instructions before the body of a function; a generator that goes on is beyond them
