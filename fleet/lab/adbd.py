"""An emulator of adbd: the device side of the adb protocol, for the real adb server.

It serves an ordinary user. It can also show states that a real adbd cannot show on demand:
unauthorized, recovery, and no shell_v2. Start it with `python -m fleet.lab.adbd --port 5555 --root
DIR`. Protocol: packages/modules/adb/{protocol.txt,SERVICES.TXT,SYNC.TXT} of AOSP.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import os
import shutil
import signal
import socket
import stat
import struct
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

CNXN, AUTH, OPEN, OKAY, CLSE, WRTE = (
    int.from_bytes(word, "little")
    for word in (b"CNXN", b"AUTH", b"OPEN", b"OKAY", b"CLSE", b"WRTE")
)
VERSION = 0x01000001  # from this version on, the checksum is 0 and not checked
VERSION_SUMS = 0x01000000
MAX_PAYLOAD = 1 << 20
TOKEN, SIGNATURE, PUBLIC_KEY = 1, 2, 3
_HEAD = struct.Struct("<6I")


@dataclass(frozen=True)
class Manner:
    """The behaviour of a daemon. `auth` is none, key (accepts the first key) or never."""

    banner: str
    auth: str = "none"


class AdbStream:
    """A stream of a connection. `write` waits for the peer's OKAY, so one packet is in flight."""

    def __init__(self, link: DaemonConnection, local: int, remote: int) -> None:
        self._link, self.local, self.remote = link, local, remote
        self._buffer = bytearray()
        self._changed = asyncio.Event()
        self._clear = asyncio.Event()
        self._clear.set()
        self._ended = False
        self._open = False

    async def accept(self) -> None:
        """Report that the service exists. Without this, the peer gets CLSE."""
        self._open = True
        await self._link.send(OKAY, self.local, self.remote)

    def take(self, data: bytes) -> None:
        """Add bytes that the peer sent."""
        self._buffer += data
        self._changed.set()

    def ready(self) -> None:
        """Record that the peer has accepted the last packet."""
        self._clear.set()

    def end(self) -> None:
        """Record that the peer closed the stream: readers and writers get EOFError."""
        self._ended = True
        self._changed.set()
        self._clear.set()

    async def read(self) -> bytes:
        """Return all buffered bytes; wait for at least one byte. Raises EOFError."""
        while not self._buffer:
            await self._more()
        data = bytes(self._buffer)
        self._buffer.clear()
        return data

    async def exactly(self, count: int) -> bytes:
        """Return exactly `count` bytes. Raises EOFError."""
        while len(self._buffer) < count:
            await self._more()
        data = bytes(self._buffer[:count])
        del self._buffer[:count]
        return data

    async def _more(self) -> None:
        if self._ended:
            raise EOFError
        self._changed.clear()
        await self._changed.wait()

    async def write(self, data: bytes) -> None:
        """Write all of the data. Raises EOFError if the peer closed the stream."""
        for at in range(0, len(data), self._link.max_payload):
            await self._clear.wait()
            if self._ended:
                raise EOFError
            self._clear.clear()
            part = data[at : at + self._link.max_payload]
            await self._link.send(WRTE, self.local, self.remote, part)

    async def close(self) -> None:
        """Close the stream from this side after the peer has accepted everything written."""
        await self._clear.wait()
        if not self._ended:
            await self._link.send(CLSE, self.local if self._open else 0, self.remote)
        self._link.streams.pop(self.local, None)


Service = Callable[[AdbStream, str], Awaitable[None]]


class DaemonConnection:
    """A connection of one adb server."""

    def __init__(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        manner: Manner,
        service: Service,
    ) -> None:
        self._reader, self._writer = reader, writer
        self._manner, self._service = manner, service
        self.streams: dict[int, AdbStream] = {}
        self.max_payload = 4096
        self._version = VERSION_SUMS
        self._count = 0
        self._tasks: set[asyncio.Task[None]] = set()
        self._sending = asyncio.Lock()

    async def send(self, command: int, first: int, second: int, data: bytes = b"") -> None:
        """Send one packet."""
        total = 0 if self._version >= VERSION else sum(data) & 0xFFFFFFFF
        head = _HEAD.pack(command, first, second, len(data), total, command ^ 0xFFFFFFFF)
        async with self._sending:
            self._writer.write(head + data)
            await self._writer.drain()

    async def serve(self) -> None:
        """Serve packets until the connection ends."""
        try:
            while True:
                head = await self._reader.readexactly(_HEAD.size)
                command, first, second, size, _, magic = _HEAD.unpack(head)
                if command ^ 0xFFFFFFFF != magic or size > MAX_PAYLOAD:
                    return
                await self._obey(command, first, second, await self._reader.readexactly(size))
        except (asyncio.IncompleteReadError, ConnectionError):
            return
        finally:
            for stream in self.streams.values():
                stream.end()
            self._writer.close()

    async def _obey(self, command: int, first: int, second: int, data: bytes) -> None:
        stream = self.streams.get(second)
        if command == CNXN:
            self._version, self.max_payload = min(first, VERSION), min(second, MAX_PAYLOAD)
            await (self._welcome() if self._manner.auth == "none" else self._ask())
        elif command == AUTH and first == PUBLIC_KEY and self._manner.auth == "key":
            await self._welcome()
        elif command == AUTH and first == SIGNATURE:
            await self._ask()
        elif command == OPEN:
            await self._open(first, data.rstrip(b"\0").decode("utf-8", "replace"))
        elif command == WRTE and stream is not None:
            stream.take(data)
            await self.send(OKAY, stream.local, stream.remote)
        elif command == OKAY and stream is not None:
            stream.ready()
        elif command == CLSE and stream is not None:
            self.streams.pop(second).end()

    async def _welcome(self) -> None:
        await self.send(CNXN, VERSION, MAX_PAYLOAD, self._manner.banner.encode())

    async def _ask(self) -> None:
        await self.send(AUTH, TOKEN, 0, os.urandom(20))

    async def _open(self, remote: int, name: str) -> None:
        self._count += 1
        stream = self.streams[self._count] = AdbStream(self, self._count, remote)
        task = asyncio.create_task(self._run(stream, name))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _run(self, stream: AdbStream, name: str) -> None:
        try:
            await self._service(stream, name)
        except (EOFError, ConnectionError):
            pass
        finally:
            with contextlib.suppress(ConnectionError):
                await stream.close()


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


