"""What of an upload goes compressed: what was asked for, and where it saves time. Decided by
samples of each file and the rate of the link that was measured.

Context binaries hold quantised weights and do not compress; libraries go to a half.
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
SMALLEST = 1 << 20  # below, the programs on the device cost more than the bytes
WORTH = 0.8  # of the time that the plain bytes take


@dataclass(frozen=True)
class CompressionSample:
    """`share`: about compressed size / size. `seconds`: of this machine for each byte."""

    share: float
    seconds: float


class Sampler:
    """Compresses three samples of a file; thread-safe, each file once."""

    def __init__(self) -> None:
        self._known: dict[Path, CompressionSample] = {}
        self._lock = threading.Lock()

    def sample(self, item: FileRef) -> CompressionSample:
        """How a file compresses; a small or unreadable one does not."""
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
        found = (
            CompressionSample(packed / plain, spent / plain)
            if plain
            else CompressionSample(1.0, 0.0)
        )
        with self._lock:
            self._known[item.source] = found
        return found

    def pays(self, item: FileRef, rate: float | None) -> bool:
        """True where the bytes and the work take clearly less time than the bytes alone.

        `rate` of the link in bytes a second; None: unknown, 0: compress what shrinks.
        """
        if rate is None:
            return False
        found = self.sample(item)
        return found.seconds * rate + found.share < WORTH


class Compression:
    """For one device. `mode` is auto, always or never; `able`: the device can unpack."""

    def __init__(self, mode: str, sampler: Sampler, *, able: bool) -> None:
        self._mode, self._sampler = mode if able else "never", sampler

    def shrinking(self, blobs: Sequence[Blob]) -> int:
        """Bytes of files that get smaller, where the rate of the link decides about them."""
        rated = blobs if self._mode == "auto" else ()
        return sum(blob.wire for blob in rated if blob.plain and self._sampler.pays(blob.file, 0.0))

    def files(self, blobs: Sequence[Blob], rate: float | None) -> frozenset[str]:
        """The SHA-256 of those that go compressed."""
        if self._mode == "never":
            return frozenset()
        rate = 0.0 if self._mode == "always" else rate
        files = [blob.file for blob in blobs if blob.plain]
        return frozenset(item.sha256 for item in files if self._sampler.pays(item, rate))
