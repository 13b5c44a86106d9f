"""The write lease of one session: taken late, renewed in the background, checked before writes.

The board decides (fleet/device/sh/lease/lease_guard.sh); the host's own clock only makes sure that
a workstation which was stopped or asleep sends nothing at all.
"""

from __future__ import annotations

import contextlib
import math
import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from typing import Protocol, Self

from fleet.device.shell import failed
from fleet.engine.claims import Claim, forget, has_ended, owner
from fleet.model.command import Command, Result
from fleet.model.deadline import Deadline, awake_clock
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
    GIVEN_BACK,
    LOST_STATUS,
    TAG,
    LeaseAnswer,
    dead_word,
    free_command,
    freed,
    guard,
    lost_words,
    parse_lease,
    take_command,
)
from fleet.transport.base import Transport

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
        self._claim: Claim | None = None
        self._ticket: Ticket | None = None
        self._guards: dict[int | str, Command] = {}
        self._good = 0.0
        self._lost = ""
        self._refused = False  # by the board, which knows; our own clock does not
        self._unsure = False  # asked for, and no answer said whether it is ours
        self._ending = False  # a step was begun behind which the board gives it back
        self._ended: Ticket | None = None  # what such a step had; the link broke under it
        self._deaf = 0.0  # when a renewal failed for want of a link
        self._paused = False
        self._done = False
        self._wake = threading.Event()
        self._thread = threading.Thread(target=self._keep, daemon=True)

    def __enter__(self) -> Self:
        self._session.lease = self
        return self

    def __exit__(self, *_: object) -> None:
        self._session.lease = None
        self._done = True
        self._wake.set()
        if self._thread.is_alive():
            self._thread.join(FREE_SECONDS)
        given_back = self._refused or (self._ticket is None and not self._unsure)
        ticket = self._ticket or self._ended
        if ticket is not None and not self._lost and not self.late:
            with contextlib.suppress(FleetError):
                command = free_command(ticket)
                said = self._session.transport.run(command, Deadline(FREE_SECONDS)).text
                given_back = parse_lease(said, self._session.host.name).freed
        if self._claim is not None:
            _TAKEN.pop(self._claim.token, None)
            self._claim.close(given_back=given_back)

    @property
    def ticket(self) -> Ticket | None:
        """What was taken; None before the first step that writes."""
        return self._ticket

    @property
    def late(self) -> bool:
        """True when the lease was not renewed for so long that it may be another's."""
        had = self._ticket or self._ended
        return had is not None and awake_clock() - self._good >= self._ttl

    @property
    def gone(self) -> bool:
        """True when nothing may be sent any more."""
        return bool(self._lost) or self.late

    def heard(self, moved: float) -> float:
        """Seconds until a link on which bytes moved at `moved` is to be looked at again; 0: dead.

        A device that is silent for half of that time, because it hashes or writes, is asked.
        """
        quiet = awake_clock() - max(self._good, moved)
        if quiet < self._stall / 2:
            return self._stall / 2 - quiet
        self._wake.set()
        return max(0.0, self._stall - quiet)

    def check(self) -> None:
        """Raise when nothing may be sent any more: LeaseLostError, or ConnectionLostError where
        the lease has ended because the link was dead. Sends nothing itself.
        """
        if not self.gone:
            return
        host = self._session.host.name
        # Tried late and in vain: this workstation was awake, and it was the link.
        if not self._lost and self._deaf > self._good + self._ttl / 2:
            raise ConnectionLostError(
                f"the device did not answer for {self._ttl} s, so fleet no longer has exclusive "
                "access to it",
                hint="check power and cable of the device, then deploy again",
            )
        self._lost = self._lost or f"fleet could not renew the lease within {self._ttl} s"
        raise LeaseLostError(
            f"fleet no longer has exclusive access to the board: {self._lost}",
            hint=f"fleet reserve --list {host} (shows who uses it); deploy again when it is free",
        )

    def take(self, then: Command | None = None, stdin: Sequence[Chunk] = ()) -> Result | None:
        """Take the lease now, before the first step that writes, so that a look holds.

        `then`, a look, runs in the same round trip and reads `stdin`: its result with the
        answer of the lease before it. None where the lease was taken before, and nothing ran.
        """
        self.check()
        return self._take(then, stdin) if self._ticket is None else None

    def follows(self, generation: int | None) -> bool:
        """True when nobody wrote between a look that saw `generation` and this lease."""
        return self._ticket is not None and self._ticket.generation - 1 == generation

    def guarded(self, command: Command, seconds: float = 0.0, *, ends: bool = False) -> Command:
        """The command as it may run: taken is the lease first, if it was not yet.

        While it runs the lease holds for `seconds`, even without this workstation. `ends`: where
        it succeeds the device gives the lease back in the same round trip.
        """
        self.take()
        if self._ticket is None:
            raise LeaseLostError("fleet no longer has exclusive access to this board")
        self._ending = ends
        mode = math.ceil(seconds)
        return self._guard(self._ticket, f"{mode}f" if ends else mode).then(command)

    def judge(self, result: Result, stderr: str, began: float) -> None:
        """Look at how a guarded command ended. Raises LeaseLostError when it was refused."""
        if self._ticket is None:
            return
        if result.status == LOST_STATUS:
            why = lost_words(self._ticket, result.status, stderr)
            if why == GIVEN_BACK and self._ended is not None:
                self._ticket = None
                raise ConnectionLostError(
                    "the device is still busy with a step that fleet started before the "
                    "connection broke"
                )
            self._heard(why)
            if self._refused:
                self.check()
        self._good = max(self._good, began)
        if self._ending and freed(self._ticket, stderr):
            self._ticket = self._ended = None
        self._ending = False

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
        self._paused = True
        try:
            yield
        finally:
            self._paused = False
            self._good = max(self._good, awake_clock())
        if self._ticket is not None:
            self._renew(self._ticket, revive=True)
            self.check()

    @contextlib.contextmanager
    def reconnecting(self) -> Iterator[None]:
        """Inside, the connection is made anew: what the renewing thread hears does not count."""
        before, self._paused = self._paused, True
        if self._ending:  # given back or not: the next step asks
            self._ended = self._ticket or self._ended
            self._ticket, self._ending, self._unsure = None, False, True
        try:
            yield
        finally:
            self._paused = before

    def revive(self) -> None:
        """The board rebooted by itself: the lease is ours again, if nobody took it since."""
        if self._ticket is not None and not self.gone:
            self._renew(self._ticket, revive=True)

    def _take(self, then: Command | None = None, stdin: Sequence[Chunk] = ()) -> Result | None:
        session, host = self._session, self._session.host.name
        claim = self._claim = self._claim or Claim()
        dead, races = "-", RACES
        patience: Deadline | None = None
        while True:
            began = awake_clock()
            result, answer = self._ask(claim, dead, then, stdin)
            generation = answer.got
            holder = answer.held[0] if answer.held else None
            if holder is not None and holder.token == claim.token:
                generation = holder.generation  # taken before, and the answer was lost
            if generation is not None:
                break
            if holder is None:
                races -= 1
                if not races:
                    raise LeaseHeldError(
                        "several users are trying to take this board at the same time",
                        hint="run the command again",
                    )
                time.sleep(LOOK_SECONDS * (1 - races / RACES))
            elif (other := _TAKEN.get(holder.token, host)) != host:
                raise _twice_error(host, other)
            elif holder.kind == RESERVE or not has_ended(holder.token):
                raise held_error(host, holder)
            elif holder.busy:
                patience = patience or self._wait_for(holder)
                if patience.expired:
                    raise held_error(host, holder)
                time.sleep(LOOK_SECONDS)
            else:
                dead = dead_word(holder)
        if dead != "-":
            session.warn(
                "the last fleet process on this board ended without releasing the board; fleet "
                "released it"
            )
            forget(dead.partition(":")[2])
        self._good = began
        self._ticket = Ticket(answer.place, generation, claim.token, self._ttl)
        _TAKEN[claim.token] = host
        self._guards.clear()
        if not self._thread.is_alive():
            self._thread.start()
        return result if answer.got is not None else None

    def _ask(
        self, claim: Claim, dead: str, then: Command | None, stdin: Sequence[Chunk]
    ) -> tuple[Result, LeaseAnswer]:
        command = take_command(
            WRITE,
            owner(),
            self._reason,
            self._run_id,
            token=claim.token,
            ttl=self._ttl,
            dead=dead,
            then=then,
        )
        host, self._unsure = self._session.host.name, True
        result = self._session.run(command, "lease", stdin=stdin)
        # A whole answer says whether it is ours.
        self._unsure = "end" not in result.text.partition(TAG)[2].splitlines()
        if not result.ok and TAG not in result.text:
            raise failed(result, "lease", host)
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
        """Renew when it is due; after a failure, or when the link is silent, sooner.

        Ends when the lease is lost.
        """
        wait = self._due
        while True:
            self._wake.wait(wait)
            self._wake.clear()
            if self._done:
                return
            if self._paused or self._ticket is None:
                continue
            if self.gone:
                return
            try:
                self._renew(self._ticket)
                wait = self._due
            except FleetError as error:  # the link is down; who writes next sees that
                wait = self._ttl / 12
                if isinstance(error, TransportError) and not self.late:
                    self._deaf = awake_clock()

    def _renew(self, ticket: Ticket, *, revive: bool = False) -> None:
        began = awake_clock()
        command = self._guard(ticket, "revive" if revive else "keep")
        result = self._session.transport.run(command, Deadline(max(1.0, self._stall)))
        if self._paused and not revive:
            return
        if result.status == LOST_STATUS:
            why = lost_words(ticket, result.status, result.error_text)
            if not (self._ending and why == GIVEN_BACK):
                self._heard(why)
        elif result.ok:
            self._good = max(self._good, began)

    def _guard(self, ticket: Ticket, mode: int | str) -> Command:
        if mode not in self._guards:
            self._guards[mode] = guard(ticket, mode)
        return self._guards[mode]

    def _heard(self, why: str) -> None:
        if why:
            self._lost, self._refused = why, True
