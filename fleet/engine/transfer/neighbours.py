"""The blobs of the boards on a LAN, and the order of relays: the number of holders doubles.

No board waits for an idle one. A turn belongs to the thread that sends or receives, and ends when
that thread leaves it for any reason.
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

LEAST_BYTES = 8 << 20  # of a relayed blob; for smaller ones the logins cost more than the bytes
STRIKES = 2  # neighbours without a login, after which a board no longer serves
_POLL_SECONDS = 0.25


def lan_of(host: Host) -> str:
    """Return the label `lan`: boards with the same label reach each other; "" for none."""
    return host.labels.get("lan", "")


@dataclass(frozen=True)
class BlobHolder:
    """A board that has blobs, and the place of its store."""

    peer: Peer
    base_dir: str


@dataclass
class RelayTurn:
    """A turn of a board: get `sha` from `source`, or from the workstation (None).

    The owner sets `arrived` on success. If the source fails, the owner reports the reason with a
    method of Neighbours.
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
    quarantined: set[str] = field(default_factory=set)

    def usable(self, sha: str, name: str) -> list[BlobHolder]:
        holders = self.holders.get(sha, {}).values()
        return [holder for holder in holders if holder.peer.name not in {name, *self.quarantined}]


class Neighbours:
    """The neighbours of one operation, used by the threads of all its devices."""

    def __init__(self) -> None:
        self._lans: dict[str, _Lan] = {}
        self._change = threading.Condition()

    def have(self, lan: str, holder: BlobHolder, shas: Iterable[str]) -> None:
        """Record that a board has these blobs."""
        with self._change:
            known = self._lan(lan).holders
            for sha in shas:
                known.setdefault(sha, {})[holder.peer.name] = holder
            self._change.notify_all()

    def damaged(self, lan: str, turn: RelayTurn) -> None:
        """Record that the source no longer has this blob, or has another content."""
        if turn.source is not None:
            with self._change:
                self._lan(lan).holders.get(turn.sha, {}).pop(turn.source.peer.name, None)

    def broke(self, lan: str, turn: RelayTurn) -> None:
        """Quarantine a source that disappeared while it sent, or whose connection broke."""
        if turn.source is not None:
            with self._change:
                self._lan(lan).quarantined.add(turn.source.peer.name)
                self._change.notify_all()

    def shut_out(self, lan: str, turn: RelayTurn, name: str) -> None:
        """Record that the source could not log in to the board `name`. Either may be at fault."""
        if turn.source is not None:
            with self._change:
                place, source = self._lan(lan), turn.source.peer.name
                place.strikes.setdefault(source, set()).add(name)
                if len(place.strikes[source]) >= STRIKES:
                    place.quarantined.add(source)
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
        """Yield a turn: a free neighbour with one of `wanted`, or permission to use the
        workstation.

        `check` raises if waiting no longer makes sense. After `patience` the workstation is used,
        even if others are getting the same blob from it.
        """
        name = me.peer.name
        with self._change:
            place = self._lan(lan)
            while (turn := self._next(place, name, wanted, patience)) is None:
                self._change.wait(_POLL_SECONDS)
                check()
            mine = turn.source is None and turn.sha not in place.seeding
            if turn.source is not None:
                place.serving.add(turn.source.peer.name)
            elif mine:
                place.seeding.add(turn.sha)
        try:
            yield turn
        finally:
            with self._change:
                if turn.source is not None:
                    place.serving.discard(turn.source.peer.name)
                elif mine:
                    place.seeding.discard(turn.sha)
                if turn.arrived:
                    place.holders.setdefault(turn.sha, {})[name] = me
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