# The services `shell:`, `shell,v2:` and `exec:`: a real shell of this machine.

_FRAME = struct.Struct("<BI")
_STDIN, _STDOUT, _STDERR, _EXIT, _CLOSE_STDIN = range(5)


async def serve_shell(
    stream: AdbStream, command: str, *, framed: bool, argv: Sequence[str], env: Mapping[str, str]
) -> None:
    """Run `command` with the shell `argv`. `framed` selects the shell protocol (v2)."""
    process = await asyncio.create_subprocess_exec(
        *argv,
        *(("-c", command) if command else ()),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE if framed else asyncio.subprocess.STDOUT,
        env=dict(env),
        cwd=env.get("HOME", "/"),
        start_new_session=True,
    )
    feeding = asyncio.create_task(_feed(stream, process, framed=framed))
    try:
        async with asyncio.TaskGroup() as group:
            for source, number in ((process.stdout, _STDOUT), (process.stderr, _STDERR)):
                if source is not None:
                    group.create_task(_pass_on(source, stream, number if framed else None))
        status = await process.wait()
        if framed:
            code = status & 255 if status >= 0 else 128 - status
            await stream.write(_FRAME.pack(_EXIT, 1) + bytes([code]))
    except* (EOFError, ConnectionError):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGHUP)
    finally:
        feeding.cancel()


async def _pass_on(source: asyncio.StreamReader, stream: AdbStream, number: int | None) -> None:
    while chunk := await source.read(1 << 16):
        head = b"" if number is None else _FRAME.pack(number, len(chunk))
        await stream.write(head + chunk)


async def _feed(stream: AdbStream, process: asyncio.subprocess.Process, *, framed: bool) -> None:
    sink = process.stdin
    if sink is None:
        return
    try:
        while True:
            if framed:
                kind, size = _FRAME.unpack(await stream.exactly(_FRAME.size))
                data = await stream.exactly(size)
                if kind == _CLOSE_STDIN:
                    break
                if kind != _STDIN:
                    continue
            else:
                data = await stream.read()
            with contextlib.suppress(ConnectionError):
                sink.write(data)
                await sink.drain()
    except (EOFError, ConnectionError):
        pass
    finally:
        sink.close()


FEATURES = "shell_v2,cmd,stat_v2,ls_v2,fixed_push_mkdir"
OLD_FEATURES = "cmd"


class Adbd:
    """A daemon that serves each connection with the same banner, root folder and shell."""

    def __init__(self, options: argparse.Namespace) -> None:
        features = OLD_FEATURES if options.old else FEATURES
        self._old = options.old
        self._manner = Manner(f"{options.state}::features={features}", options.auth)
        self._root = Path(options.root)
        shell = shutil.which("mksh") or "/bin/sh"
        self._argv = (shell,)
        self._env = dict(os.environ)

    async def _service(self, stream: AdbStream, name: str) -> None:
        kind, _, rest = name.partition(":")
        words = kind.split(",")
        if kind == "sync":
            await stream.accept()
            await Sync(stream, self._root).serve()
        elif words[0] in {"shell", "exec"} and not (self._old and "v2" in words):
            await stream.accept()
            await serve_shell(stream, rest, framed="v2" in words, argv=self._argv, env=self._env)

    async def connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve one connection of an adb server."""
        raw = writer.get_extra_info("socket")
        raw.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        await DaemonConnection(reader, writer, self._manner, self._service).serve()


async def main() -> None:
    """Serve until the process is killed."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--root", required=True)
    parser.add_argument("--auth", default="none", choices=("none", "key", "never"))
    parser.add_argument("--state", default="device", choices=("device", "recovery", "sideload"))
    parser.add_argument("--old", action="store_true", help="an adbd without shell_v2")
    options = parser.parse_args()
    daemon = Adbd(options)
    server = await asyncio.start_server(
        daemon.connected, "127.0.0.1", options.port, limit=4 << 20, reuse_address=True
    )
    async with server:
        await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(main())
