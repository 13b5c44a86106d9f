"""Standard input as lines and bytes, and a file written while more comes; Python 3.7 or newer."""

import hashlib
import os

from fleet.device.store.fleet_disk import feed

DIRTY = 32 << 20  # bytes after which the disk is asked to begin writing


class Input:
    """Standard input: lines, and bytes."""

    def __init__(self) -> None:
        self.data = b""
        self.at = 0
        try:
            import fcntl

            fcntl.fcntl(0, 1031, 1 << 20)  # F_SETPIPE_SZ: fewer turns of the processor
        except (ImportError, OSError):
            pass

    def line(self) -> str:
        """The next line without its end; "" when there is none."""
        while True:
            end = self.data.find(b"\n", self.at)
            if end >= 0:
                line, self.at = self.data[self.at : end], end + 1
                return line.decode("utf-8", "surrogateescape")
            more = os.read(0, 1 << 16)
            self.data, self.at = self.data[self.at :] + more, 0
            if not more:
                self.data = b""
                return ""

    def into(self, view: memoryview) -> int:
        """Fill some of it; 0 at the end of the stream."""
        count = min(len(view), len(self.data) - self.at)
        if not count:
            return os.readv(0, [view])
        view[:count] = self.data[self.at : self.at + count]
        self.at += count
        return count

    def take(self, size: int) -> memoryview:
        """So many bytes; fewer when the stream ends."""
        data = bytearray(size)
        view = memoryview(data)
        have = 0
        while have < size:
            count = self.into(view[have:])
            if not count:
                break
            have += count
        return view[:have]


class Writer:
    """Writes a file from its end on; a thread has the disk write while more is received."""

    def __init__(self, path: str, hashing: bool, over: bool = False) -> None:
        """`over`: from the beginning of what is there."""
        import threading

        flags = os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | (0 if over else os.O_APPEND)
        self.file = os.open(path, flags, 0o644)
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
        while True:
            self.go.wait()
            self.go.clear()
            if self.ended:
                return
            try:
                os.fdatasync(self.file)
            except OSError:
                return

    def write(self, view: "memoryview | bytes") -> None:
        """All of it."""
        view = memoryview(view)
        while view:
            done = os.pwrite(self.file, view, self.size)
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
