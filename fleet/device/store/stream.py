"""Standard input as lines and bytes, and a file writer with a sync thread; Python 3.7 or newer."""

import hashlib
import os
import sys

from fleet.device.store.files import WRITE, feed

TYPE_CHECKING = False  # the module typing takes 10 ms
if TYPE_CHECKING:
    from io import BufferedReader

BLOCK = 1 << 20
DIRTY = 32 << 20  # bytes after which the disk starts to write


class Input:
    """Standard input as lines and bytes."""

    def __init__(self) -> None:
        self.stream: BufferedReader = sys.stdin.buffer  # type: ignore[assignment]
        try:
            import fcntl

            fcntl.fcntl(0, 1031, 1 << 20)  # F_SETPIPE_SZ: fewer context switches
        except (ImportError, OSError):
            pass

    def line(self) -> str:
        """Return the next line without its end, "" if there is none or it is incomplete."""
        line = self.stream.readline()
        return line[:-1].decode("utf-8", "surrogateescape") if line[-1:] == b"\n" else ""

    def into(self, view: memoryview) -> int:
        """Fill a part of the view; return 0 at the end of the stream."""
        return self.stream.readinto1(view)

    def take(self, size: int) -> memoryview:
        """Read `size` bytes, or fewer if the stream ends."""
        data = bytearray(size)
        return memoryview(data)[: self.stream.readinto(data)]


class Writer:
    """A writer that appends to a file, while a thread syncs it to the disk."""

    def __init__(self, path: str, hashing: bool, over: bool = False) -> None:
        """Open the file; `hashing` computes its SHA-256. `over` writes from its beginning."""
        import threading

        self.file = os.open(path, WRITE | (0 if over else os.O_APPEND), 0o644)
        self.size = 0 if over else os.fstat(self.file).st_size
        self.hash = hashlib.sha256() if hashing else None
        if self.hash and self.size:
            feed(path, self.hash.update)
        self.dirty = 0
        self.go = threading.Event()
        self.ended = False
        self.thread = threading.Thread(target=self.sync)
        self.thread.daemon = True
        self.thread.start()

    def sync(self) -> None:
        """Run the thread. A disk error shows at the next write or at the last sync."""
        flush = getattr(os, "fdatasync", os.fsync)
        while True:
            self.go.wait()
            self.go.clear()
            if self.ended:
                return
            try:
                flush(self.file)
            except OSError:
                return

    def write(self, view: "memoryview | bytes") -> None:
        """Write the whole view."""
        view = memoryview(view)
        os.lseek(self.file, self.size, 0)
        while view:
            done = os.write(self.file, view)
            if self.hash:
                self.hash.update(view[:done])
            view = view[done:]
            self.size += done
            self.dirty += done
        if self.dirty >= DIRTY:
            self.dirty = 0
            self.go.set()

    def end(self) -> None:
        """End the thread; the file stays open."""
        self.ended = True
        self.go.set()
        self.thread.join()

    def close(self) -> None:
        """End the thread and close the file."""
        self.end()
        file, self.file = self.file, -1
        if file >= 0:
            os.close(file)
