"""Standard input as lines and bytes, and a file written while more comes; Python 3.7 or newer."""

import hashlib
import os
import sys

from fleet.device.store.files import WRITE, feed

TYPE_CHECKING = False  # the module typing takes 10 ms
if TYPE_CHECKING:
    from io import BufferedReader

BLOCK = 1 << 20
DIRTY = 32 << 20  # bytes after which the disk is asked to begin writing


class Input:
    """Standard input: lines, and bytes."""

    def __init__(self) -> None:
        self.stream: BufferedReader = sys.stdin.buffer  # type: ignore[assignment]
        try:
            import fcntl

            fcntl.fcntl(0, 1031, 1 << 20)  # F_SETPIPE_SZ: fewer turns of the processor
        except (ImportError, OSError):
            pass

    def line(self) -> str:
        """The next line without its end; "" when there is none, or no end of it."""
        line = self.stream.readline()
        return line[:-1].decode("utf-8", "surrogateescape") if line[-1:] == b"\n" else ""

    def into(self, view: memoryview) -> int:
        """Fill some of it; 0 at the end of the stream."""
        return self.stream.readinto1(view)

    def take(self, size: int) -> memoryview:
        """So many bytes; fewer when the stream ends."""
        data = bytearray(size)
        return memoryview(data)[: self.stream.readinto(data)]


class Writer:
    """Writes a file from its end on; a thread has the disk write while more is received."""

    def __init__(self, path: str, hashing: bool, over: bool = False) -> None:
        """`over`: from the beginning of what is there."""
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
        """Work of the thread; a failing disk shows at the next write or at the last sync."""
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
        """All of it."""
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
        """The thread has ended then; the file is still open."""
        self.ended = True
        self.go.set()
        self.thread.join()

    def close(self) -> None:
        """The file too."""
        self.end()
        file, self.file = self.file, -1
        if file >= 0:
            os.close(file)
