"""A point in time that is handed down: no call invents a time limit of its own."""

from __future__ import annotations

import re
import time

from fleet.model.errors import DeadlineError, InputError

LONGEST_SECONDS = 3e8  # ten years: a size that a device reports may make any number of seconds
_UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0}
_DURATION = re.compile(r"^\s*(\d+(?:\.\d+)?)\s*(ms|s|m|h)?\s*$")


def awake_clock() -> float:
    """Seconds that go on while this machine sleeps; time.monotonic stops then."""
    return time.clock_gettime(getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC))


class Deadline:
    """Monotonic deadline. `Deadline(30)` ends in 30 seconds."""

    __slots__ = ("_began", "_end", "seconds")

    def __init__(self, seconds: float) -> None:
        self.seconds = min(seconds, LONGEST_SECONDS)  # waiting for longer raises OverflowError
        self._began = time.monotonic()
        self._end = self._began + self.seconds

    @property
    def remaining(self) -> float:
        """Seconds left, never below 0."""
        return max(0.0, self._end - time.monotonic())

    @property
    def expired(self) -> bool:
        """True once no time is left."""
        return self.remaining <= 0.0

    def touch(self) -> None:
        """Bytes moved. A plain deadline does not care; see Stall."""

    @property
    def waited(self) -> str:
        """The seconds that were waited for, for a message: at most those that were allowed."""
        spent = min(self.seconds, time.monotonic() - self._began)
        return f"{round(spent, 1 if spent < 10 else None):g}"

    def check(self, doing: str) -> None:
        """Raise DeadlineError naming what was being done, when no time is left."""
        if self.expired:
            raise DeadlineError(f"{doing} did not end within {self.waited} s")


class Stall(Deadline):
    """A deadline that starts again with every byte that moves: for bulk data.

    A transfer may take hours; a link that is silent for `seconds` is dead.
    """

    __slots__ = ()

    def touch(self) -> None:
        """Bytes moved: the full time is left again."""
        self._began = time.monotonic()
        self._end = self._began + self.seconds


def parse_duration(text: str | float) -> float:
    """Seconds from `90`, `"90s"`, `"1.5m"`, `"2h"`, `"300ms"`; InputError otherwise."""
    if isinstance(text, int | float):
        seconds = float(text)
    else:
        match = _DURATION.match(text)
        if not match:
            raise InputError(f"'{text}' is not a duration", hint="write it like 90s, 5m or 1h")
        seconds = float(match[1]) * _UNITS[match[2] or "s"]
    if seconds <= 0:
        raise InputError(
            f"the duration must be more than 0, not {text}", hint="write it like 90s or 5m"
        )
    return seconds
