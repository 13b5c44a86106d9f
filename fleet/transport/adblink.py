"""One connection to the adb server: a length and a request, then OKAY, or FAIL and a reason.

Protocol: packages/modules/adb/OVERVIEW.TXT of AOSP. adbutils speaks it as well, but importing it
takes 0.15 s; from there we have only the adb program.
"""

from __future__ import annotations

import contextlib
import socket
import sys

_LENGTH = 4  # hexadecimal digits


class RefusedError(Exception):
    """FAIL, with the server's own words; or an answer that is none."""


class Link:
    """An open connection. Its reads raise OSError (TimeoutError), EOFError, ValueError."""

    def __init__(self, host: str, port: int, seconds: float) -> None:
        self.conn = socket.create_connection((host, port), seconds)
        self.conn.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        if sys.platform == "linux":
            self.conn.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, 10)
            self.conn.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPCNT, 3)
            self.conn.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, 10)

    def ask(self, service: str) -> None:
        """Name a service; the answer is read next."""
        line = service.encode()
        self.conn.sendall(b"%04x" % len(line) + line)

    def read(self, count: int) -> bytes:
        """So many bytes; fewer where the server closed the connection."""
        data = b""
        while len(data) < count:
            more = self.conn.recv(count - len(data))
            if not more:
                break
            data += more
        return data

    def block(self) -> str:
        """A text with its length ahead."""
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
        """Close at once, also under a thread that reads."""
        with contextlib.suppress(OSError):
            self.conn.shutdown(socket.SHUT_RDWR)
        with contextlib.suppress(OSError):
            self.conn.close()
