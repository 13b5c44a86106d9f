"""How long bulk data may be silent under a lease."""

from __future__ import annotations

from fleet.engine.leasing import Lease
from fleet.model.deadline import Stall, awake_clock


class LeasedStall(Stall):
    """A stall deadline that has also ended when the lease has, or when the link is dead.

    A device that answers has `seconds` without a byte, because it may be hashing; one that does
    not even answer a renewal has STALL_SECONDS, and the lease is good for longer than that.
    """

    __slots__ = ("_lease", "_moved")

    def __init__(self, seconds: float, lease: Lease) -> None:
        super().__init__(seconds)
        self._lease = lease
        self._moved = awake_clock()

    def touch(self) -> None:
        """Bytes moved."""
        super().touch()
        self._moved = awake_clock()

    @property
    def remaining(self) -> float:
        """Seconds until it has to be looked at again; 0 once no time is left, or no lease."""
        if self._lease.gone:
            return 0.0
        return min(super().remaining, self._lease.heard(self._moved))
