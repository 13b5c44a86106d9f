"""A new blob made from older ones on the device; Python 3.7 or newer.

The stream has lines in the order of the new content, up to a line `done`, or `stop` if it ends
early. `copy <first> <count>` are blocks of 64 KiB of the old blob. `take <MiB> <rest>` is followed
by these bytes. `same <MiB> <rest>` are bytes that the recyclable blob has at that place. The hash
detects missing parts of the old blobs.
"""

import hashlib
import os

from fleet.device.store.files import PIECE
from fleet.device.store.stream import BLOCK

TYPE_CHECKING = False  # the module typing takes 10 ms
if TYPE_CHECKING:
    from collections.abc import Callable

    from fleet.device.store.stream import Input, Writer

COPY = 1 << 16


class Follower:
    """A thread that hashes a file while it grows."""

    def __init__(self, path: str, limit: int) -> None:
        import threading

        self.file = os.open(path, os.O_RDONLY)
        self.hash = hashlib.sha256()
        self.limit = limit
        self.ended = False
        self.grown = threading.Condition()
        self.thread = threading.Thread(target=self.work)
        self.thread.daemon = True
        self.thread.start()

    def work(self) -> None:
        """Run the thread."""
        view = memoryview(bytearray(PIECE))
        at = 0
        while True:
            with self.grown:
                while at == self.limit and not self.ended:
                    self.grown.wait()
                limit = self.limit
            if at == limit:
                return
            while at < limit:
                count = os.preadv(self.file, [view[: min(PIECE, limit - at)]], at)
                if not count:
                    return
                self.hash.update(view[:count])
                at += count

    def grow(self, limit: int, ended: bool = False) -> None:
        """Tell the reader the file's new length, and if it has `ended`."""
        with self.grown:
            self.limit = limit
            self.ended = ended
            self.grown.notify()

    def close(self) -> str:
        """Return the SHA-256 of the whole file."""
        self.grow(self.limit, True)
        self.thread.join()
        os.close(self.file)
        return self.hash.hexdigest()


class Patch:
    """The new content so far."""

    def __init__(self, stream: "Input", out: "Writer", part: str, end: int) -> None:
        self.stream, self.out, self.end = stream, out, end
        self.follower = Follower(part, out.size)
        self.view = memoryview(bytearray(PIECE))
        self.stopped = False

    def apply(self, old: str, own: "int | None") -> str:
        """Apply the stream and return the hash.

        `own` is read for `same`, None if the bytes are in place.
        """
        sound = os.path.isfile(old) and not os.path.islink(old)
        base = os.open(old if sound else os.devnull, os.O_RDONLY)
        out = self.out
        if own is None:
            os.ftruncate(out.file, self.end)
        whole = False
        while not whole:
            line = self.stream.line().split()
            whole, self.stopped = line == ["done"], line == ["stop"]
            if len(line) != 3:
                break
            first, second = int(line[1]), int(line[2])
            size = second * COPY if line[0] == "copy" else first * BLOCK + second
            size = min(size, self.end - out.size)
            if line[0] == "copy":
                self.fill(size, self.old(base, first * COPY))
            elif line[0] == "same" and own is not None:
                self.fill(size, self.old(own, out.size))
            elif line[0] == "same":
                self.grown(out.size + size)
            elif not self.fill(size, self.stream.into):
                break
        os.close(base)
        if own is not None and own >= 0:
            os.close(own)
        if whole and out.size < self.end:
            os.ftruncate(out.file, self.end)
            self.grown(self.end)
        return self.follower.close()

    def grown(self, size: int) -> None:
        """Record that the file has this many bytes, which may be hashed."""
        self.out.size = size
        self.follower.grow(size)

    def old(self, file: int, at: int) -> "Callable[[memoryview], int]":
        """Return a reader of an old file from `at` on, which advances with the new file."""
        begun = self.out.size
        return lambda room: os.preadv(file, [room], at + self.out.size - begun)

    def fill(self, left: int, read: "Callable[[memoryview], int]") -> bool:
        """Write `left` more bytes of `read`. Return False if there were fewer."""
        while left:
            count = read(self.view[: min(left, PIECE)])
            if not count:
                return False
            self.out.write(self.view[:count])
            self.follower.grow(self.out.size)
            left -= count
        return True
