"""Reservations of boards by people, and the current holders, in one round trip for each board."""

from __future__ import annotations

import math
import secrets
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from fleet.engine.lease.claims import owner
from fleet.engine.lease.lease import RACES, held_error, race_error, spent_error
from fleet.engine.pool import DeviceResult, PoolOptions, on_every_device
from fleet.engine.session import Session
from fleet.model.command import Command
from fleet.model.errors import InputError
from fleet.model.inventory import Host
from fleet.model.lease import RESERVE, WRITE, LeaseHolder, Spent, human_seconds
from fleet.ops.lease import LeaseAnswer, drop_command, parse_lease, take_command, who_command

LONGEST_SECONDS = 30 * 86400  # a month; a board that is reserved for longer has left the pool


@dataclass(frozen=True)
class BoardUse:
    """The holders of a board, and the files that block it."""

    holders: tuple[LeaseHolder, ...]
    blocked: tuple[Spent, ...]


def who(
    hosts: Sequence[Host], *, parallel: int, accept_new: bool = False
) -> list[DeviceResult[BoardUse]]:
    """Return the holders of each board and the spent leases that block it. Only reads."""

    def work(session: Session, result: DeviceResult[BoardUse]) -> None:
        answer = _asked(session, who_command())
        result.outcome = "ok"
        lines = [holder.describe() for holder in answer.held]
        lines += [spent.describe() for spent in answer.spent]
        result.text = "; ".join(lines) or "free"
        result.value = BoardUse(tuple(answer.held), tuple(answer.spent))

    options = PoolOptions[BoardUse](parallel=parallel, accept_new=accept_new)
    return on_every_device(hosts, work, lambda _: None, options)


def reserve(
    hosts: Sequence[Host], seconds: float, reason: str, *, parallel: int
) -> list[DeviceResult[None]]:
    """Reserve the boards against writes of others. One's own reservation is replaced.

    Raises InputError for more than LONGEST_SECONDS. A board of another holder fails with
    LeaseHeldError.
    """
    ttl = math.ceil(seconds)
    if ttl > LONGEST_SECONDS:
        raise InputError(
            f"a reservation of {human_seconds(ttl)} is too long: the limit is "
            f"{human_seconds(LONGEST_SECONDS)}",
            hint="reserve for a shorter time, and renew the reservation before it ends",
        )

    def command() -> Command:
        return take_command(RESERVE, owner(), reason, "", token=secrets.token_hex(16), ttl=ttl)

    def work(session: Session, result: DeviceResult[None]) -> None:
        answer = _settled(session, command)
        if answer.spent:
            raise spent_error(answer.spent[0], "reserve")
        if answer.held:
            raise held_error(session.host.name, answer.held[0], "reserve")
        result.outcome = "changed"
        result.text = f"reserved for {human_seconds(ttl)}"

    return on_every_device(hosts, work, lambda _: None, PoolOptions(parallel=parallel))


def release(hosts: Sequence[Host], *, force: bool, parallel: int) -> list[DeviceResult[None]]:
    """End one's own reservations, or with `force` everything that holds the boards.

    A writer whose lease is broken stops before its next step. Without `force`, a foreign
    reservation is a LeaseHeldError, and a running deploy continues.
    """

    def command() -> Command:
        return drop_command(owner(), "reserve --end --force", secrets.token_hex(16), force=force)

    def work(session: Session, result: DeviceResult[None]) -> None:
        answer = _settled(session, command)
        foreign = [holder for holder in answer.held if holder.kind == RESERVE]
        if foreign:
            raise held_error(session.host.name, foreign[0], "reserve")
        if answer.spent and (force or not answer.dropped):
            raise spent_error(answer.spent[0], "reserve")
        ended = [f"was {holder.describe()}" for holder in answer.dropped]
        writing = [f"still {holder.describe()}" for holder in answer.held if holder.kind == WRITE]
        result.outcome = "changed" if ended else "unchanged"
        result.text = "; ".join([*ended, *writing]) or "the board was not reserved"

    return on_every_device(hosts, work, lambda _: None, PoolOptions(parallel=parallel))


def _asked(session: Session, command: Command) -> LeaseAnswer:
    return parse_lease(session.ask(command, "lease").text, session.host.name)


def _settled(session: Session, command: Callable[[], Command]) -> LeaseAnswer:
    """Repeat the request until no other user tried at the same instant, at most RACES times."""
    for _ in range(RACES):
        answer = _asked(session, command())
        if not answer.raced:
            return answer
    raise race_error()
