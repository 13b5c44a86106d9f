"""Files on the device's disk: written, flushed, removed, read; Python 3.7 or newer."""

import hashlib
import os

from fleet.device.store.fleet_seal import say

TYPE_CHECKING = False  # the module typing takes 10 ms
if TYPE_CHECKING:
    from collections.abc import Callable

PIECE = 1 << 18


def feed(path: str, update: "Callable[[memoryview], object]") -> None:
    """All of a file through `update`."""
    view = memoryview(bytearray(PIECE))
    with open(path, "rb", buffering=0) as stream:
        while True:
            count = stream.readinto(view)
            if not count:
                return
            update(view[:count])


def small(name: str, data: memoryview, mode: int, place: int) -> None:
    """A small new file in an open folder."""
    file = os.open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode, dir_fd=place)
    try:
        while data:
            data = data[os.write(file, data) :]
    finally:
        os.close(file)


def flush(path: str) -> None:
    """The file system of a path is on the disk then. Another program can say which; Python not."""
    words = ["sync", "-f", path]
    try:
        if hasattr(os, "posix_spawnp"):  # without a copy of this process
            status = os.waitpid(os.posix_spawnp("sync", words, os.environ), 0)[1]
        else:
            status = os.spawnvp(os.P_WAIT, "sync", words)
    except OSError:
        status = 1
    if status:
        os.sync()


def remove(path: str) -> None:
    """Whatever stands there, with all in it; nothing is followed."""
    if os.path.isdir(path) and not os.path.islink(path):
        for top, folders, files in os.walk(path, topdown=False):
            for name in files:
                os.unlink(f"{top}/{name}")
            for name in folders:
                one = f"{top}/{name}"
                if os.path.islink(one):
                    os.unlink(one)
                else:
                    os.rmdir(one)
        os.rmdir(path)
    elif os.path.lexists(path):
        os.unlink(path)


def whole(path: str) -> str:
    """SHA-256 of a file."""
    digest = hashlib.sha256()
    feed(path, digest.update)
    return digest.hexdigest()


def sign(path: str, size: str) -> None:
    """The kind, the size, and for each block of 64 KiB CRC-32 of its quarters and its first bytes.

    It only finds what may be equal; the hash of the whole decides.
    """
    import zlib

    lines = []
    seen, quarter = 0, int(size) // 4
    with open(path, "rb") as stream:
        while True:
            block = memoryview(stream.read(int(size)))
            if not block:
                break
            seen += len(block)
            parts = [zlib.crc32(block[at : at + quarter]) for at in range(0, int(size), quarter)]
            digest = b"".join(one.to_bytes(4, "big") for one in parts)
            lines.append((digest + bytes(block[:16]).ljust(16, b"\0")).hex())
    say("crc32-4", str(seen), *lines)
