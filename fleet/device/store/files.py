"""Files on the device's disk: write, remove, read; Python 3.7 or newer."""

import hashlib
import os

from fleet.device.store.stamp import say

TYPE_CHECKING = False  # the module typing takes 10 ms
if TYPE_CHECKING:
    from collections.abc import Callable

PIECE = 1 << 18
WRITE = os.O_WRONLY | os.O_CREAT | getattr(os, "O_BINARY", 0) | getattr(os, "O_NOFOLLOW", 0)
PATIENCE_SECONDS = 5.0  # a virus scanner or a reader holds a file of Windows for a moment


class EndedError(Exception):
    """The program ends. The status is that of receive.sh."""

    def __init__(self, status: int, line: str) -> None:
        super().__init__(line)
        self.status = status
        self.line = line


def reason(error: OSError) -> str:
    """Return the C library's text, because that of Windows is in the device's language."""
    return os.strerror(error.errno) if error.errno else str(error)


def patiently(work: "Callable[..., object]", *args: object) -> object:
    """Call `work`; retry while another process has the file open (Windows refuses renames)."""
    import time

    end = time.monotonic() + PATIENCE_SECONDS
    while True:
        try:
            return work(*args)
        except PermissionError:
            if os.name != "nt" or time.monotonic() > end:
                raise
            time.sleep(0.02)


def feed(path: str, update: "Callable[[memoryview], object]") -> None:
    """Pass the contents of a whole file to `update`, in pieces."""
    view = memoryview(bytearray(PIECE))
    with open(path, "rb", buffering=0) as stream:
        while True:
            count = stream.readinto(view)
            if not count:
                return
            update(view[:count])


def put(path: str, text: "str | memoryview", new: str = "", sync: bool = False) -> None:
    """Write a small file atomically, with `sync` to the disk. `new` is its temporary name.

    An existing file is removed and never written to, because it may be a symbolic or hard link.
    """
    data = text.encode("utf-8", "surrogateescape") if isinstance(text, str) else text
    new = new or path + ".new"
    patiently(remove, new)
    with open(os.open(new, WRITE | os.O_EXCL, 0o644), "wb") as stream:
        stream.write(data)
        if sync:
            stream.flush()
            os.fsync(stream.fileno())
    if os.path.isdir(path):
        remove(path)
    patiently(os.replace, new, path)


def is_file(path: str) -> bool:
    """Return True for a regular file that is not a link."""
    return os.path.isfile(path) and not os.path.islink(path)


def remove(path: str) -> None:
    """Remove a path with everything in it, without following links."""
    if os.path.isdir(path) and not os.path.islink(path):
        for top, folders, files in os.walk(path, topdown=False):
            for name in files:
                os.unlink(f"{top}/{name}")
            for name in folders:
                folder = f"{top}/{name}"
                if os.path.islink(folder):
                    os.unlink(folder)
                else:
                    os.rmdir(folder)
        os.rmdir(path)
    elif os.path.lexists(path):
        os.unlink(path)


def whole(path: str) -> str:
    """Return the SHA-256 of a file."""
    digest = hashlib.sha256()
    feed(path, digest.update)
    return digest.hexdigest()


def sign(path: str, size: str) -> None:
    """Print the kind, the size, and for each block of 64 KiB CRC-32 of its quarters and its first
    bytes.

    The signature only finds possible matches; the hash of the whole decides.
    """
    import zlib

    lines = []
    total, quarter = 0, int(size) // 4
    with open(path, "rb") as stream:
        while True:
            block = memoryview(stream.read(int(size)))
            if not block:
                break
            total += len(block)
            parts = [zlib.crc32(block[at : at + quarter]) for at in range(0, int(size), quarter)]
            digest = b"".join(part.to_bytes(4, "big") for part in parts)
            lines.append((digest + bytes(block[:16]).ljust(16, b"\0")).hex())
    say("crc32-4", str(total), *lines)
