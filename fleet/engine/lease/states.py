"""The states of a write lease as this process knows it, and the transitions between them.

`Standing` is all that the worker and the renewing thread share. It is immutable: a transition is a
function that returns the next one, and `Lease` swaps them under its one lock; LOST and LAPSED are
for good. The board decides who may write (fleet/device/sh/lease/lease_guard.sh); a state says what
this process may still send.

    FREE      asked → ASKED
    ASKED     answered → FREE, then taken → HELD if it is ours; an answer that was cut leaves it
    HELD      begun → ENDING, if the board gives the lease back behind the step
    ENDING    ended → FREE, or HELD if the step failed; broken → DOUBTFUL
    DOUBTFUL  asked → ASKED
    LOST      the board refused a step or a renewal; nothing more is sent
    LAPSED    by our own clock nothing renewed it in time; nothing more is sent
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import Enum, auto

from fleet.model.lease import Ticket
from fleet.ops.lease import GIVEN_BACK


class State(Enum):
    """The knowledge of this process about its lease."""

    FREE = auto()
    ASKED = auto()
    HELD = auto()
    ENDING = auto()
    DOUBTFUL = auto()
    LOST = auto()
    LAPSED = auto()


_OURS = frozenset({State.HELD, State.ENDING})
_OURS_OR_DOUBTFUL = _OURS | {State.DOUBTFUL}
_LAST = frozenset({State.LOST, State.LAPSED})


@dataclass(frozen=True)
class Standing:
    """A state with its details. Times are seconds of `awake_clock`.

    `doubted` is a ticket whose last step may still run behind a broken connection, and then release
    the lease. While `paused`, the connection is being opened again, and answers to renewals do not
    count.
    """

    state: State = State.FREE
    ticket: Ticket | None = None  # the last acquired ticket
    doubted: Ticket | None = None
    renewed: float = 0.0  # when the last accepted command was sent
    unheard: float = 0.0  # when a renewal last failed because of the link
    paused: bool = False
    closed: bool = False  # the work under the lease has ended
    why: str = ""  # the reason of LOST or LAPSED, for people

    @property
    def held(self) -> Ticket | None:
        """The ticket while the lease is ours, None otherwise."""
        return self.ticket if self.state in _OURS else None

    @property
    def returnable(self) -> Ticket | None:
        """The ticket while the lease is ours or may be ours, None otherwise."""
        return self.ticket if self.state in _OURS_OR_DOUBTFUL else None

    @property
    def over(self) -> bool:
        """True if no command can bring the lease back."""
        return self.state in _LAST

    def late(self, now: float) -> bool:
        """Return True if the lease was not renewed for so long that another user may have it."""
        ticket = self.returnable
        return ticket is not None and now - self.renewed >= ticket.ttl

    def cut_off(self, now: float) -> bool:
        """Return True if the lease is late because of a dead link and not because this workstation
        slept.

        In that case a renewal was tried in the second half of the time.
        """
        ticket = self.ticket
        return (
            ticket is not None and self.late(now) and self.unheard > self.renewed + ticket.ttl / 2
        )


def asked(now: Standing) -> Standing:
    """Record that a command to acquire the lease was sent."""
    return replace(now, state=State.ASKED)


def answered(now: Standing) -> Standing:
    """Record a complete answer. The lease is not ours unless `taken` follows."""
    return replace(now, state=State.FREE)


def taken(now: Standing, ticket: Ticket, began: float) -> Standing:
    """Record a complete answer to a command sent at `began`: the lease is ours."""
    return replace(now, state=State.HELD, ticket=ticket, renewed=began)


def begun(now: Standing, ends: bool) -> Standing:
    """Record a step sent under the lease; with `ends` the board releases the lease after it."""
    if now.state not in _OURS:
        return now
    return replace(now, state=State.ENDING if ends else State.HELD)


def ended(now: Standing, began: float, freed: bool) -> Standing:
    """Record the end of the step sent at `began`; `freed`: the lease was released."""
    after = renewed(now, began, paused=True)
    if now.state is not State.ENDING:
        return after
    return replace(after, state=State.FREE if freed else State.HELD)


def renewed(now: Standing, began: float, paused: bool = False) -> Standing:
    """Record that the board accepted a command sent at `began`; `paused`: even while paused."""
    if now.paused and not paused:
        return now
    return replace(now, renewed=max(now.renewed, began))


def lost(now: Standing, ticket: Ticket, why: str, renewal: bool) -> Standing:
    """Record that the board refused a step or a renewal under `ticket`."""
    told_by_the_step = why == GIVEN_BACK and now.state is State.ENDING
    if now.held != ticket or (renewal and (now.paused or told_by_the_step)):
        return now
    if why == GIVEN_BACK and now.doubted == ticket:
        return replace(now, state=State.FREE)
    return replace(now, state=State.LOST, why=why)


def unheard(now: Standing, when: float) -> Standing:
    """Record a renewal that failed because of the link, unless the lease is late already."""
    return now if now.late(when) else replace(now, unheard=when)


def lapsed(now: Standing, when: float) -> Standing:
    """Return LAPSED if the lease is late although the link works, else the same standing."""
    if now.ticket is None or not now.late(when) or now.cut_off(when):
        return now
    why = f"fleet could not renew the lease within {now.ticket.ttl} s"
    return replace(now, state=State.LAPSED, why=why)


def broken(now: Standing) -> Standing:
    """Record a step without an answer. The step may have released the lease or not."""
    if now.state is not State.ENDING:
        return now
    return replace(now, state=State.DOUBTFUL, doubted=now.ticket)


def paused(now: Standing) -> Standing:
    """Record that the connection is being closed."""
    return replace(now, paused=True)


def resumed(now: Standing, still_paused: bool) -> Standing:
    """Record that the connection is open again; `still_paused`: an outer pause continues."""
    return replace(now, paused=still_paused)


def closed(now: Standing) -> Standing:
    """Record that the work under the lease has ended."""
    return replace(now, closed=True)
