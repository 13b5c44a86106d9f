"""Bytes to and from the adb server: frames of standard input, whole sends, a quick end."""

from __future__ import annotations

import contextlib
import socket

from adbutils import AdbConnection

from fleet.model.deadline import Deadline
from fleet.transport.shellv2 import FRAME_BYTES, HEAD, Id


class Writer:
    """Sends chunks as frames of standard input."""

    def __init__(self, link: socket.socket, deadline: Deadline) -> None:
        self._link = link
        self._deadline = deadline

    def __call__(self, chunk: bytes) -> None:
        """All of a chunk, as frames of at most FRAME_BYTES."""
        view = memoryview(chunk)
        for at in range(0, len(view), FRAME_BYTES):
            part = view[at : at + FRAME_BYTES]
            send(self._link, [HEAD.pack(Id.STDIN, len(part)), part], self._deadline)


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


def shut(link: AdbConnection) -> None:
    """Close at once; adbutils would sleep before it."""
    with contextlib.suppress(Exception):
        link.conn.shutdown(socket.SHUT_RDWR)
    with contextlib.suppress(Exception):
        link.conn.close()
