"""Leases: who may write to a board, and until when. Plain data."""

from __future__ import annotations

import shlex
from typing import ClassVar

from msgspec import Struct

WRITE, RESERVE = "write", "reserve"


class Ticket(Struct, frozen=True):
    """A write lease that was taken. `folder` is absolute on the board, `ttl` in seconds.

    `generation` is the fencing token; `token` tells it from another of the same number.
    """

    folder: str
    generation: int
    token: str
    ttl: int


class LeaseHolder(Struct, frozen=True):
    """Who holds a board. `kind` is write or reserve; `left` and `age` are seconds.

    `age` is None when the board was booted since; `busy`: a step of his runs there now.
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
        """`reserved by ann@desk, taken 5 s ago, for 1 h 5 min more: camera tests`."""
        word = "reserved by" if self.kind == RESERVE else "in use by"
        since = f", taken {human_seconds(self.age)} ago" if self.age is not None else ""
        run = f", run {self.run_id}" if self.run_id else ""
        why = f": {self.reason}" if self.reason else ""
        return f"{word} {self.owner}{since}, for another {human_seconds(self.left)}{run}{why}"


class Spent(Struct, frozen=True):
    """A generation after which there is none: no lease of its kind can be taken or broken.

    Fleet does not get there; `maker` is the user of the board who made the folder, `-` unknown.
    """

    kind: str
    path: str
    maker: str

    def describe(self) -> str:
        """Who is in the way, and with what."""
        who = "an unknown user" if self.maker == "-" else self.maker
        return (
            f"blocked by {who}: a file in the lease folder {self.path} on the board uses the "
            "highest lease number, so fleet cannot reserve the board"
        )

    def cure(self) -> str:
        """What ends it. Nobody else may: the folder of leases is sticky."""
        who = "root" if self.maker in {"-", "root"} else f"{self.maker} or root"
        return f"on the board, as {who}: rm -r {shlex.quote(self.path)}"


def human_seconds(seconds: int) -> str:
    """`45 s`, `12 min`, `1 h 5 min`, `2 d 3 h`."""
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
