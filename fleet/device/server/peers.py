"""The origin of a connection: the user of the program at its other end, or its address.

For a program on the same board sock_diag(7) is used: the kernel reports the owner of a TCP socket
by its two ends to any user, without a search in /proc/net/tcp.
"""

from __future__ import annotations

import socket
import struct
import sys
from typing import Any, Optional

_SOCK_DIAG = 4  # netlink family NETLINK_SOCK_DIAG
_BY_FAMILY = 20  # SOCK_DIAG_BY_FAMILY, of linux/sock_diag.h
_REQUEST = 1  # NLM_F_REQUEST
_TCP = 6
_ESTABLISHED = 1
_HEADER = struct.Struct("=IHHII")  # nlmsghdr: length, type, flags, number, port
_ENDS = struct.Struct("!HH16s16s")  # of inet_diag_sockid: both ports and addresses
_ASKED = struct.Struct("=BBBxI")  # inet_diag_req_v2 before it: family, protocol, more, states
_REST = struct.pack("=III", 0, 0xFFFFFFFF, 0xFFFFFFFF)  # any interface, no cookie
_FOUND = struct.Struct("=BBBB")  # inet_diag_msg: family, state, timer, retransmissions
_UID_AT = _HEADER.size + _FOUND.size + _ENDS.size + len(_REST) + 12  # after three counters


class Peers:
    """A lookup that distinguishes connections by their origin."""

    def __init__(self) -> None:
        self._link = None  # type: Optional[socket.socket]
        if sys.platform == "linux":
            try:
                self._link = socket.socket(socket.AF_NETLINK, socket.SOCK_DGRAM, _SOCK_DIAG)
                self._link.settimeout(1.0)
            except OSError:  # SELinux of a phone, or a kernel without it
                self._link = None

    def close(self) -> None:
        """Close the netlink socket."""
        if self._link is not None:
            self._link.close()

    def origin(self, peer: Any, own: Any) -> str:
        """Return `uid N` of a program on this board, the address of another machine, or
        `unknown`.
        """
        if not peer or not own:
            return "unknown"
        if peer[0] != own[0]:
            return "address %s" % peer[0]
        try:
            uid = self._uid(peer, own)
        except (OSError, struct.error):
            uid = None
        return "unknown" if uid is None else "uid %d" % uid

    def _uid(self, peer: Any, own: Any) -> "Optional[int]":
        if self._link is None:
            return None
        family = socket.AF_INET6 if ":" in peer[0] else socket.AF_INET
        ends = (socket.inet_pton(family, end[0]) for end in (peer, own))
        body = _ASKED.pack(family, _TCP, 0, 1 << _ESTABLISHED)
        body += _ENDS.pack(peer[1], own[1], *ends) + _REST
        self._link.send(_HEADER.pack(_HEADER.size + len(body), _BY_FAMILY, _REQUEST, 1, 0) + body)
        reply = self._link.recv(4096)
        if _HEADER.unpack_from(reply)[1] != _BY_FAMILY:  # an error: it is gone
            return None
        if _FOUND.unpack_from(reply, _HEADER.size)[1] != _ESTABLISHED:
            return None
        return int(struct.unpack_from("=I", reply, _UID_AT)[0])
