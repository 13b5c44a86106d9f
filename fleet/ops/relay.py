"""The relay of a blob from one board to another: the command on the source, and its answer."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from fleet.device.shell import device_script
from fleet.ops.batches import BLOCK, mode_of
from fleet.ops.upload import Receipt
from fleet.transport.quote import render

if TYPE_CHECKING:
    from fleet.model.command import Command
    from fleet.model.plan import Blob
    from fleet.transport.neighbour import Peer

PIECE_BLOCKS = 8  # as in relay.sh: sent for each line from the workstation
WINDOW = 2  # pieces in flight without a new line: 16 MiB hide 0.1 s of latency to the workstation
_LOOK_SECONDS = 0.25


def opening(blob: Blob, worker: bytes) -> str:
    """Return the part of a frame stream (fleet/ops/frames.py) that precedes this one blob's bytes.

    `worker` is the program that receives it, b"" if the device has no Python.
    """
    item = blob.file
    blocks, rest = divmod(blob.left, BLOCK)
    words = (item.sha256, item.size, blob.offset, mode_of(blob), blocks, rest, "raw", item.size)
    return worker.decode() + " ".join(map(str, words)) + "\n"


def relay_command(blob: Blob, base: str, target: Peer, take: Command, worker: bytes) -> Command:
    """Return the command that sends the blob from the store under `base` to `take` on `target`."""
    item = blob.file
    block, byte = divmod(blob.offset, BLOCK)
    return device_script(
        "relay",
        f"{base}/store/{item.sha256}",
        str(item.size),
        target.key,
        target.address,
        str(target.port),
        target.user,
        str(math.ceil(target.seconds)),
        opening(blob, worker),
        render(take),
        str(block),
        str(byte + 1),
        str(_blocks(item.size)),
    )


def _blocks(size: int) -> int:
    return -(-size // BLOCK)


@dataclass
class Passage:
    """The progress of a relay: the messages of the source, and its permission to continue.

    `report` is called with the sent bytes of the blob. `check` raises if nothing more may be sent.
    `admitted` is called after the source's login on the target; then `inside` is True. `refused` is
    the reason if the source does not try; `gone` means that it has no such blob.
    """

    blob: Blob
    report: Callable[[int], object]
    check: Callable[[], object]
    admitted: Callable[[], object] | None = None
    inside: bool = False
    refused: str = ""
    gone: bool = False
    receipt: Receipt = field(default_factory=Receipt)
    _rest: bytes = b""
    _sent: int = field(init=False)
    _news: threading.Condition = field(default_factory=threading.Condition)

    def __post_init__(self) -> None:
        self._sent = self.blob.offset // BLOCK

    def take(self, chunk: bytes) -> None:
        """Parse one chunk of the source's standard output, which includes the lines of
        receive.sh.
        """
        *lines, self._rest = (self._rest + chunk).split(b"\n")
        for line in lines:
            kind, _, rest = line.decode("utf-8", "replace").partition(" ")
            if kind == "sent" and rest.isdigit():
                self._went(int(rest))
            elif kind == "relay" and rest == "in":
                self.inside = True
                if self.admitted is not None:
                    self.admitted()
            elif kind == "relay":
                why, _, self.refused = rest.partition(" ")
                self.gone = why == "gone"
            else:
                self.receipt.take(line + b"\n")

    def _went(self, blocks: int) -> None:
        size = self.blob.file.size
        with self._news:
            self._sent = max(self._sent, min(blocks, _blocks(size)))
            self._news.notify_all()
        self.report(min(self._sent * BLOCK, size) - self.blob.offset)

    def leave(self) -> Iterator[bytes]:
        """Yield the standard input of relay.sh: a line for each piece, at most WINDOW pieces ahead.

        While there is nothing to send, an empty chunk is yielded from time to time, so that the
        reader can stop and check the lease.
        """
        first, end = self.blob.offset // BLOCK, _blocks(self.blob.file.size)
        given = first
        while given < end:
            with self._news:
                limit = self._sent + WINDOW * PIECE_BLOCKS
                if given >= limit:
                    self._news.wait(_LOOK_SECONDS)
                    limit = self._sent + WINDOW * PIECE_BLOCKS
            self.check()
            if given >= limit:
                yield b""
                continue
            # A first piece that begins within a block is only that block.
            alone = given == first and self.blob.offset % BLOCK
            given += 1 if alone else PIECE_BLOCKS
            yield b"\n"
