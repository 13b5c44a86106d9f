"""What two versions of a large file have in common, by the block signature of the old one.

Blocks of the old content are found at any place of the new one: at their own place and at every
multiple of 64 KiB by their digest, in what was pushed along by some bytes by their first bytes.
Nothing is believed: the device hashes the whole new content before it gets its name.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from dataclasses import replace
from functools import cached_property
from typing import BinaryIO

from fleet.content.signatures import ANCHOR, DIGESTS, BlockSignature
from fleet.model.files import BLOCK_BYTES, FileRef
from fleet.model.plan import Delta, Piece

SMALLEST = 4 << 20  # below, the bytes cost less than the looking
WORTH = 0.6  # of the bytes; a delta that saves less costs the device more than the link
MOST_PIECES = 2000  # each starts a program on the device
STRIDE = 64  # blocks that are compared at once where both signatures are known
_WINDOW = 4 << 20
_NEAR = 32  # old blocks whose beginning is looked for
_FIRST = 3  # and the first ones: content that stands behind something else
_PATIENCE = 64 << 20  # bytes without a find: another content, not a moved one
_WRONG = 500  # beginnings that many blocks share


def delta(
    item: FileRef, base: str, old: BlockSignature, new: BlockSignature | None = None
) -> Delta | None:
    """How `item` comes out of the blob `base`; None where that is not worth it.

    `new` is the signature of `item`, of the same kind, where it is known: then only what
    differs is read. Raises OSError.
    """
    if item.size < SMALLEST or not old.blocks:
        return None
    known = new if new is not None and new.kind == old.kind and new.size == item.size else None
    with item.source.open("rb") as stream:
        pieces = joined(_Search(stream, item.size, old).pieces(known))
    found = Delta(base, tuple(pieces))
    worth = found.bytes <= item.size * WORTH and len(pieces) <= MOST_PIECES
    return found if worth and found.pieces[-1].end == item.size else None


def after(found: Delta, offset: int) -> Delta:
    """What is left of a delta when the device has `offset` bytes of the new content."""
    return replace(found, pieces=tuple(joined(_between(found.pieces, offset, sys.maxsize))))


def made_over(found: Delta, spare: str, old: BlockSignature, new: BlockSignature) -> Delta:
    """The same content out of the file `spare`, in its place: what is equal there stays."""
    pieces: list[Piece] = []
    at = 0
    for start, end in equal(old, new):
        pieces += _between(found.pieces, at, start)
        pieces.append(Piece(start, end, stays=True))
        at = end
    pieces += _between(found.pieces, at, new.size)
    return Delta(found.base, tuple(joined(iter(pieces))), spare)


def equal(old: BlockSignature, new: BlockSignature) -> Iterator[tuple[int, int]]:
    """Start and end of what both have at the same place, block by block or many at once."""
    index = 0
    while index < new.blocks:
        many = old.same(new, index, STRIDE)
        start, index = index * BLOCK_BYTES, index + (STRIDE if many else 1)
        if many or old.same_block(new, index - 1):
            yield start, min(index * BLOCK_BYTES, new.size)


def _between(pieces: Iterable[Piece], start: int, end: int) -> Iterator[Piece]:
    """What pieces say of the bytes `start` to `end`; of cut blocks the bytes are sent."""
    for piece in pieces:
        low, high = max(piece.start, start), min(piece.end, end)
        if low >= high:
            continue
        first = -(-(low - piece.start) // BLOCK_BYTES)
        last = piece.count if high == piece.end else (high - piece.start) // BLOCK_BYTES
        if not piece.count or first >= last:
            yield Piece(low, high, stays=piece.stays)
            continue
        begin = piece.start + first * BLOCK_BYTES
        stop = high if last == piece.count else piece.start + last * BLOCK_BYTES
        yield from (Piece(low, begin), Piece(begin, stop, piece.first + first, last - first))
        yield Piece(stop, high)


def joined(pieces: Iterator[Piece]) -> list[Piece]:
    """Without empty ones; neighbours of one kind as one."""
    out: list[Piece] = []
    for piece in pieces:
        last = out[-1] if out else None
        if last and last.count and piece.count and last.first + last.count == piece.first:
            out[-1] = Piece(last.start, piece.end, last.first, last.count + piece.count)
        elif last and not last.count and not piece.count and last.stays == piece.stays:
            out[-1] = Piece(last.start, piece.end, stays=piece.stays)
        elif piece.end > piece.start:
            out.append(piece)
    return out


class _Search:
    """Finds old blocks in new content; gives up looking into it where that finds nothing."""

    def __init__(self, stream: BinaryIO, size: int, old: BlockSignature) -> None:
        self._stream = stream
        self._size = size
        self._old = old
        self._digest = DIGESTS[old.kind]
        self._barren = 0  # bytes looked into since something was found
        self._wrong = 0  # beginnings that were none

    def pieces(self, new: BlockSignature | None) -> Iterator[Piece]:
        """Block by block at its own place; a run of unknown ones is looked into."""
        unknown = upto = 0
        while (start := upto * BLOCK_BYTES) < self._size:
            index, count = upto, STRIDE if new and self._old.same(new, upto, STRIDE) else 1
            upto, end = index + count, min((index + count) * BLOCK_BYTES, self._size)
            place: int | None = index
            if count == 1:
                digest = new.digest(index) if new else self._digest(self._read(start, end - start))
                place = self._place(index, end - start, digest)
            if place is None:
                continue
            if unknown < start:
                yield from self._moved(unknown, start)
            yield Piece(start, end, place, count)
            unknown = end
        if unknown < self._size:
            yield from self._moved(unknown, self._size)

    @cached_property
    def _places(self) -> dict[bytes, int]:
        """Where each old block is; of equal ones the first."""
        full = range(self._old.size // BLOCK_BYTES)
        return {self._old.digest(index): index for index in reversed(full)}

    def _read(self, start: int, count: int) -> memoryview:
        self._stream.seek(start)
        return memoryview(self._stream.read(count))

    def _place(self, index: int, length: int, digest: bytes) -> int | None:
        old = self._old
        last = index * BLOCK_BYTES + length == old.size
        if index < old.blocks and (length == BLOCK_BYTES or last) and old.digest(index) == digest:
            return index
        return self._places.get(digest) if length == BLOCK_BYTES else None

    def _moved(self, start: int, end: int) -> Iterator[Piece]:
        """Pieces of a stretch where no block stands at a multiple of 64 KiB."""
        wanted = start // BLOCK_BYTES
        at = fresh = start
        while end - at >= BLOCK_BYTES and self._barren < _PATIENCE and self._wrong < _WRONG:
            data = self._read(at, min(_WINDOW, end - at))
            found = self._next(data, wanted)
            if found is None:
                step = len(data) - BLOCK_BYTES + 1
                self._barren += step
                at += step
                continue
            place, index = found
            block = data[place : place + BLOCK_BYTES]
            if self._digest(block) != self._old.digest(index):
                self._wrong += 1
                at += place + 1
                continue
            self._barren = 0
            place += at
            if fresh < place:
                yield Piece(fresh, place)
            at = fresh = place + BLOCK_BYTES
            wanted = index + 1
            yield Piece(place, at, index, 1)
            for index in range(wanted, self._old.size // BLOCK_BYTES):
                block = self._read(at, BLOCK_BYTES) if end - at >= BLOCK_BYTES else memoryview(b"")
                if not block or self._digest(block) != self._old.digest(index):
                    break
                yield Piece(at, at + BLOCK_BYTES, index, 1)
                at = fresh = at + BLOCK_BYTES
                wanted = index + 1
        if fresh < end:
            yield Piece(fresh, end)

    def _next(self, data: memoryview, wanted: int) -> tuple[int, int] | None:
        """Where the next old block may begin, and which; the nearest place wins."""
        raw = bytes(data)
        best: tuple[int, int] | None = None
        full = self._old.size // BLOCK_BYTES
        near = range(wanted, min(wanted + _NEAR, full))
        for index in (*near, *range(min(_FIRST, full))):
            anchor = self._old.anchor(index)
            if anchor == anchor[:1] * ANCHOR:
                continue
            stop = best[0] if best else len(raw) - BLOCK_BYTES + ANCHOR
            place = raw.find(anchor, 0, stop)
            if place >= 0:
                best = (place, index)
        return best
