"""Who on a LAN has which blob, and who gets it from whom: the number of holders doubles.

Nobody waits for a board that is not at work: a turn is taken by the thread that then sends or
receives, and is given back when that thread leaves it, however it does.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from fleet.model.deadline import Deadline
    from fleet.model.inventory import Host
    from fleet.transport.neighbour import Peer

LEAST_BYTES = 8 << 20  # of a relayed blob; below, the logins cost more than the bytes
STRIKES = 2  # neighbours that could not be logged in to, after which a board serves no more
_POLL_SECONDS = 0.25


def lan_of(host: Host) -> str:
    """The label `lan`: boards with the same one reach each other; "" for none."""
    return host.labels.get("lan", "")


@dataclass(frozen=True)
class BlobHolder:
    """A board that has blobs, and where its store is."""

    peer: Peer
    base_dir: str


@dataclass
class RelayTurn:
    """What a board is to do now: get `sha` from `source`, or from the workstation (None).

    Who has it sets `arrived`. Who could not get it from the source says why by one of the
    methods of Neighbours.
    """

    sha: str
    source: BlobHolder | None
    arrived: bool = False


@dataclass
class _Lan:
    holders: dict[str, dict[str, BlobHolder]] = field(default_factory=dict)
    seeding: set[str] = field(default_factory=set)
    serving: set[str] = field(default_factory=set)
    strikes: dict[str, set[str]] = field(default_factory=dict)
    dumb: set[str] = field(default_factory=set)

    def usable(self, sha: str, name: str) -> list[BlobHolder]:
        found = self.holders.get(sha, {}).values()
        return [holder for holder in found if holder.peer.name not in {name, *self.dumb}]


class Neighbours:
    """One for an operation; used by the threads of all its devices."""

    def __init__(self) -> None:
        self._lans: dict[str, _Lan] = {}
        self._change = threading.Condition()

    def have(self, lan: str, holder: BlobHolder, shas: Iterable[str]) -> None:
        """This board has these blobs."""
        with self._change:
            known = self._lan(lan).holders
            for sha in shas:
                known.setdefault(sha, {})[holder.peer.name] = holder
            self._change.notify_all()

    def damaged(self, lan: str, turn: RelayTurn) -> None:
        """What the source has is not that blob, or no more."""
        if turn.source is not None:
            with self._change:
                self._lan(lan).holders.get(turn.sha, {}).pop(turn.source.peer.name, None)

    def broke(self, lan: str, turn: RelayTurn) -> None:
        """The source, or the way from it, went away while it sent: it serves no more."""
        if turn.source is not None:
            with self._change:
                self._lan(lan).dumb.add(turn.source.peer.name)
                self._change.notify_all()

    def shut_out(self, lan: str, turn: RelayTurn, name: str) -> None:
        """The source could not log in to the board `name`; whose fault it is will show."""
        if turn.source is not None:
            with self._change:
                place, source = self._lan(lan), turn.source.peer.name
                place.strikes.setdefault(source, set()).add(name)
                if len(place.strikes[source]) >= STRIKES:
                    place.dumb.add(source)
                    self._change.notify_all()

    @contextlib.contextmanager
    def turn(
        self,
        lan: str,
        me: BlobHolder,
        wanted: Sequence[str],
        patience: Deadline,
        check: Callable[[], object],
    ) -> Iterator[RelayTurn]:
        """Wait for a neighbour that has one of `wanted` and is free, or for permission to get one
        from the workstation. `check` raises when waiting has no sense any more; after
        `patience` it is the workstation, whoever else gets it from there.
        """
        name = me.peer.name
        with self._change:
            place = self._lan(lan)
            while (found := self._next(place, name, wanted, patience)) is None:
                self._change.wait(_POLL_SECONDS)
                check()
            mine = found.source is None and found.sha not in place.seeding
            if found.source is not None:
                place.serving.add(found.source.peer.name)
            elif mine:
                place.seeding.add(found.sha)
        try:
            yield found
        finally:
            with self._change:
                if found.source is not None:
                    place.serving.discard(found.source.peer.name)
                elif mine:
                    place.seeding.discard(found.sha)
                if found.arrived:
                    place.holders.setdefault(found.sha, {})[name] = me
                self._change.notify_all()

    def _lan(self, lan: str) -> _Lan:
        return self._lans.setdefault(lan, _Lan())

    @staticmethod
    def _next(
        place: _Lan, name: str, wanted: Sequence[str], patience: Deadline
    ) -> RelayTurn | None:
        for sha in wanted:
            for holder in place.usable(sha, name):
                if holder.peer.name not in place.serving:
                    return RelayTurn(sha, holder)
        for sha in wanted:
            if not place.usable(sha, name) and sha not in place.seeding:
                return RelayTurn(sha, None)
        return RelayTurn(wanted[0], None) if patience.expired else None
