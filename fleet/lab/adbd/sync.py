"""The service `sync:`, which lists, stats, sends and receives files. Source: SYNC.TXT of AOSP."""

from __future__ import annotations

import os
import stat
import struct
from pathlib import Path

from fleet.lab.adbd.wire import AdbStream

_ASK = struct.Struct("<4sI")
_STAT2 = struct.Struct("<IQQIIIIQqqq")
_CHUNK = 1 << 16


class Sync:
    """A `sync:` stream over the files below a root."""

    def __init__(self, stream: AdbStream, root: Path) -> None:
        self._stream, self._root = stream, root

    async def serve(self) -> None:
        """Serve requests until QUIT. Raises EOFError if the peer closes the stream."""
        while True:
            kind, size = _ASK.unpack(await self._stream.exactly(_ASK.size))
            if kind == b"QUIT":
                return
            text = (await self._stream.exactly(size)).decode("utf-8", "replace")
            if kind == b"SEND":
                await self._receive(text)
            elif kind == b"RECV":
                await self._give(self._path(text))
            elif kind in {b"LIST", b"LIS2"}:
                await self._list(self._path(text), b"DNT2" if kind == b"LIS2" else b"DENT")
            elif kind == b"STAT":
                await self._stream.write(b"STAT" + _old(self._path(text)))
            elif kind in {b"STA2", b"LST2"}:
                await self._stream.write(kind + _new(self._path(text), follow=kind == b"STA2"))
            else:
                await self._fail(f"unknown request {kind!r}")
                return

    def _path(self, text: str) -> Path:
        return self._root / text.lstrip("/")

    async def _fail(self, why: str) -> None:
        data = why.encode()
        await self._stream.write(_ASK.pack(b"FAIL", len(data)) + data)

    async def _list(self, folder: Path, kind: bytes) -> None:
        for path in sorted(folder.iterdir()) if folder.is_dir() else ():
            name = path.name.encode()
            about = _new(path, follow=False) if kind == b"DNT2" else _old(path)
            await self._stream.write(kind + about + struct.pack("<I", len(name)) + name)
        await self._stream.write(b"DONE" + bytes(_STAT2.size + 4 if kind == b"DNT2" else 16))

    async def _give(self, path: Path) -> None:
        try:
            with path.open("rb") as source:
                while chunk := source.read(_CHUNK):
                    await self._stream.write(_ASK.pack(b"DATA", len(chunk)) + chunk)
        except OSError as error:
            await self._fail(f"{error.strerror}")
            return
        await self._stream.write(b"DONE" + bytes(4))

    async def _receive(self, text: str) -> None:
        """Receive a file.

        Like the real adbd, report an error only at the end, and delete a partial file.
        """
        name, _, mode = text.rpartition(",")
        path, why, sink = self._path(name), "", None
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.unlink(missing_ok=True)
            sink = path.open("wb", buffering=0)
        except OSError as error:
            why = f"couldn't create file: {error.strerror}"
        try:
            while True:
                kind, size = _ASK.unpack(await self._stream.exactly(_ASK.size))
                if kind == b"DONE":
                    break
                data = await self._stream.exactly(size)
                if sink is not None and not why:
                    try:
                        sink.write(data)
                    except OSError as error:
                        why = f"write failed: {error.strerror}"
        except EOFError:
            path.unlink(missing_ok=True)
            raise
        finally:
            if sink is not None:
                sink.close()
        if why:
            await self._fail(why)
            return
        path.chmod(int(mode) & 0o777)
        os.utime(path, (size, size))
        await self._stream.write(b"OKAY" + bytes(4))


def _old(path: Path) -> bytes:
    """Return mode, size and mtime in 32 bits each; the size is wrong above 4 GiB."""
    try:
        status = path.lstat()
    except OSError:
        return bytes(12)
    return struct.pack("<III", status.st_mode, status.st_size & 0xFFFFFFFF, int(status.st_mtime))


def _new(path: Path, *, follow: bool) -> bytes:
    try:
        status = path.stat() if follow else path.lstat()
    except OSError as error:
        return _STAT2.pack(error.errno or 5, *[0] * 10)
    times = (int(status.st_atime), int(status.st_mtime), int(status.st_ctime))
    owner = (status.st_nlink, status.st_uid, status.st_gid)
    head = (
        0,
        status.st_dev,
        status.st_ino,
        stat.S_IFMT(status.st_mode) | stat.S_IMODE(status.st_mode),
    )
    return _STAT2.pack(*head, *owner, status.st_size, *times)
