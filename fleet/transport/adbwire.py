"""The protocol on a connection to the adb server, and the shell protocol of the phone.

A request to the server is a length and a text. The answer is OKAY, or FAIL and a reason
(packages/modules/adb/OVERVIEW.TXT of AOSP). adbutils implements it too, but its import takes 0.15
s; fleet uses only the adb program from there.

The shell protocol has three streams and an exit status. A frame is an id (one byte), a length (32
bits, little endian) and the bytes: packages/modules/adb/shell_protocol.h. Android 7 and later have
it (feature shell_v2).
"""

from __future__ import annotations

import contextlib
import os
import socket
import struct
import sys
from collections.abc import Callable, Iterator
from enum import IntEnum

from fleet.model.deadline import Deadline
from fleet.model.files import Span

_LENGTH = 4  # hexadecimal digits
_WAITING_BYTES = 1 << 18
HEAD = struct.Struct("<BI")
# 64 KiB frames are half as fast, 1 MiB is no faster. adbd 34 loses a truncated frame completely.
FRAME_BYTES = 1 << 18


class RefusedError(Exception):
    """A FAIL with the server's own text, or an answer outside the protocol."""


class AdbConnection:
    """An open connection. Its reads raise OSError (TimeoutError), EOFError, ValueError."""

    def __init__(self, host: str, port: int, seconds: float) -> None:
        self.conn = socket.create_connection((host, port), seconds)
        self.conn.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        if sys.platform == "linux":
            self.conn.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, 10)
            self.conn.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPCNT, 3)
            self.conn.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, 10)

    def ask(self, service: str) -> None:
        """Request a service. The answer is read afterwards."""
        line = service.encode()
        self.conn.sendall(b"%04x" % len(line) + line)

    def read(self, count: int) -> bytes:
        """Read `count` bytes, or fewer if the server closed the connection."""
        data = b""
        while len(data) < count:
            more = self.conn.recv(count - len(data))
            if not more:
                break
            data += more
        return data

    def block(self) -> str:
        """Read a text that follows its length. Raises EOFError."""
        head = self.read(_LENGTH)
        size = int(head, 16) if len(head) == _LENGTH else 0
        data = self.read(size)
        if len(head) < _LENGTH or len(data) < size:
            raise EOFError("the connection was closed")
        return data.decode("utf-8", "replace")

    def check(self) -> None:
        """Read the OKAY. Raises RefusedError."""
        answer = self.read(_LENGTH)
        if answer != b"OKAY":
            raise RefusedError(self.block() if answer == b"FAIL" else f"no answer: {answer!r}")

    def close(self) -> None:
        """Close the connection at once, even while another thread reads from it."""
        with contextlib.suppress(OSError):
            self.conn.shutdown(socket.SHUT_RDWR)
        with contextlib.suppress(OSError):
            self.conn.close()


class Id(IntEnum):
    """The content of a frame."""

    STDIN = 0
    STDOUT = 1
    STDERR = 2
    EXIT = 3
    CLOSE_STDIN = 4


CLOSE = HEAD.pack(Id.CLOSE_STDIN, 0)


class Decoder:
    """A decoder of the shell protocol. `status` is None until the exit frame arrives."""

    def __init__(self, stdout: Callable[[bytes], None], stderr: Callable[[bytes], None]) -> None:
        self._sinks = {int(Id.STDOUT): stdout, int(Id.STDERR): stderr}
        self._rest = bytearray()
        self.status: int | None = None

    def take(self, chunk: bytes) -> None:
        """Decode a chunk into the sinks and `status`. An incomplete frame waits for the next."""
        self._rest += chunk
        at = 0
        while len(self._rest) - at >= HEAD.size:
            kind, size = HEAD.unpack_from(self._rest, at)
            if len(self._rest) - at - HEAD.size < size:
                break
            body = bytes(self._rest[at + HEAD.size : at + HEAD.size + size])
            at += HEAD.size + size
            if kind == Id.EXIT:
                self.status = body[0] if body else 0
            elif kind in self._sinks and body:
                self._sinks[kind](body)
        del self._rest[:at]


class FrameWriter:
    """A writer that sends chunks as frames of standard input."""

    def __init__(self, link: socket.socket, deadline: Deadline) -> None:
        self._link = link
        self._deadline = deadline
        self._buffer: memoryview | None = None

    def __call__(self, chunk: bytes | memoryview) -> None:
        """Send a whole chunk in frames of at most FRAME_BYTES."""
        view = memoryview(chunk)
        for at in range(0, len(view), FRAME_BYTES):
            part = view[at : at + FRAME_BYTES]
            send(self._link, [HEAD.pack(Id.STDIN, len(part)), part], self._deadline)

    def move(self, span: Span) -> None:
        """Send the bytes of a file through one reused buffer, which avoids page faults.

        sendfile was measured too: the adb server then needs half as much processor time again.
        """
        if self._buffer is None:
            self._buffer = memoryview(bytearray(FRAME_BYTES))
        with _opened(span) as source:
            at = span.start
            while at < span.end:
                part = self._buffer[: min(FRAME_BYTES, span.end - at)]
                count = _read(source, part, at, span)
                if not count:
                    raise span.changed()
                self(part[:count])
                at += count


@contextlib.contextmanager
def _opened(span: Span) -> Iterator[int]:
    try:
        source = os.open(span.path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError as error:
        raise span.changed() from error
    try:
        yield source
    finally:
        os.close(source)


def _read(source: int, into: memoryview, at: int, span: Span) -> int:
    try:
        return os.preadv(source, [into], at)
    except OSError as error:  # of a disk; must not be mistaken for a phone that stopped reading
        raise span.changed() from error


def keep_warm(link: socket.socket) -> None:
    """Limit the send buffer to a server on this machine, so that the data stays in the CPU cache.

    The kernel would buffer 4 MiB. With a quarter the server needed a little less processor time.
    """
    link.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _WAITING_BYTES)


def send(link: socket.socket, parts: list[bytes | memoryview], deadline: Deadline) -> None:
    """Send all bytes of `parts`. Raises TimeoutError if the socket is full past the deadline."""
    views = [memoryview(part) for part in parts]
    while views:
        try:
            sent = link.sendmsg(views)
        except TimeoutError:
            if deadline.expired:
                raise
            continue
        deadline.touch()
        while views and sent >= len(views[0]):
            sent -= len(views.pop(0))
        if sent:
            views[0] = views[0][sent:]
