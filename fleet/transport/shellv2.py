"""The shell protocol of adbd: three streams and an exit status in one connection.

Frames are an id (one byte) and a length (32 bits, little endian), then the bytes:
packages/modules/adb/shell_protocol.h. Android 7 and later have it (feature shell_v2).
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from enum import IntEnum

HEAD = struct.Struct("<BI")
# 64 KiB are half as fast, 1 MiB are no faster; a frame that was cut is lost whole (adbd 34).
FRAME_BYTES = 1 << 18


class Id(IntEnum):
    """What a frame holds."""

    STDIN = 0
    STDOUT = 1
    STDERR = 2
    EXIT = 3
    CLOSE_STDIN = 4


CLOSE = HEAD.pack(Id.CLOSE_STDIN, 0)


class Decoder:
    """Takes the bytes of a connection as they come; `status` is set by the exit frame."""

    def __init__(self, stdout: Callable[[bytes], None], stderr: Callable[[bytes], None]) -> None:
        self._sinks = {int(Id.STDOUT): stdout, int(Id.STDERR): stderr}
        self._rest = bytearray()
        self.status: int | None = None

    def take(self, chunk: bytes) -> None:
        """Some bytes; what is left of a frame waits for the next."""
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
