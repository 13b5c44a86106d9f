"""The guard of a write lease without a POSIX shell; see device/sh/lease/lease_guard.sh."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Callable

from fleet.device.store.clock import FailedError, boot, line_of, number, uptime
from fleet.device.store.lease import Leases, keep

LOST = 113


class Guard:
    """A step under a write lease. Nothing starts under a lost lease."""

    def __init__(self, folder: str, n: str, token: str, ttl: str, mode: str) -> None:
        self.folder, self.n, self.token = folder, int(n), token
        self.ttl, self.mode, self.frees = int(ttl), mode.rstrip("f"), mode.endswith("f")
        self.me = f"{folder}/write.{n}"

    def look(self) -> tuple[bool, str]:
        """Return (whether the lease is active, its token), and set boot and time."""
        self.boot, self.now = boot(), uptime()
        left = False
        for name in ("keep", "step"):
            words = (line_of(f"{self.me}/{name}") + ["", ""])[:2]
            left = left or (words[0] == self.boot and number(words[1]) > self.now)
        return left, (line_of(self.me + "/owner") + [""] * 5)[4]

    def lost(self, why: str) -> int:
        """Report the loss and return the status."""
        with contextlib.suppress(OSError, FailedError):
            top = Leases(self.folder).highest("write")
            by = " ".join(line_of(f"{self.folder}/write.{top}/owner"))
            sys.stderr.write(f"fleet-lease-lost {self.token} {why} {by}\n")
            return LOST
        sys.stderr.write(f"fleet-lease-lost {self.token} {why}\n")
        return LOST

    def begin(self) -> int:
        """Renew the lease, then check that it is still the newest; return 0 to continue."""
        left, token = self.look()
        if token != self.token:
            return self.lost("gone")
        if os.path.exists(self.me + "/released"):
            return self.lost("released")
        if not left and self.mode != "revive":
            return self.lost("expired")
        until = self.now + self.ttl + 1
        if self.mode in ("keep", "revive"):
            keep(self.me + "/keep", f"{self.boot} {until} {self.ttl}\n")
        else:
            until = max(until, self.now + int(self.mode) + 1)
            keep(self.me + "/step", f"{self.boot} {until} run {os.getpid()}\n")
        if Leases(self.folder).highest("write") != self.n:
            return self.lost("taken")
        return 0

    def end(self, status: int) -> None:
        """End the step, unless a later step runs already. A lost lease stays lost."""
        left, _ = self.look()
        mine = (line_of(self.me + "/step") + [""] * 4)[3] == str(os.getpid())
        if mine and left and self.frees and status == 0:
            keep(self.me + "/released", "")
            sys.stderr.write(f"fleet-lease-freed {self.token}\n")
        elif mine and left:
            until = self.now + self.ttl + 1
            keep(self.me + "/step", f"{self.boot} {until} idle 0\n")


def guarded(words: tuple[str, ...], then: Callable[[tuple[str, ...]], int]) -> int:
    """Run `lease_guard`: five words, then those of the step, which `then` runs."""
    guard = Guard(*words[:5])
    try:
        status = guard.begin()
    except OSError as error:
        sys.stderr.write(f"the lease cannot be renewed in {guard.me}: {error}\n")
        return 74
    if status or not words[5:]:
        return status
    done = then(words[5:])
    with contextlib.suppress(OSError, FailedError):
        guard.end(done)
    return done
