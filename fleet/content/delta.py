"""The common parts of two versions of a large file, from the block signature of the old one.

A block of the old content can be anywhere in the new content. It is found at its own place and at
every multiple of 64 KiB by its digest, and in shifted content by its first bytes. The result is not
trusted: the device hashes the whole new content before the file gets its name.
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

SMALLEST = 4 << 20  # for smaller files the search costs more than the bytes
WORTH = 0.6  # share of the bytes; a delta that saves less costs the device more than the link
MOST_PIECES = 2000  # each piece starts a program on the device
STRIDE = 64  # blocks that are compared at once if both signatures are known
_WINDOW = 4 << 20
_NEAR = 32  # next old blocks whose first bytes are searched
_FIRST = 3  # also search the first blocks: the content may follow something else
_PATIENCE = 64 << 20  # bytes without a match: other content, not moved content
_WRONG = 500  # false matches of first bytes that many blocks share


def delta(
    item: FileRef, base: str, old: BlockSignature, new: BlockSignature | None = None
) -> Delta | None:
    """Return how `item` is made from the blob `base`, None if a delta is not worth it.

    `new` is the signature of `item`, of the same kind, if it is known; only the differing parts are
    then read. Raises OSError.
    """
    if item.size < SMALLEST or not old.blocks:
        return None
    known = new if new is not None and new.kind == old.kind and new.size == item.size else None
    with item.source.open("rb") as stream:
        pieces = joined(_Search(stream, item.size, old).pieces(known))
    result = Delta(base, tuple(pieces))
    worth = result.bytes <= item.size * WORTH and len(pieces) <= MOST_PIECES
    return result if worth and result.pieces[-1].end == item.size else None


def after(whole: Delta, offset: int) -> Delta:
    """Return the rest of a delta if the device has `offset` bytes of the new content."""
    return replace(whole, pieces=tuple(joined(_between(whole.pieces, offset, sys.maxsize))))


def in_place(plain: Delta, spare: str, old: BlockSignature, new: BlockSignature) -> Delta:
    """Return the delta that overwrites the file `spare` in place: equal blocks stay."""
    pieces: list[Piece] = []
    at = 0
    for start, end in equal(old, new):
        pieces += _between(plain.pieces, at, start)
        pieces.append(Piece(start, end, stays=True))
        at = end
    pieces += _between(plain.pieces, at, new.size)
    return Delta(plain.base, tuple(joined(iter(pieces))), spare)


def equal(old: BlockSignature, new: BlockSignature) -> Iterator[tuple[int, int]]:
    """Yield start and end of equal content at the same place, in one or many blocks."""
    index = 0
    while index < new.blocks:
        many = old.same(new, index, STRIDE)
        start, index = index * BLOCK_BYTES, index + (STRIDE if many else 1)
        if many or old.same_block(new, index - 1):
            yield start, min(index * BLOCK_BYTES, new.size)


def _between(pieces: Iterable[Piece], start: int, end: int) -> Iterator[Piece]:
    """Yield the parts of pieces within `start` to `end`; the bytes of split blocks are sent."""
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
    """Return pieces without empty ones; adjacent pieces of one kind are merged."""
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
    """A search for old blocks in new content. It stops after too many bytes without a match."""

    def __init__(self, stream: BinaryIO, size: int, old: BlockSignature) -> None:
        self._stream = stream
        self._size = size
        self._old = old
        self._digest = DIGESTS[old.kind]
        self._barren = 0  # bytes searched since the last match
        self._wrong = 0  # false matches of first bytes

    def pieces(self, new: BlockSignature | None) -> Iterator[Piece]:
        """Yield the pieces block by block; search in runs of unknown blocks."""
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
        """The index of each old block by digest, the first of equal blocks."""
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
        """Yield pieces of a stretch in which no block starts at a multiple of 64 KiB."""
        wanted = start // BLOCK_BYTES
        at = fresh = start
        while end - at >= BLOCK_BYTES and self._barren < _PATIENCE and self._wrong < _WRONG:
            data = self._read(at, min(_WINDOW, end - at))
            match = self._next(data, wanted)
            if match is None:
                step = len(data) - BLOCK_BYTES + 1
                self._barren += step
                at += step
                continue
            place, index = match
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
        """Return place and index of the next possible old block, nearest place first."""
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
