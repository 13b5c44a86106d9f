"""The write lease of one session: acquired late, renewed in the background, checked before writes.

The board decides (fleet/device/sh/lease/lease_guard.sh). The host's own clock only ensures that a
workstation which was stopped or asleep sends nothing.
"""

from __future__ import annotations

import contextlib
import math
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Concatenate, ParamSpec, Protocol, Self

from fleet.device.shell import failed
from fleet.engine.lease import states
from fleet.engine.lease.claims import OwnerToken, forget, has_ended, owner
from fleet.engine.lease.states import Standing, State
from fleet.model.command import Command, Result
from fleet.model.deadline import Deadline, Stall, awake_clock
from fleet.model.errors import (
    ConnectionLostError,
    FleetError,
    LeaseHeldError,
    LeaseLostError,
    TransportError,
)
from fleet.model.files import Chunk
from fleet.model.inventory import Host
from fleet.model.lease import RESERVE, WRITE, LeaseHolder, Spent, Ticket
from fleet.ops.lease import (
    LOST_STATUS,
    TAG,
    LeaseAnswer,
    dead_word,
    free_command,
    freed,
    guard,
    is_whole,
    lost_words,
    parse_lease,
    take_command,
)
from fleet.transport.base import Transport

P = ParamSpec("P")
# The kernel drops a connection without acknowledgements after 30 s (transport/ssh.py). Data in
# flight therefore cannot arrive after the end of the lease.
TTL_SECONDS = 60
RENEW_SECONDS = TTL_SECONDS / 3
STALL_SECONDS = TTL_SECONDS / 3  # the rest of the time is for a new connection
FREE_SECONDS = 10.0
RACES = 5  # tries if several users want the board at the same instant
ENDED_SECONDS = TTL_SECONDS + 5.0  # a transfer of a killed process does not hold longer
LOOK_SECONDS = 0.5
_TAKEN: dict[str, str] = {}  # the token of each lease of this process → the name of its device


def held_error(host: str, holder: LeaseHolder, step: str = "lease") -> LeaseHeldError:
    """Return the error that names the holder of the board."""
    return LeaseHeldError(
        f"the board is {holder.describe()}",
        step=step,
        hint=f"wait, or ask {holder.owner}; fleet reserve --list {host} (shows who uses "
        f"the board), fleet reserve --end {host} --force (ends that use)",
    )


def _twice_error(host: str, other: str) -> LeaseHeldError:
    """Return the error for a board on which this process works under another name."""
    return LeaseHeldError(
        f"{host} and {other} are one device, and fleet already works on it as {other}",
        step="lease",
        hint=f"remove one of the two names from the inventory, or leave {host} out with --limit",
    )


def spent_error(spent: Spent, step: str = "lease") -> LeaseHeldError:
    """Return the error that names the folder that blocks every lease."""
    words = f"the board is {spent.describe()}"
    return LeaseHeldError(words, step=step, hint=spent.cure())


def race_error() -> LeaseHeldError:
    """Return the error for a board that others repeatedly acquire at the same instant."""
    return LeaseHeldError(
        "several users are trying to take this board at the same time", hint="run the command again"
    )


class LeasedSession(Protocol):
    """The session that a lease needs."""

    host: Host
    transport: Transport
    lease: Lease | None

    def warn(self, text: str) -> None:
        """Report a warning about this device to the listener."""

    def run(self, command: Command, step: str, *, stdin: Iterable[Chunk] = ()) -> Result:
        """Run a command and return its result. No exit status raises an error."""


