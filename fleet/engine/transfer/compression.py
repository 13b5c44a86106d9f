"""The choice of compressed files: by option, or where compression saves time.

Samples of each file and the measured rate of the link decide. Context binaries contain quantised
weights and do not compress; libraries shrink to a half.
"""

from __future__ import annotations

import contextlib
import threading
import time
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from fleet.model.files import FileRef
from fleet.model.plan import Blob
from fleet.ops.frames import read_file

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
