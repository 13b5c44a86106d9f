"""A point in time that callers pass down, so that no call sets a time limit of its own."""

from __future__ import annotations

import math
import re
import time

from fleet.model.errors import DeadlineError, InputError

LONGEST_SECONDS = 3e8  # ten years; the size that a device reports may lead to any number of seconds
_UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0}
_DURATION = re.compile(r"^\s*(\d+(?:\.\d+)?)\s*(ms|s|m|h)?\s*$")


def awake_clock() -> float:
    """Return seconds that also pass while this machine sleeps; time.monotonic stops then."""
    return time.clock_gettime(getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC))


def utc_text(seconds: float | None = None) -> str:
    """Return seconds since 1970 as text, such as `2026-11-28T09:00:00Z`; None is now."""
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(seconds))


class Deadline:
    """A monotonic deadline. `Deadline(30)` ends in 30 seconds."""

    __slots__ = ("_began", "_end", "_last", "seconds")

    def __init__(self, seconds: float) -> None:
        self.seconds = min(seconds, LONGEST_SECONDS)  # waiting for longer raises OverflowError
        self._began = time.monotonic()
        self._end = self._began + self.seconds
        self._last = math.inf

    def cut(self, seconds: float) -> None:
        """End in at most so many seconds, also where bytes move."""
        self._last = time.monotonic() + seconds
        self._end = min(self._end, self._last)

    @property
    def remaining(self) -> float:
        """The remaining seconds, never below 0."""
        return max(0.0, self._end - time.monotonic())

    @property
    def expired(self) -> bool:
        """True if no time is left."""
        return self.remaining <= 0.0

    def touch(self) -> None:
        """Note that bytes moved. A plain deadline ignores it; see Stall."""

    @property
    def waited(self) -> str:
        """The seconds waited so far, for a message; never more than the limit."""
        spent = min(self.seconds, time.monotonic() - self._began)
        return f"{round(spent, 1 if spent < 10 else None):g}"

    def check(self, doing: str) -> None:
        """Raise DeadlineError that names the activity if no time is left."""
        if self.expired:
            raise DeadlineError(f"{doing} did not end within {self.waited} s")


class Stall(Deadline):
    """A deadline for bulk data that restarts with every byte that moves.

    A transfer may take hours, but a link that is silent for `seconds` is dead.
    """

    __slots__ = ()

    def touch(self) -> None:
        """Note that bytes moved: restart the full time."""
        self._began = time.monotonic()
        self._end = min(self._began + self.seconds, self._last)


def parse_duration(text: str | float) -> float:
    """Return the seconds of `90`, `"90s"`, `"1.5m"`, `"2h"` or `"300ms"`. Raises InputError."""
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
