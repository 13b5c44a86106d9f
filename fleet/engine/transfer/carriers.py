"""The choice of the carrier for bulk data.

Large uploads use the ssh client, which needs a third of paramiko's processor time. It connects
while the lease is acquired. If it connects too late, the open connection sends until then.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from fleet.engine.session import Session
from fleet.engine.transfer.neighbours import LEAST_BYTES, lan_of
from fleet.model.deadline import Deadline
from fleet.model.errors import FleetError, TransportError
from fleet.model.plan import Blob
from fleet.transport.base import WORTH_BYTES, Carrier, Transport

PIECE_BYTES = 8 << 20  # sent over the open connection before the client is checked again
WAIT_SECONDS = 0.25  # for the client: sending a stream first would take as long

# Sends this many bytes of the blob over the carrier; returns bytes per second.
Try = Callable[[Blob, int, Carrier], float]


@dataclass(frozen=True)
class Choice:
    """The chosen carrier, the remaining blobs, and the rate in bytes per second (None: unknown)."""

    carrier: Carrier
    blobs: list[Blob]
    rate: float | None
    why: str

    def measured(self, attempt: Try) -> Choice:
        """Return the rest after measuring the rate with the beginning of the largest blob."""
        large = [n for n, blob in enumerate(self.blobs) if blob.plain]
        place = max(large, key=lambda n: self.blobs[n].left)
        count = self.blobs[place].left // 8
        rate = attempt(self.blobs[place], count, self.carrier.trial())
        return replace(self, rate=rate, blobs=_further(self.blobs, place, count))


class Carriers:
    """The carriers to one device. Close it at the end."""

    def __init__(self, session: Session, wanted: str) -> None:
        self._session = session
        self._wanted = wanted
        self._second: Carrier | None = None
        self._failed: FleetError | None = None
        self._closed = False
        self._lock = threading.Lock()

    def close(self) -> None:
        """Close the second connection."""
        with self._lock:
            second, self._second, self._closed = self._second, None, True
        if second is not None:
            second.close()

    def choose(self, blobs: Sequence[Blob], attempt: Try) -> Choice:
        """Return the carrier for these blobs, and the blobs that it still has to send.

        While the client connects, `attempt` sends pieces over the first connection. Raises the
        client's error if the user asked for the client.
        """
        first, left = self._session.transport, list(blobs)
        name = first.second
        if self._wanted == name and name:
            self._open()
            if self._failed is not None:
                raise self._failed
            return Choice(self._second or first, left, None, "as asked for")
        if not name or self._wanted != "auto":
            return Choice(first, left, None, "as asked for" if name else "the only connection")
        place = next((n for n, blob in enumerate(left) if _long(blob)), None)
        if place is None or sum(blob.wire for blob in left) < WORTH_BYTES:
            return Choice(first, left, None, "little to send")
        opening = threading.Thread(target=self._open, daemon=True)
        opening.start()
        if self._session.lease is not None:
            self._session.lease.take()
        opening.join(WAIT_SECONDS)
        rate: float | None = None
        while opening.is_alive() and _long(left[place]):
            rate = attempt(left[place], PIECE_BYTES, first)
            left = _further(left, place, PIECE_BYTES)
        if opening.is_alive() or self._second is None:
            why = self._failed.message if self._failed else "the program ssh connected too late"
            return Choice(first, left, rate, why)
        sent = "" if rate is None else f"; {first.name} sent until it was connected"
        return Choice(self._second, left, None, f"less processor time for large files{sent}")

    def _open(self) -> None:
        if self._second is not None:
            return
        try:
            limit = Deadline(self._session.host.connect_timeout)
            opened = self._session.transport.carrier(limit)
            with self._lock:
                if not self._closed:
                    self._second = opened
                    return
            opened.close()
        except FleetError as error:
            self._failed = error
        except (OSError, ValueError) as error:
            self._failed = TransportError(f"cannot start the program ssh: {error}", hint="ssh -V")


def _long(blob: Blob) -> bool:
    return blob.plain and blob.left > 2 * PIECE_BYTES


def _further(blobs: Sequence[Blob], place: int, count: int) -> list[Blob]:
    """Return the rest after `count` bytes of the blob at `place` were sent."""
    left = list(blobs)
    left[place] = replace(left[place], offset=left[place].offset + count)
    return left


def way(session: Session, count: int) -> tuple[str, ...]:
    """Return the name of the carrier for `count` bytes, and of the relay, if any, for the plan."""
    first, wanted = session.transport, session.transfer.options.carrier
    if not count:
        return ()
    return (_carrier(first, wanted, count), *_relay(session))


def _relay(session: Session) -> tuple[str, ...]:
    lan = lan_of(session.host)
    if session.transfer.neighbours is None or not lan:
        return ()
    return (f"relay: files from {LEAST_BYTES >> 20} MiB may come from boards of the lan {lan}",)


def _carrier(first: Transport, wanted: str, count: int) -> str:
    if first.second and wanted == first.second:
        return f"carrier: {first.second}, as asked for"
    if first.second and wanted == "auto" and count >= WORTH_BYTES:
        return f"carrier: {first.second}; {first.name} until it is connected"
    return f"carrier: {first.name}, the open connection"
