"""Packets of adb and the streams that they carry."""

from __future__ import annotations

import asyncio
import contextlib
import os
import struct
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

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
