"""One reading serves all devices: chunks are kept for those that come a little later."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable
from concurrent.futures import Future

from fleet.model.files import FileRef
from fleet.ops.frames import read_file

KEPT_BYTES = 96 << 20  # whatever the number of devices; a device further behind reads again

Key = tuple[str, int, int, str]


class SharedSource:
    """A Source (fleet/ops/frames.py) for all devices of an operation; bounded memory.

    The first device that needs a chunk reads it, the others wait for that. `reads` counts the
    bytes that were really read.
    """

    def __init__(self, kept: int = KEPT_BYTES) -> None:
        self._kept = kept
        self._size = 0
        self._chunks: OrderedDict[Key, Future[bytes]] = OrderedDict()
        self._lock = threading.Lock()
        self.reads = 0

    def read(self, item: FileRef, start: int, end: int) -> bytes:
        """The bytes from start to end."""

        def load() -> bytes:
            data = read_file(item.source, start, end)
            with self._lock:
                self.reads += len(data)
            return data

        return self._shared((item.sha256, start, end, "raw"), load)

    def made(self, item: FileRef, start: int, end: int, make: Callable[[], bytes]) -> bytes:
        """What `make` makes of these bytes; made once."""
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
