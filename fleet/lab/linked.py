"""A board whose daemon listens in its own network namespace. The lab forwards connections to it."""

from __future__ import annotations

import contextlib
import ctypes
import os
import socket
import threading
import time
from pathlib import Path

from fleet.lab.folder import Board, LabFolder
from fleet.lab.namespace import NamespaceBoard
from fleet.lab.process import last_words
from fleet.model.errors import LabError

_DIAL_SECONDS = 5.0
_IDLE_SECONDS = 5
_PIPE_BYTES = 1 << 20  # one packet of adb
_NET = 0x40000000  # CLONE_NEWNET


class LinkedBoard(NamespaceBoard):
    """A board reached through forwarded connections.

    `address` is where the daemon of the board listens, `greeting` the first bytes that it sends.
    """

    address = ("127.0.0.1", 0)
    greeting = b""
    ready_seconds = 60.0

    def __init__(self, board: Board, folder: LabFolder, base: Path) -> None:
        super().__init__(board, folder, base)
        self._links: list[socket.socket] = []

    def wait(self) -> None:
        """Wait until the daemon answers. Raises LabError."""
        super().wait()
        end = time.monotonic() + self.ready_seconds
        while time.monotonic() < end and self._init and self._init.poll() is None:
            with contextlib.suppress(OSError), self._dial() as link:
                link.settimeout(_DIAL_SECONDS)
                if link.recv(len(self.greeting)) == self.greeting:
                    return
            time.sleep(0.01)
        raise LabError(
            f"{self.board.name} does not answer: {last_words(self._log) or 'too slow'}",
            hint=f"fleet lab reset {self.board.name}",
        )

    def accept(self) -> None:
        """Accept a connection and forward its bytes to and from the daemon until either ends."""
        if self._listener is None:
            return
        near, _ = self._listener.accept()
        threading.Thread(target=self._pass_on, args=(near,), daemon=True).start()

    def _pass_on(self, near: socket.socket) -> None:
        try:
            far = self._dial()
        except OSError:
            near.close()
            return
        self._links = [link for link in self._links if link.fileno() >= 0] + [near, far]
        _join(near, far)

    def _dial(self) -> socket.socket:
        """Return a connection that was made inside the board's network namespace."""
        if not self.board.pid:
            raise ConnectionRefusedError("the board is off")
        link = _inside(self.board.pid)
        try:
            link.settimeout(_DIAL_SECONDS)
            link.connect(self.address)
            link.settimeout(None)
        except OSError:
            link.close()
            raise
        return link

    def power_off(self) -> None:
        """Kill pid 1 of the board with SIGKILL and end every connection."""
        super().power_off()
        links, self._links = self._links, []
        for link in links:
            _end(link)


def _inside(pid: int) -> socket.socket:
    """Return a socket of a process's network namespace.

    This thread then returns to its own namespace.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    with open("/proc/thread-self/ns/net", "rb") as own, open(f"/proc/{pid}/ns/net", "rb") as there:  # noqa: PTH123
        if libc.setns(there.fileno(), _NET):
            raise OSError(ctypes.get_errno(), "setns")
        try:
            return socket.socket()
        finally:
            if libc.setns(own.fileno(), _NET):
                os._exit(70)  # no code of this process may continue in a foreign network


def _join(near: socket.socket, far: socket.socket) -> None:
    """Forward bytes both ways until one side ends. The descriptors are closed only then."""
    for end in (near, far):
        end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    # a kernel that is gone does not close its connections
    far.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    far.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, _IDLE_SECONDS)
    far.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, _IDLE_SECONDS)
    back = threading.Thread(target=_pump, args=(far, near), daemon=True)
    back.start()
    _pump(near, far)
    back.join()
    near.close()
    far.close()


def _pump(source: socket.socket, sink: socket.socket) -> None:
    """Move bytes through a pipe without copying them into this process."""
    out, into = os.pipe()
    try:
        while count := os.splice(source.fileno(), into, _PIPE_BYTES):
            while count:
                count -= os.splice(out, sink.fileno(), count)
    except (OSError, ValueError):
        pass
    finally:
        os.close(out)
        os.close(into)
        _end(source)
        _end(sink)


def _end(link: socket.socket) -> None:
    with contextlib.suppress(OSError):
        link.shutdown(socket.SHUT_RDWR)
