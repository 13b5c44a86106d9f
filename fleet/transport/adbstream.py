"""Bytes to and from the adb server: frames of standard input, whole sends, a quick end."""

from __future__ import annotations

import contextlib
import os
import socket
from collections.abc import Iterator

from fleet.model.deadline import Deadline
from fleet.model.files import Span
from fleet.transport.shellv2 import FRAME_BYTES, HEAD, Id

_WAITING_BYTES = 1 << 18


class Writer:
    """Sends chunks as frames of standard input."""

    def __init__(self, link: socket.socket, deadline: Deadline) -> None:
        self._link = link
        self._deadline = deadline
        self._buffer: memoryview | None = None

    def __call__(self, chunk: bytes | memoryview) -> None:
        """All of a chunk, as frames of at most FRAME_BYTES."""
        view = memoryview(chunk)
        for at in range(0, len(view), FRAME_BYTES):
            part = view[at : at + FRAME_BYTES]
            send(self._link, [HEAD.pack(Id.STDIN, len(part)), part], self._deadline)

    def move(self, span: Span) -> None:
        """The bytes of a file, through one buffer: a new MiB at a time costs its page faults.

        sendfile was tried: the adb server then needs half as much processor time again.
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
    except OSError as error:  # of a disk; not to be taken for a phone that stopped reading
        raise span.changed() from error


def keep_warm(link: socket.socket) -> None:
    """For a server on this machine: what waits for it then stays in the processor's cache.

    The kernel would let 4 MiB wait; with a quarter the server took a little less processor time.
    """
    link.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _WAITING_BYTES)


def send(link: socket.socket, parts: list[bytes | memoryview], deadline: Deadline) -> None:
    """All bytes of a few parts; a full socket is waited for until the deadline."""
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
