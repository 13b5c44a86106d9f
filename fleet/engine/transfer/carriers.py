"""Which way the bytes go: measured with the first megabytes of the upload itself.

The open connection sends while the ssh client connects, so the looking costs nothing. Then the
client has its turn; it takes a third of the processor that paramiko takes, and stays unless it
is clearly slower.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from fleet.engine.session import Session
from fleet.engine.transfer.neighbours import LEAST_BYTES, lan_of
from fleet.model.errors import FleetError, TransportError
from fleet.model.plan import Blob
from fleet.transport.base import Carrier, Transport

TRIAL_BYTES = 8 << 20
TRIAL_SECONDS = 0.3  # of the client's turn: its start counts little then
MOST_TRIAL_BYTES = 64 << 20
WORTH_BYTES = 32 << 20  # below, the second connection costs more than it saves
SLOWER = 0.8  # of the open connection's rate: then the client is let go

# Sends so many bytes of the blob over the carrier; bytes a second.
Try = Callable[[Blob, int, Carrier], float]


@dataclass(frozen=True)
class Choice:
    """What was chosen, what is left to send, and the rate in bytes a second (None: unknown)."""

    carrier: Carrier
    blobs: list[Blob]
    rate: float | None
    why: str


class Carriers:
    """The ways to one device. Close it at the end."""

    def __init__(self, session: Session, wanted: str) -> None:
        self._session = session
        self._wanted = wanted
        self._second: Carrier | None = None
        self._failed: FleetError | None = None
        self._closed = False
        self._lock = threading.Lock()

    def close(self) -> None:
        """Let go of a second connection."""
        with self._lock:
            second, self._second, self._closed = self._second, None, True
        if second is not None:
            second.close()

    def choose(self, blobs: Sequence[Blob], attempt: Try) -> Choice:
        """The way for these blobs; the first megabytes have gone over then."""
        first, left = self._session.transport, list(blobs)
        name = first.second
        if self._wanted == name and name:
            self._open()
            if self._failed is not None:
                raise self._failed
            return Choice(self._second or first, left, None, "as asked for")
        if not name or self._wanted != "auto":
            return Choice(first, left, None, "as asked for" if name else "the only one")
        place = next((n for n, one in enumerate(left) if _long(one)), None)
        if place is None or sum(one.wire for one in left) < WORTH_BYTES:
            return Choice(first, left, None, "little to send")
        opening = threading.Thread(target=self._open, daemon=True)
        opening.start()
        rate = 0.0
        while _long(left[place]):
            rate = attempt(left[place], TRIAL_BYTES, first)
            left[place] = _further(left[place], TRIAL_BYTES)
            if not opening.is_alive():
                break
        opening.join()
        if self._second is None or not _long(left[place]):
            why = self._failed.message if self._failed else "the client came too late"
            return Choice(first, left, rate, why)
        most = min(MOST_TRIAL_BYTES, left[place].left // 2)
        count = max(TRIAL_BYTES, min(most, int(rate * TRIAL_SECONDS)))
        other = attempt(left[place], count, self._second)
        left[place] = _further(left[place], count)
        told = f"measured {other / 1e6:.0f} MB/s, {first.name} {rate / 1e6:.0f}"
        if other < rate * SLOWER:
            self.close()
            return Choice(first, left, rate, told)
        return Choice(self._second, left, other, told)

    def _open(self) -> None:
        if self._second is not None:
            return
        try:
            opened = self._session.second()
            with self._lock:
                if not self._closed:
                    self._second = opened
                    return
            opened.close()
        except FleetError as error:
            self._failed = error
        except (OSError, ValueError) as error:
            self._failed = TransportError(f"the ssh client cannot be started: {error}")


def _long(blob: Blob) -> bool:
    return blob.delta is None and blob.left > 2 * TRIAL_BYTES


def _further(blob: Blob, count: int) -> Blob:
    return replace(blob, offset=blob.offset + count)


def way(session: Session, count: int) -> tuple[str, ...]:
    """Which way so many bytes will go, for the plan."""
    first, wanted = session.transport, session.depot.pace.carrier
    if not count:
        return ()
    return (_carrier(first, wanted, count), *_relay(session))


def _relay(session: Session) -> tuple[str, ...]:
    lan = lan_of(session.host)
    if session.depot.neighbours is None or not lan:
        return ()
    return (f"relay: files from {LEAST_BYTES >> 20} MiB may come from boards of lan {lan}",)


def _carrier(first: Transport, wanted: str, count: int) -> str:
    if first.second and wanted == first.second:
        return f"carrier: {first.second}, as asked for"
    if first.second and wanted == "auto" and count >= WORTH_BYTES:
        trial = f"measured with the first {TRIAL_BYTES >> 20} MiB of each"
        return f"carrier: {first.name} or {first.second}, {trial}"
    return f"carrier: {first.name}, the open connection"
