"""Standard input of receive.sh and of the device worker: many blobs in one stream."""

from __future__ import annotations

import gzip
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Protocol

from fleet.content.delta import after
from fleet.model.files import Chunk, FileRef, Span, changed
from fleet.model.plan import Blob, Delta, Piece
from fleet.ops.archives import Kind
from fleet.ops.batches import BLOCK, Part, batches, mode_of, together
from fleet.ops.streaming_delta import StreamingDelta

CHUNK = 1 << 18  # large enough that a read costs nothing beside a send; small in memory
SPAN = 1 << 20  # moved at a time; progress, limits and leases are looked at in between
SMALL = 1 << 16  # from here on the bytes cost more than the programs that a blob needs there
SMALL_FOR_WORKER = 1 << 20  # there a blob alone costs a thread and a sync of its own
GZIP_BYTES = 4 << 20  # compressed at a time; what a broken link costs again
_LEVEL = 1  # 100 MB/s; more levels save 5 % of a library and cost four times the time

Told = Callable[[int, int], None]


class Source(Protocol):
    """Where contents are read."""

    def read(self, item: FileRef, start: int, end: int) -> bytes:
        """The bytes from start to end; fewer where the file has become shorter."""
        ...

    def made(self, item: FileRef, start: int, end: int, make: Callable[[], bytes]) -> bytes:
        """What `make` makes of these bytes; made once for many devices."""
        ...


class Files:
    """Reads each time."""

    def read(self, item: FileRef, start: int, end: int) -> bytes:
        """See Source."""
        return read_file(item.source, start, end)

    def made(self, item: FileRef, start: int, end: int, make: Callable[[], bytes]) -> bytes:  # noqa: ARG002
        """See Source."""
        return make()


@dataclass(frozen=True)
class Unhashed:
    """A blob that goes before its hash is known: `sha256` waits for that. With `delta` goes what
    differs, as it is found.
    """

    sha256: Callable[[], str]
    delta: StreamingDelta | None = None


@dataclass(frozen=True)
class Style:
    """How blobs go over. `batches`: small ones together, as an `archive` for receive.sh.
    `worker`: what goes ahead for the device worker that takes them, None where receive.sh does.
    `gzip`: sha256 of those that are compressed. `unhashed`: by the name that stands for the hash.
    """

    batches: bool = False
    worker: bytes | None = None
    archive: Kind = "tar"
    gzip: frozenset[str] = frozenset()
    unhashed: Mapping[str, Unhashed] = field(default_factory=dict)
    source: Source = field(default_factory=Files)


PLAIN = Style()


def read_file(path: Path, start: int, end: int) -> bytes:
    """The bytes of a file from start to end; fewer where it is shorter."""
    with path.open("rb", buffering=0) as stream:
        data = os.pread(stream.fileno(), end - start, start)
        while len(data) < end - start:
            more = os.pread(stream.fileno(), end - start - len(data), start + len(data))
            if not more:
                break
            data += more
        return data


def frames(
    blobs: Sequence[Blob],
    told: Told,
    style: Style = PLAIN,
    *,
    limit: int | None = None,
    tail: Iterable[bytes] = (),
) -> Iterator[Chunk]:
    """The stream in chunks. `told` gets the payload so far, and how much of it went on the wire.

    With batches, small blobs that are not begun yet go together: a device without Python
    starts seven programs for a blob, and for a batch. With `limit` the stream ends after that
    many bytes of payload, the last blob unfinished. `tail` is what else the program does, once
    the blobs are there. Raises InputError when a source changed while it was sent.
    """
    count = _Count(told)
    if style.worker:
        yield from _gathered([(style.worker, 0, 0)], count)
    small: list[Blob] = []
    alone: list[Blob] = []
    most = SMALL if style.worker is None else SMALL_FOR_WORKER
    for blob in blobs:
        can = style.batches and not blob.offset and blob.file.size <= most
        (small if can else alone).append(blob)
    if len(small) == 1:
        small, alone = [], list(blobs)
    left = limit
    for some in batches(small):
        if left is not None and left <= 0:
            break
        yield from _gathered(
            together(some, archive=style.archive if style.worker is None else None), count
        )
        left = left if left is None else left - sum(blob.file.size for blob in some)
    for blob in alone:
        if left is not None and left <= 0:
            break
        end = blob.file.size if left is None else min(blob.file.size, blob.offset + left)
        yield from _alone(blob, end, style, count)
        left = left if left is None else left - blob.wire
    yield from count.rest()
    yield from tail


def _alone(blob: Blob, end: int, style: Style, count: _Count) -> Iterator[Chunk]:
    """One blob, and its hash behind it where that was not known before."""
    unhashed = style.unhashed.get(blob.file.sha256)
    delta = unhashed.delta if unhashed else None
    for part in _one(blob, end, style):
        yield from count.add(*part)
        if delta is not None:  # the device works on each piece while the next is looked for
            yield from count.rest()
    if unhashed and (delta is None or delta.whole) and end == blob.file.size:
        yield from count.rest()
        yield f"is {unhashed.sha256()}\n".encode()


