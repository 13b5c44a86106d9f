"""The write lease as the steps under it see it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from typing import Protocol

from fleet.model.command import Command, Result
from fleet.model.files import Chunk
from fleet.model.lease import Ticket


class WriteLease(Protocol):
    """`engine.leasing.Lease` is one; a session has it while it works under it."""

    @property
    def ticket(self) -> Ticket | None:
        """What was taken; None before the first step that writes."""

    @property
    def late(self) -> bool:
        """True when the lease was not renewed for so long that it may be another's."""

    @property
    def gone(self) -> bool:
        """True when nothing may be sent any more."""

    def heard(self, moved: float) -> float:
        """Seconds until a link on which bytes moved at `moved` is to be looked at again."""

    def check(self) -> None:
        """Raise when nothing may be sent any more."""

    def take(self, then: Command | None = None, stdin: Sequence[Chunk] = ()) -> Result | None:
        """Take the lease now, before the first step that writes."""

    def follows(self, generation: int | None) -> bool:
        """True when nobody wrote between a look that saw `generation` and this lease."""

    def guarded(self, command: Command, seconds: float = 0.0) -> Command:
        """The command as it may run."""

    def judge(self, result: Result, stderr: str, began: float) -> None:
        """Look at how a guarded command ended."""

    def feed(self, source: Iterable[Chunk]) -> Iterator[Chunk]:
        """The same chunks, as long as the lease holds."""

    def over_reboot(self) -> AbstractContextManager[None]:
        """The holder reboots the board inside."""

    def reconnecting(self) -> AbstractContextManager[None]:
        """Inside, the connection is made anew."""

    def revive(self) -> None:
        """The board rebooted by itself: the lease is ours again, if nobody took it since."""