class Lease:
    """A context manager for the lease of a session. Steps that write are guarded in it.

    Nothing is sent before the first such step. That step raises LeaseHeldError if another user
    holds the board. The first step after the loss of the lease raises LeaseLostError. A thread
    renews the lease over the session's own connection. The lease is released at the end.
    """

    def __init__(
        self, session: LeasedSession, reason: str, run_id: str = "", *, ttl: int | None = None
    ) -> None:
        self._session = session
        self._reason = reason
        self._run_id = run_id
        self._ttl = ttl or TTL_SECONDS
        # a shorter lease is renewed proportionally earlier
        self._due = RENEW_SECONDS * self._ttl / TTL_SECONDS
        self._stall = STALL_SECONDS * self._ttl / TTL_SECONDS
        self._claim: OwnerToken | None = None
        self._lock = threading.Lock()
        self._standing = Standing()
        self._wake = threading.Event()
        self._thread = threading.Thread(target=self._keep, daemon=True)

    def __enter__(self) -> Self:
        self._session.lease = self
        return self

    def __exit__(self, *_: object) -> None:
        self._session.lease = None
        self._change(states.closed)
        self._wake.set()
        if self._thread.is_alive():
            self._thread.join(FREE_SECONDS)
        now = self._standing
        given_back = now.state in {State.FREE, State.LOST}
        if now.returnable is not None and not self.late:
            with contextlib.suppress(FleetError):
                command = free_command(now.returnable)
                text = self._session.transport.run(command, Deadline(FREE_SECONDS)).text
                given_back = parse_lease(text, self._session.host.name).freed
        if self._claim is not None:
            _TAKEN.pop(self._claim.token, None)
            self._claim.close(given_back=given_back)

    def _change(
        self, step: Callable[Concatenate[Standing, P], Standing], *args: P.args, **more: P.kwargs
    ) -> Standing:
        """Make the transition `step` unless the lease is over; return the new standing."""
        with self._lock:
            if not self._standing.over:
                self._standing = step(self._standing, *args, **more)
            return self._standing

    @property
    def ticket(self) -> Ticket | None:
        """The acquired ticket, None before the first step that writes."""
        return self._standing.held

    @property
    def late(self) -> bool:
        """True if the lease was not renewed for so long that another user may have it."""
        return self._standing.late(awake_clock())

    @property
    def gone(self) -> bool:
        """True if nothing may be sent any more."""
        return self._standing.over or self.late

    def patience(self, moved: float) -> float:
        """Return the seconds until the link should be checked again, or 0 if it is considered dead.

        `moved` is the time of the last byte. A device that is silent for half of the limit, because
        it hashes or writes, is asked.
        """
        quiet = awake_clock() - max(self._standing.renewed, moved)
        if quiet < self._stall / 2:
            return self._stall / 2 - quiet
        self._wake.set()
        return max(0.0, self._stall - quiet)

    def check(self) -> None:
        """Raise an error if nothing may be sent any more; send nothing.

        The error is LeaseLostError, or ConnectionLostError if the lease ended because the link was
        dead.
        """
        when = awake_clock()
        now = self._change(states.lapsed, when)
        if now.over:
            raise LeaseLostError(
                f"fleet no longer has exclusive access to the board: {now.why}",
                hint=f"fleet reserve --list {self._session.host.name} (shows who uses it); "
                "deploy again when it is free",
            )
        if now.late(when):
            raise ConnectionLostError(
                f"the device did not answer for {self._ttl} s, so fleet no longer has exclusive "
                "access to it",
                hint="check power and cable of the device, then deploy again",
            )

    def take(self, then: Command | None = None, stdin: Sequence[Chunk] = ()) -> Result | None:
        """Acquire the lease now, before the first step that writes, so that a state stays valid.

        `then` is a reading command that runs in the same round trip with `stdin`. Its result
        follows the answer of the lease. Return None if the lease was acquired before, and nothing
        ran.
        """
        self.check()
        return self._take(then, stdin) if self.ticket is None else None

    def follows(self, generation: int | None) -> bool:
        """Return True if nobody wrote between a state that had `generation` and this lease."""
        return self.ticket is not None and self.ticket.generation - 1 == generation

    def guarded(self, command: Command, seconds: float = 0.0, *, ends: bool = False) -> Command:
        """Return the command wrapped in the lease guard; first acquire a lease that is not held.

        During the command the lease holds for `seconds`, even without this workstation. With `ends`
        the device releases the lease in the same round trip if the command succeeds.
        """
        self.check()
        while (ticket := self._change(states.begun, ends).held) is None:
            self.take()
        mode = math.ceil(seconds)
        return guard(ticket, f"{mode}f" if ends else mode).then(command)

    def judge(self, result: Result, stderr: str, began: float) -> None:
        """Check the end of a guarded command that was sent at `began`.

        Raises LeaseLostError if the guard refused it, and ConnectionLostError if an earlier step
        still runs on the device.
        """
        ticket = self._standing.ticket
        if ticket is None:
            return
        why = ""
        if result.status == LOST_STATUS:
            why = lost_words(ticket, result.status, stderr)
        if not why:
            ending = self._standing.state is State.ENDING
            self._change(states.ended, began, ending and freed(ticket, stderr))
            return
        if self._change(states.lost, ticket, why, renewal=False).state is State.FREE:
            raise ConnectionLostError(
                "the device is still busy with a step that fleet started before the "
                "connection broke"
            )
        self.check()

    def broken(self) -> None:
        """Record that a guarded command got no answer. Raises the errors of `check`."""
        self._change(states.broken)
        self.check()

    def feed(self, source: Iterable[Chunk]) -> Iterator[Chunk]:
        """Yield the same chunks; raise the error of `check` when the lease is lost."""
        for chunk in source:
            self.check()
            yield chunk

    @contextlib.contextmanager
    def over_reboot(self) -> Iterator[None]:
        """Keep the lease during a reboot of the board by its holder.

        Raises LeaseLostError if another user acquired it in between.
        """
        self._change(states.paused)
        try:
            yield
        finally:
            self._change(states.resumed, still_paused=False)
            self._change(states.renewed, awake_clock())
        self.revive()
        self.check()

    @contextlib.contextmanager
    def reconnecting(self) -> Iterator[None]:
        """Ignore answers to renewals while the connection is opened again."""
        before = self._standing.paused
        self._change(states.paused)
        try:
            yield
        finally:
            self._change(states.resumed, still_paused=before)

    def revive(self) -> None:
        """Renew the lease after the board rebooted by itself, if nobody acquired it since."""
        if self.ticket is not None and not self.gone:
            self._renew(self.ticket, revive=True)

    def _take(self, then: Command | None, stdin: Sequence[Chunk]) -> Result | None:
        claim = self._claim = self._claim or OwnerToken()
        host, dead = self._session.host.name, ""
        races, patience = RACES, None
        while True:
            began = awake_clock()
            result, answer = self._ask(claim, dead, then, stdin)
            before = [held.generation for held in answer.held[:1] if held.token == claim.token]
            # acquired before, but the answer was lost
            generation = before[0] if before else answer.got
            if generation is not None:
                break
            if not answer.held:
                races -= 1
                if not races:
                    raise race_error()
                time.sleep(LOOK_SECONDS * (1 - races / RACES))
                continue
            holder = answer.held[0]
            if (other := _TAKEN.get(holder.token, host)) != host:
                raise _twice_error(host, other)
            if holder.kind == RESERVE or not has_ended(holder.token):
                raise held_error(host, holder)
            if not holder.busy:
                dead = dead_word(holder)
                continue
            patience = patience or self._wait_for(holder)
            if patience.expired:
                raise held_error(host, holder)
            time.sleep(LOOK_SECONDS)
        if dead:
            self._session.warn(
                "the last fleet process on this board ended without releasing the board; fleet "
                "released it"
            )
            forget(dead.partition(":")[2])
        self._change(states.taken, Ticket(answer.place, generation, claim.token, self._ttl), began)
        _TAKEN[claim.token] = host
        if not self._thread.is_alive():
            self._thread.start()
        return result if answer.got is not None else None

    def _ask(
        self, claim: OwnerToken, dead: str, then: Command | None, stdin: Sequence[Chunk]
    ) -> tuple[Result, LeaseAnswer]:
        command = take_command(
            WRITE,
            owner(),
            self._reason,
            self._run_id,
            token=claim.token,
            ttl=self._ttl,
            dead=dead or "-",
            then=then,
        )
        host = self._session.host.name
        self._change(states.asked)
        result = self._session.run(command, "lease", stdin=stdin)
        if not result.ok and TAG not in result.text:
            raise failed(result, "lease", host)
        if is_whole(result.text):
            self._change(states.answered)
        answer = parse_lease(result.text, host)
        if answer.spent:
            raise spent_error(answer.spent[0])
        return result, answer

    def _wait_for(self, holder: LeaseHolder) -> Deadline:
        """Report which holder is waited for; return the deadline of the wait."""
        seconds = min(float(holder.left), ENDED_SECONDS)
        self._session.warn(
            f"the board is {holder.describe()}; that process ended, but its last step still "
            f"runs on the board, so fleet waits up to {seconds:.0f} s"
        )
        return Deadline(seconds + 2 * LOOK_SECONDS)

    def _keep(self) -> None:
        wait: float | None = self._due
        while wait is not None:
            self._wake.wait(wait)
            self._wake.clear()
            wait = self._tend()

    def _tend(self) -> float | None:
        """Renew the lease if it is held; return the seconds until the next renewal.

        The time is shorter after a failure. None ends the renewal: the lease is lost or was closed.
        """
        now = self._standing
        if now.closed or now.over:
            return None
        if now.paused or now.held is None:
            return self._due
        if now.late(awake_clock()):
            return None
        try:
            self._renew(now.held)
        except FleetError as error:  # the link is down; the next write notices it
            if isinstance(error, TransportError):
                self._change(states.unheard, awake_clock())
            return self._ttl / 12
        return self._due

    def _renew(self, ticket: Ticket, *, revive: bool = False) -> None:
        began = awake_clock()
        command = guard(ticket, "revive" if revive else "keep")
        result = self._session.transport.run(command, Deadline(max(1.0, self._stall)))
        if why := lost_words(ticket, result.status, result.error_text):
            self._change(states.lost, ticket, why, renewal=not revive)
        elif result.ok:
            self._change(states.renewed, began, paused=revive)


class LeasedStall(Stall):
    """A stall deadline that also ends with the lease or with a dead link.

    A device that answers has `seconds` without a byte, because it may be hashing. A device that
    does not even answer a renewal has STALL_SECONDS, which is shorter than the lease.
    """

    __slots__ = ("_lease", "_moved")

    def __init__(self, seconds: float, lease: Lease) -> None:
        super().__init__(seconds)
        self._lease = lease
        self._moved = awake_clock()

    def touch(self) -> None:
        """Note that bytes moved."""
        super().touch()
        self._moved = awake_clock()

    @property
    def remaining(self) -> float:
        """The seconds until the next check, 0 if no time or no lease is left."""
        if self._lease.gone:
            return 0.0
        return min(super().remaining, self._lease.patience(self._moved))