class _Count:
    """Payload bytes that were handed over, told when the chunk that holds them has gone."""

    def __init__(self, told: Told) -> None:
        self._told = told
        self.done = 0
        self.wire = 0
        self.waiting = bytearray()

    def add(self, piece: Chunk, payload: int, wire: int) -> Iterator[Chunk]:
        """A piece of the stream; yields a chunk when enough has gathered."""
        if isinstance(piece, Span):
            yield from self.rest()
        self.done += payload
        self.wire += wire
        if isinstance(piece, Span):
            yield piece
            self._told(self.done, self.wire)
            return
        self.waiting += piece
        if len(self.waiting) >= CHUNK:
            yield from self.rest()

    def rest(self) -> Iterator[bytes]:
        """What is left."""
        if self.waiting:
            chunk, self.waiting = bytes(self.waiting), bytearray()
            yield chunk
            self._told(self.done, self.wire)


def _gathered(parts: Iterable[Part], count: _Count) -> Iterator[Chunk]:
    for part in parts:
        yield from count.add(*part)


def _head(blob: Blob, span: tuple[int, int], length: int, coding: str, style: Style) -> Part:
    """Before `length` bytes that are those from `span[0]` to `span[1]` of the blob."""
    item = blob.file
    blocks, rest = divmod(length, BLOCK)
    words: list[object] = [item.sha256, item.size, span[0], mode_of(blob)]
    words += [blocks, rest, coding, span[1]]
    if item.sha256 in style.unhashed:  # its part has the name, and its hash comes behind the bytes
        words = ["?", *words[1:], item.sha256]
    elif blob.part:
        words.append(blob.part)
    return (" ".join(map(str, words)) + "\n").encode(), 0, 0


def _one(blob: Blob, end: int, style: Style) -> Iterator[Part]:
    unhashed = style.unhashed.get(blob.file.sha256)
    if unhashed and unhashed.delta:
        yield from _streaming_delta(blob, unhashed.delta, style)
    elif blob.delta:
        yield from _delta(blob, style)
    elif blob.file.sha256 in style.gzip:
        yield from _compressed(blob, end, style)
    else:
        yield _head(blob, (blob.offset, end), end - blob.offset, "raw", style)
        yield from _content(blob, blob.offset, end, style)


def _content(blob: Blob, start: int, end: int, style: Style) -> Iterator[Part]:
    """Small contents as they are, to travel with others; large ones as spans."""
    item = blob.file
    if end - start < CHUNK:
        data = _load(blob, start, end, style)
        yield data, len(data), len(data)
        return
    while start < end:
        edge = min((start // SPAN + 1) * SPAN, end)
        span = Span(item.source, start, edge, partial(_load, blob, start, edge, style))
        yield span, len(span), len(span)
        start = edge


def _load(blob: Blob, start: int, end: int, style: Style) -> bytes:
    data = style.source.read(blob.file, start, end)
    if len(data) != end - start:
        raise changed(blob.file.source)
    return data


def _compressed(blob: Blob, end: int, style: Style) -> Iterator[Part]:
    """Pieces, each a frame of its own: its length must be known before it is sent."""
    item, at = blob.file, blob.offset
    while True:
        stop = min(at + GZIP_BYTES, end)
        data = style.source.made(item, at, stop, partial(_gzip, blob, at, stop, style))
        yield _head(blob, (at, stop), len(data), "gzip", style)
        yield data, stop - at, len(data)
        at = stop
        if at == end:
            return


def _gzip(blob: Blob, start: int, end: int, style: Style) -> bytes:
    return gzip.compress(_load(blob, start, end, style), _LEVEL, mtime=0)


def _delta(blob: Blob, style: Style) -> Iterator[Part]:
    if blob.delta is None:
        return
    found = after(blob.delta, blob.offset) if blob.offset else blob.delta
    count, coding = len(found.pieces), f"delta:{found.base}"
    if style.worker is not None:
        count, coding = 0, _patch(found)
    yield _head(blob, (blob.offset, blob.file.size), count * BLOCK, coding, style)
    for piece in found.pieces:
        yield from _piece(blob, piece, style)
    if style.worker is not None:
        yield b"done\n", 0, 0


def _patch(found: Delta | StreamingDelta) -> str:
    return f"patch:{found.base or '-'}:{found.spare or '-'}"


def _streaming_delta(blob: Blob, found: StreamingDelta, style: Style) -> Iterator[Part]:
    """Nothing where nothing is told; the device keeps what it can when it stops."""
    pieces = found.pieces(blob.offset)
    first = next(pieces, None)
    if first is None:
        return
    yield _head(blob, (blob.offset, blob.file.size), 0, _patch(found), style)
    for piece in chain([first], pieces):
        yield from _piece(blob, piece, style)
    yield b"done\n" if found.whole else b"stop\n", 0, 0


def _piece(blob: Blob, piece: Piece, style: Style) -> Iterator[Part]:
    if piece.count:
        yield f"copy {piece.first} {piece.count}\n".encode(), 0, 0
        return
    blocks, rest = divmod(piece.end - piece.start, BLOCK)
    word = "same" if piece.stays else "take"
    yield f"{word} {blocks} {rest}\n".encode(), 0, 0
    if not piece.stays:
        yield from _content(blob, piece.start, piece.end, style)
