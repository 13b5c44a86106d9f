"""The context that all uploads of one operation share, and their options."""

from __future__ import annotations

import contextlib
import re
import threading
import time
import zlib
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from msgspec import Struct

from fleet.config.tune import CARRIERS, RATE, SWITCH, split
from fleet.content.signatures import BlockSignature, Signatures
from fleet.engine.transfer.neighbours import Neighbours
from fleet.model.errors import InputError
from fleet.model.files import Chunk, FileRef
from fleet.model.inventory import Host
from fleet.model.plan import Blob, Delta
from fleet.ops.frames import read_file

# Samples of each file and the measured rate of the link decide what is compressed. Context binaries
# contain quantised weights and do not compress; libraries shrink to a half.

SAMPLE_BYTES = 1 << 17
SMALLEST = 1 << 20  # for smaller files the programs on the device cost more than the bytes
WORTH = 0.8  # share of the time for the plain bytes


@dataclass(frozen=True)
class CompressionSample:
    """A sample. `share` is the compressed size / size, `seconds` the time of this machine
    per byte.
    """

    share: float
    seconds: float


class Sampler:
    """A cache of samples, three for each file. It is thread-safe."""

    def __init__(self) -> None:
        self._known: dict[Path, CompressionSample] = {}
        self._lock = threading.Lock()

    def sample(self, item: FileRef) -> CompressionSample:
        """Return how a file compresses. A small or unreadable file does not."""
        with self._lock:
            known = self._known.get(item.source)
        if known is not None:
            return known
        plain = packed = 0
        spent = 0.0
        if item.size >= SMALLEST:
            with contextlib.suppress(OSError):
                for start in (0, item.size // 2, item.size - SAMPLE_BYTES):
                    data = read_file(item.source, start, start + SAMPLE_BYTES)
                    began = time.monotonic()
                    packed += len(zlib.compress(data, 1))
                    spent += time.monotonic() - began
                    plain += len(data)
        sample = (
            CompressionSample(packed / plain, spent / plain)
            if plain
            else CompressionSample(1.0, 0.0)
        )
        with self._lock:
            self._known[item.source] = sample
        return sample

    def pays(self, item: FileRef, rate: float | None) -> bool:
        """Return True if compression and transfer take clearly less time than the plain transfer.

        `rate` is that of the link in bytes per second. None: unknown; 0: compress everything that
        shrinks.
        """
        if rate is None:
            return False
        sample = self.sample(item)
        return sample.seconds * rate + sample.share < WORTH


class Compression:
    """The compression for one device. `mode` is auto, always or never; `able`: it can
    decompress.
    """

    def __init__(self, mode: str, sampler: Sampler, *, able: bool) -> None:
        self._mode, self._sampler = mode if able else "never", sampler

    def shrinking(self, blobs: Sequence[Blob]) -> int:
        """Return the bytes of files that shrink, if the rate of the link decides about them."""
        rated = blobs if self._mode == "auto" else ()
        return sum(blob.wire for blob in rated if blob.plain and self._sampler.pays(blob.file, 0.0))

    def files(self, blobs: Sequence[Blob], rate: float | None) -> frozenset[str]:
        """Return the SHA-256 of the files to compress at `rate` bytes/s."""
        if self._mode == "never":
            return frozenset()
        rate = 0.0 if self._mode == "always" else rate
        files = [blob.file for blob in blobs if blob.plain]
        return frozenset(item.sha256 for item in files if self._sampler.pays(item, rate))


_SCALE = {"": 1, "k": 1_000, "M": 1_000_000, "G": 1_000_000_000}
_BURST_SECONDS = 0.25


def parse_rate(text: str) -> float:
    """Return bytes per second from `50MB/s`, `100Mbit/s` or `1Gbit`. Raises InputError."""
    match = re.fullmatch(RATE, text)
    if not match:
        raise InputError(f"'{text}' is not a data rate", hint="write it like 50MB/s or 100Mbit/s")
    return float(match[1]) * _SCALE[match[2]] / (8 if match[3] == "bit" else 1)


class Throttle:
    """A token bucket that all devices share. `rate` is in bytes per second."""

    def __init__(
        self,
        rate: float,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._rate = rate
        self._clock = clock
        self._sleep = sleep
        self._free_at = clock()
        self._lock = threading.Lock()

    def take(self, count: int) -> None:
        """Wait until `count` more bytes may be sent."""
        with self._lock:
            now = self._clock()
            begin = max(self._free_at, now - _BURST_SECONDS)
            self._free_at = begin + count / self._rate
            wait = self._free_at - now
        if wait > 0:
            self._sleep(wait)

    def feed(self, source: Iterable[Chunk]) -> Iterator[Chunk]:
        """Yield the same chunks, limited to the rate."""
        for chunk in source:
            self.take(len(chunk))
            yield chunk


def hub_of(host: Host) -> str:
    """Return the shared cable of a device: the label `hub`, or its USB hub; "" for none.

    `usb:1-4.2` is port 2 of the hub 1-4. A device at the computer itself shares the bus.
    """
    if "hub" in host.labels:
        return host.labels["hub"]
    serial = host.serial or ""
    if not host.phone or not serial.startswith("usb:"):
        return ""
    path = serial.removeprefix("usb:")
    return f"usb:{path.rpartition('.')[0] or path.partition('-')[0]}"


class Hubs:
    """The limit of parallel uploads behind one hub."""

    def __init__(self, limit: int | None) -> None:
        self._limit = limit
        self._lanes: dict[str, threading.BoundedSemaphore] = {}
        self._lock = threading.Lock()

    @contextlib.contextmanager
    def lane(self, host: Host) -> Iterator[None]:
        """Hold one of the hub's places for a transfer; wait if all are taken."""
        hub = hub_of(host)
        if self._limit is None or not hub:
            yield
            return
        with self._lock:
            lane = self._lanes.setdefault(hub, threading.BoundedSemaphore(self._limit))
        with lane:
            yield


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


_READ: Mapping[str, Callable[[str], Any]] = {
    "carrier": str,
    "bandwidth": parse_rate,
    "per-hub": int,
    "compress": str,
    "whole": SWITCH.__getitem__,
    "relay": SWITCH.__getitem__,
}


def options_of(words: Iterable[str]) -> TransferOptions:
    """Return the options in the words; the last word of a name wins. Raises InputError."""
    options = {name.replace("-", "_"): _READ[name](value) for name, value in map(split, words)}
    return TransferOptions(**options)
