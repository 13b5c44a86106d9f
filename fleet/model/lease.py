"""Leases as plain data: the right to write to a board for a time."""

from __future__ import annotations

import shlex
from typing import ClassVar

from msgspec import Struct

WRITE, RESERVE = "write", "reserve"


class Ticket(Struct, frozen=True):
    """A write lease that was acquired. `folder` is absolute on the board, `ttl` in seconds.

    `generation` is the fencing token; `token` distinguishes leases with the same number.
    """

    folder: str
    generation: int
    token: str
    ttl: int


class LeaseHolder(Struct, frozen=True):
    """The holder of a board. `kind` is write or reserve; `left` and `age` are seconds.

    `age` is None if the board was rebooted since. `busy` is True if a step of the holder runs
    there.
    """

    kind: str
    generation: int
    owner: str
    reason: str
    run_id: str
    token: str
    left: int
    age: int | None
    busy: bool
    PLAIN: ClassVar[str] = "* -token"

    def describe(self) -> str:
        """Return a text like `reserved by ann@desk, taken 5 s ago, for 1 h 5 min more: camera
        tests`.
        """
        word = "reserved by" if self.kind == RESERVE else "in use by"
        since = f", taken {human_seconds(self.age)} ago" if self.age is not None else ""
        run = f", run {self.run_id}" if self.run_id else ""
        why = f": {self.reason}" if self.reason else ""
        return f"{word} {self.owner}{since}, for another {human_seconds(self.left)}{run}{why}"


class Spent(Struct, frozen=True):
    """A last generation: after it, no lease of its kind can be acquired or broken.

    fleet never reaches it. `maker` is the board user who created the folder, `-` if unknown.
    """

    kind: str
    path: str
    maker: str

    def describe(self) -> str:
        """Return a text that names the blocking user and file."""
        who = "an unknown user" if self.maker == "-" else self.maker
        return (
            f"blocked by {who}: a file in the lease folder {self.path} on the board uses the "
            "highest lease number, so fleet cannot reserve the board"
        )

    def cure(self) -> str:
        """Return the command that removes it.

        Only the maker or root may: the lease folder is sticky.
        """
        who = "root" if self.maker in {"-", "root"} else f"{self.maker} or root"
        return f"on the board, as {who}: rm -r {shlex.quote(self.path)}"


def human_seconds(seconds: int) -> str:
    """Return a duration as `45 s`, `12 min`, `1 h 5 min` or `2 d 3 h`."""
    if seconds < 120:
        return f"{seconds} s"
    minutes = seconds // 60
    if minutes < 120:
        return f"{minutes} min"
    hours, minutes = divmod(minutes, 60)
    if hours < 48:
        return f"{hours} h {minutes} min" if minutes else f"{hours} h"
    days, hours = divmod(hours, 24)
    return f"{days} d {hours} h" if hours else f"{days} d"
