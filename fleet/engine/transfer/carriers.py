"""Which way the bytes go: measured with the first megabytes of the upload itself.

The open connection sends while the ssh client connects, so the looking costs nothing. Then the
client has its turn; it takes a third of the processor that paramiko takes, and stays unless it
is clearly slower.
"""

from __future__ import annotations

import threading
import time
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


class CarrierTrial:
    """The first bytes over a carrier that has to prove itself while it sends."""

    def __init__(self, place: int, count: int, first: Carrier, rate: float) -> None:
        """`count` bytes of the blob at `place`; the carrier `first` has sent at `rate`, bytes/s."""
        self.place = place
        self.count = count
        self.first = first
        self.why = ""
        self.lost = False
        self.before = rate
        self._began = 0.0

    def begin(self) -> None:
        """From here on it is timed."""
        self._began = time.monotonic()

    def end(self) -> None:
        """The bytes have gone."""
        self.judge(self.count / (time.monotonic() - self._began))

    def judge(self, rate: float) -> None:
        """Is it slower?"""
        self.why = f"measured {rate / 1e6:.0f} MB/s, {self.first.name} {self.before / 1e6:.0f}"
        self.lost = rate < self.before * SLOWER


@dataclass(frozen=True)
class Choice:
    """What was chosen, what is left to send, and the rate in bytes a second (None: unknown).

    With a `turn` the first bytes decide whether the carrier stays.
    """

    carrier: Carrier
    blobs: list[Blob]
    rate: float | None
    why: str
    turn: CarrierTrial | None = None

    def back(self) -> Choice:
        """What is left when the turn was lost, for the first carrier."""
        if self.turn is None:
            return self
        left = _further(self.blobs, self.turn.place, self.turn.count)
        return Choice(self.turn.first, left, None, self.turn.why)

    def measured(self, attempt: Try) -> Choice:
        """What is left when the beginning of the largest blob has shown the rate."""
        large = [n for n, blob in enumerate(self.blobs) if blob.plain]
        place = max(large, key=lambda n: self.blobs[n].left)
        count = self.blobs[place].left // 8
        rate = attempt(self.blobs[place], count, self.carrier)
        return replace(self, rate=rate, blobs=_further(self.blobs, place, count))


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

    def choose(self, blobs: Sequence[Blob], attempt: Try, *, apart: bool = True) -> Choice:
        """The way for these blobs; the first megabytes have gone over then.

        `apart`: the rate is asked for before the rest is sent. Else a second carrier is judged
        by the beginning of its stream: a stream of its own takes 0.1 s more.
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
        rate = 0.0
        while _long(left[place]):
            rate = attempt(left[place], TRIAL_BYTES, first)
            left = _further(left, place, TRIAL_BYTES)
            if not opening.is_alive():
                break
        opening.join()
        if self._second is None or not _long(left[place]):
            why = self._failed.message if self._failed else "the program ssh connected too late"
            return Choice(first, left, rate, why)
        turn = CarrierTrial(place, _enough(left[place], rate), first, rate)
        choice = Choice(self._second, left, None, "", turn)
        return self._judged(choice, turn, attempt) if apart else choice

    def _judged(self, choice: Choice, turn: CarrierTrial, attempt: Try) -> Choice:
        """After a stream of its own for the second carrier's turn."""
        other = attempt(choice.blobs[turn.place], turn.count, choice.carrier)
        turn.judge(other)
        back = choice.back()
        if turn.lost:
            self.close()
            return replace(back, rate=turn.before)
        return replace(back, carrier=choice.carrier, rate=other)

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
            self._failed = TransportError(f"cannot start the program ssh: {error}", hint="ssh -V")


def _enough(blob: Blob, rate: float) -> int:
    """Bytes for a turn of the second carrier, where the first has this rate."""
    most = min(MOST_TRIAL_BYTES, blob.left // 2)
    return max(TRIAL_BYTES, min(most, int(rate * TRIAL_SECONDS)))


def _long(blob: Blob) -> bool:
    return blob.plain and blob.left > 2 * TRIAL_BYTES


def _further(blobs: Sequence[Blob], place: int, count: int) -> list[Blob]:
    """What is left when `count` bytes of the blob at `place` have gone."""
    left = list(blobs)
    left[place] = replace(left[place], offset=left[place].offset + count)
    return left


def way(session: Session, count: int) -> tuple[str, ...]:
    """Which way so many bytes will go, for the plan."""
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
        trial = f"measured with the first {TRIAL_BYTES >> 20} MiB of each"
        return f"carrier: {first.name} or {first.second}, {trial}"
    return f"carrier: {first.name}, the open connection"
