"""The context that all uploads of one operation share, and their options."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, field

from msgspec import Struct

from fleet.config.tune import CARRIERS
from fleet.content.signatures import BlockSignature, Signatures
from fleet.engine.transfer.compression import Sampler
from fleet.engine.transfer.limits import Hubs, Throttle
from fleet.engine.transfer.neighbours import Neighbours
from fleet.model.errors import InputError
from fleet.model.files import FileRef
from fleet.model.plan import Blob, Delta
from fleet.ops.frames import read_file

# A single read serves all devices: chunks are kept for devices that need them a little later.

KEPT_BYTES = 96 << 20  # for any number of devices; a device that is further behind reads again

Key = tuple[str, int, int, str]


class SharedSource:
    """A Source (fleet/ops/frames.py) for all devices of an operation, with bounded memory.

    The first device that needs a chunk reads it; the others wait for it. `reads` counts the bytes
    that were really read.
    """

    def __init__(self, kept: int = KEPT_BYTES) -> None:
        self._kept = kept
        self._size = 0
        self._chunks: OrderedDict[Key, Future[bytes]] = OrderedDict()
        self._lock = threading.Lock()
        self.reads = 0

    def read(self, item: FileRef, start: int, end: int) -> bytes:
        """Return the bytes from start to end."""

        def load() -> bytes:
            data = read_file(item.source, start, end)
            with self._lock:
                self.reads += len(data)
            return data

        return self._shared((item.sha256, start, end, "raw"), load)

    def made(self, item: FileRef, start: int, end: int, make: Callable[[], bytes]) -> bytes:
        """Return the result of `make` for these bytes, computed once."""
        return self._shared((item.sha256, start, end, "made"), make)

    def _shared(self, key: Key, load: Callable[[], bytes]) -> bytes:
        with self._lock:
            known = self._chunks.get(key)
            mine: Future[bytes] = Future()
            if known is None:
                self._chunks[key] = mine
            else:
                self._chunks.move_to_end(key)
        if known is not None:
            return known.result()
        try:
            data = load()
        except BaseException as error:
            with self._lock:
                self._chunks.pop(key, None)
            mine.set_exception(error)
            raise
        mine.set_result(data)
        with self._lock:
            if key in self._chunks:
                self._size += len(data)
            self._shrink()
        return data

    def _shrink(self) -> None:
        for key in list(self._chunks):
            if self._size <= self._kept:
                return
            if self._chunks[key].done():
                self._size -= len(self._chunks.pop(key).result())


class TransferOptions(Struct, frozen=True):
    """The options of the user.

    `carrier` for ssh hosts is auto, paramiko or ssh. `bandwidth` is in bytes per second for all
    devices together. `per_hub` is the number of parallel uploads behind one hub. `whole` disables
    deltas. `compress` is auto, always or never. With `relay`, boards with the same label `lan`
    serve each other.
    """

    carrier: str = "auto"
    bandwidth: float | None = None
    per_hub: int | None = None
    whole: bool = False
    compress: str = "auto"
    relay: bool = False

    def __post_init__(self) -> None:
        if self.carrier not in CARRIERS:
            raise InputError(
                f"'{self.carrier}' is not an SSH client that fleet can use as `carrier`",
                hint=f"use one of: {', '.join(CARRIERS)}",
            )


@dataclass
class TransferContext:
    """The context of one operation, used by the threads of all its devices."""

    options: TransferOptions = field(default_factory=TransferOptions)
    source: SharedSource = field(default_factory=SharedSource)
    signatures: Signatures = field(default_factory=Signatures)
    sampler: Sampler = field(default_factory=Sampler)
    bulk: bool = False  # there is enough to send for a second carrier

    def __post_init__(self) -> None:
        self.hubs = Hubs(self.options.per_hub)
        self.neighbours = Neighbours() if self.options.relay else None
        self.throttle = Throttle(self.options.bandwidth) if self.options.bandwidth else None
        self.asked: dict[str, BlockSignature] = {}  # signatures of old blobs that devices computed
        self._deltas: dict[tuple[str, str, str], Future[Delta | None]] = {}
        self._lock = threading.Lock()

    def delta(self, blob: Blob, kind: str, find: Callable[[], Delta | None]) -> Delta | None:
        """Return the result of `find` for this pair of contents, computed once; others wait for it.

        `find` works on this machine only, so that no device waits for another one.
        """
        key, mine = (blob.file.sha256, blob.base, kind), Future[Delta | None]()
        with self._lock:
            known = self._deltas.setdefault(key, mine)
        if known is not mine:
            return known.result()
        try:
            mine.set_result(find())
        except BaseException as error:
            mine.set_exception(error)
            with self._lock:
                self._deltas.pop(key, None)
            raise
        return mine.result()
