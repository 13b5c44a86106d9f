"""A socket on which a handshake does not wait for timers.

Until its first session OpenSSH's server gathers small packets (Nagle), and the kernel here
acknowledges late: each side waits 40 ms for the other, once for the user's key and once for the
first command (seen with strace; OpenSSH 9.2 on loopback).
"""

from __future__ import annotations

import socket
from typing import TypeVar

_FIRST = 64  # readings of a handshake and a first session
_S = TypeVar("_S")


def prompt(sock: _S) -> _S | socket.socket:
    """The same connection as a prompt socket, where it is one of TCP; else as it is."""
    if isinstance(sock, socket.socket) and sock.family in {socket.AF_INET, socket.AF_INET6}:
        return _Prompt(sock)
    return sock


class _Prompt(socket.socket):
    """Sends at once; while the connection is young, acknowledges at once too."""

    def __init__(self, sock: socket.socket) -> None:
        limit = sock.gettimeout()
        super().__init__(sock.family, sock.type, sock.proto, fileno=sock.detach())
        self.settimeout(limit)
        self._first = _FIRST if hasattr(socket, "TCP_QUICKACK") else 0
        self.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def recv(self, bufsize: int, flags: int = 0) -> bytes:
        """See socket.recv. The kernel forgets TCP_QUICKACK, so it is said each time."""
        data = super().recv(bufsize, flags)
        if self._first:
            self._first -= 1
            self.setsockopt(socket.IPPROTO_TCP, socket.TCP_QUICKACK, 1)
        return data
