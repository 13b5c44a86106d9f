"""The write lease of one session: taken late, renewed in the background, checked before writes.

The board decides (fleet/device/sh/lease/lease_guard.sh); the host's own clock only makes sure that
a workstation which was stopped or asleep sends nothing at all.
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
# The kernel drops a connection that acknowledges nothing for 30 s (transport/ssh.py); what is
# on its way then cannot arrive after the lease has ended.
TTL_SECONDS = 60
RENEW_SECONDS = TTL_SECONDS / 3
STALL_SECONDS = TTL_SECONDS / 3  # what is left is for a new connection
FREE_SECONDS = 10.0
RACES = 5  # tries when several want the board in the same instant
ENDED_SECONDS = TTL_SECONDS + 5.0  # a transfer that a killed process left holds no longer
LOOK_SECONDS = 0.5
_TAKEN: dict[str, str] = {}  # the token of each lease of this process → the name of its device


def held_error(host: str, holder: LeaseHolder, step: str = "lease") -> LeaseHeldError:
    """The error that says who is in the way."""
    return LeaseHeldError(
        f"the board is {holder.describe()}",
        step=step,
        hint=f"wait, or ask {holder.owner}; fleet reserve --list {host} (shows who uses "
        f"the board), fleet reserve --end {host} --force (ends that use)",
    )


def _twice_error(host: str, other: str) -> LeaseHeldError:
    """The error for a board on which this very process works under another name."""
    return LeaseHeldError(
        f"{host} and {other} are one device, and fleet already works on it as {other}",
        step="lease",
        hint=f"remove one of the two names from the inventory, or leave {host} out with --limit",
    )


def spent_error(spent: Spent, step: str = "lease") -> LeaseHeldError:
    """The error that says whose folder is in the way of every lease."""
    words = f"the board is {spent.describe()}"
    return LeaseHeldError(words, step=step, hint=spent.cure())


def race_error() -> LeaseHeldError:
    """Return the error for a board that others take in the same instant, again and again."""
    return LeaseHeldError(
        "several users are trying to take this board at the same time", hint="run the command again"
    )


class LeasedSession(Protocol):
    """What a lease needs of its session."""

    host: Host
    transport: Transport
    lease: Lease | None

    def warn(self, text: str) -> None:
        """Tell the listener what a person should know of this device."""

    def run(self, command: Command, step: str, *, stdin: Iterable[Chunk] = ()) -> Result:
        """Run a command whose status the caller judges."""


class Lease:
    """A context manager: inside, `session.lease` is this, and steps that write are guarded.

    Nothing is sent before the first such step. Raises LeaseHeldError there when somebody else
    holds the board, and LeaseLostError at the first step after the lease was lost. A thread
    renews it over the session's own connection; at the end it is given back.
    """

    def __init__(
        self, session: LeasedSession, reason: str, run_id: str = "", *, ttl: int | None = None
    ) -> None:
        self._session = session
        self._reason = reason
        self._run_id = run_id
        self._ttl = ttl or TTL_SECONDS
        self._due = RENEW_SECONDS * self._ttl / TTL_SECONDS  # of a shorter one: as much of it
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
                said = self._session.transport.run(command, Deadline(FREE_SECONDS)).text
                given_back = parse_lease(said, self._session.host.name).freed
        if self._claim is not None:
            _TAKEN.pop(self._claim.token, None)
            self._claim.close(given_back=given_back)

    def _change(
        self, step: Callable[Concatenate[Standing, P], Standing], *args: P.args, **more: P.kwargs
    ) -> Standing:
        """Make a transition; return the standing after it."""
        with self._lock:
            if not self._standing.over:
                self._standing = step(self._standing, *args, **more)
            return self._standing

    @property
    def ticket(self) -> Ticket | None:
        """What was taken; None before the first step that writes."""
        return self._standing.held

    @property
    def late(self) -> bool:
        """True when the lease was not renewed for so long that it may be another's."""
        return self._standing.late(awake_clock())

    @property
    def gone(self) -> bool:
        """True when nothing may be sent any more."""
        return self._standing.over or self.late

    def patience(self, moved: float) -> float:
        """Return the seconds until a link on which bytes moved at `moved` should be checked again;
        0 if it is considered dead.

        A device that is silent for half of that time, because it hashes or writes, is asked.
        """
        quiet = awake_clock() - max(self._standing.renewed, moved)
        if quiet < self._stall / 2:
            return self._stall / 2 - quiet
        self._wake.set()
        return max(0.0, self._stall - quiet)

    def check(self) -> None:
        """Raise when nothing may be sent any more: LeaseLostError, or ConnectionLostError where
        the lease has ended because the link was dead. Sends nothing itself.
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
        """Take the lease now, before the first step that writes, so that a look holds.

        `then`, a look, runs in the same round trip and reads `stdin`: its result with the
        answer of the lease before it. None where the lease was taken before, and nothing ran.
        """
        self.check()
        return self._take(then, stdin) if self.ticket is None else None

    def follows(self, generation: int | None) -> bool:
        """True when nobody wrote between a look that saw `generation` and this lease."""
        return self.ticket is not None and self.ticket.generation - 1 == generation

    def guarded(self, command: Command, seconds: float = 0.0, *, ends: bool = False) -> Command:
        """Return the command wrapped in the guard of the lease. Takes the lease first if need be.

        While it runs the lease holds for `seconds`, even without this workstation. `ends`: where
        it succeeds the device gives the lease back in the same round trip.
        """
        self.check()
        while (ticket := self._change(states.begun, ends).held) is None:
            self.take()
        mode = math.ceil(seconds)
        return guard(ticket, f"{mode}f" if ends else mode).then(command)

    def judge(self, result: Result, stderr: str, began: float) -> None:
        """Look at how a guarded command ended that was sent at `began`.

        Raises LeaseLostError when it was refused.
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
        """A guarded command got no answer. Raises as `check` does."""
        self._change(states.broken)
        self.check()

    def feed(self, source: Iterable[Chunk]) -> Iterator[Chunk]:
        """The same chunks, as long as the lease holds."""
        for chunk in source:
            self.check()
            yield chunk

    @contextlib.contextmanager
    def over_reboot(self) -> Iterator[None]:
        """The holder reboots the board inside; the lease is his again after it.

        Raises LeaseLostError when somebody took it in between.
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
        """Inside, the connection is made anew: what the renewing thread hears does not count."""
        before = self._standing.paused
        self._change(states.paused)
        try:
            yield
        finally:
            self._change(states.resumed, still_paused=before)

    def revive(self) -> None:
        """The board rebooted by itself: the lease is ours again, if nobody took it since."""
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
            generation = before[0] if before else answer.got  # taken before: its answer was lost
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
        """Say what is waited for; how long that is worth it."""
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

        They are fewer after a failure; None ends the renewing: the lease is lost or was closed.
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
        except FleetError as error:  # the link is down; who writes next sees that
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
        return min(super().remaining, self._lease.patience(self._moved))
