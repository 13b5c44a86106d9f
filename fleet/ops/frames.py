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

CHUNK = 1 << 18  # large enough that a read is cheap compared with a send; small in memory
SPAN = 1 << 20  # moved at a time; progress, limits and leases are checked in between
# for larger blobs the bytes cost more than the programs that a blob needs on the device
SMALL = 1 << 16
SMALL_FOR_WORKER = 1 << 20  # a single blob costs the worker a thread and a sync
GZIP_BYTES = 4 << 20  # compressed at a time; the loss when a link breaks
_LEVEL = 1  # 100 MB/s; higher levels save 5 % of a library and take four times the time

Report = Callable[[int, int], None]


class Source(Protocol):
    """The source of file contents."""

    def read(self, item: FileRef, start: int, end: int) -> bytes:
        """Return the bytes from start to end, or fewer if the file has become shorter."""
        ...

    def made(self, item: FileRef, start: int, end: int, make: Callable[[], bytes]) -> bytes:
        """Return the result of `make` for these bytes, computed once for many devices."""
        ...


class Files:
    """A source that reads the file each time."""

    def read(self, item: FileRef, start: int, end: int) -> bytes:
        """Return the bytes from start to end, or fewer if the file has become shorter."""
        return read_file(item.source, start, end)

    def made(self, item: FileRef, start: int, end: int, make: Callable[[], bytes]) -> bytes:  # noqa: ARG002
        """Return `make()`; nothing is cached."""
        return make()


@dataclass(frozen=True)
class Unhashed:
    """A blob that is sent before its hash is known; `sha256` waits for the hash.

    With `delta`, only the differences are sent as they are found.
    """

    sha256: Callable[[], str]
    delta: StreamingDelta | None = None


@dataclass(frozen=True)
class Style:
    """The encoding of blobs in the stream.

    `batches` sends small blobs together, as an `archive` for receive.sh. `worker` is the text of
    the device worker, None for receive.sh. `gzip` are the sha256 of compressed blobs. `unhashed` is
    keyed by the name that replaces the hash.
    """

    batches: bool = False
    worker: bytes | None = None
    archive: Kind = "tar"
    gzip: frozenset[str] = frozenset()
    unhashed: Mapping[str, Unhashed] = field(default_factory=dict)
    source: Source = field(default_factory=Files)


PLAIN = Style()


def read_file(path: Path, start: int, end: int) -> bytes:
    """Return the bytes of a file from start to end, or fewer if it is shorter."""
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
    report: Report,
    style: Style = PLAIN,
    *,
    limit: int | None = None,
    tail: Iterable[bytes] = (),
) -> Iterator[Chunk]:
    """Yield the stream in chunks. `report` gets the payload bytes so far, and those on the wire.

    With batches, small new blobs are sent together: a device without Python starts seven programs
    for each blob or batch. With `limit` the stream ends after that many payload bytes, in the
    middle of the last blob. `tail` is further input of the program after the blobs. Raises
    InputError if a source changed during the transfer.
    """
    count = _Count(report)
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
    """Yield one blob, followed by its hash if the hash was not known before."""
    unhashed = style.unhashed.get(blob.file.sha256)
    delta = unhashed.delta if unhashed else None
    for part in _blob_parts(blob, end, style):
        yield from count.add(*part)
        if delta is not None:  # the device works on each piece while the next one is searched
            yield from count.rest()
    if unhashed and (delta is None or delta.whole) and end == blob.file.size:
        yield from count.rest()
        yield f"is {unhashed.sha256()}\n".encode()


class _Count:
    """A counter of payload bytes, reported when their chunk has been sent."""

    def __init__(self, report: Report) -> None:
        self._report = report
        self.done = 0
        self.wire = 0
        self.waiting = bytearray()

    def add(self, piece: Chunk, payload: int, wire: int) -> Iterator[Chunk]:
        """Add a piece of the stream; yield a chunk when there is enough data."""
        if isinstance(piece, Span):
            yield from self.rest()
        self.done += payload
        self.wire += wire
        if isinstance(piece, Span):
            yield piece
            self._report(self.done, self.wire)
            return
        self.waiting += piece
        if len(self.waiting) >= CHUNK:
            yield from self.rest()

    def rest(self) -> Iterator[bytes]:
        """Yield the bytes that wait for a full chunk, and report the progress."""
        if self.waiting:
            chunk, self.waiting = bytes(self.waiting), bytearray()
            yield chunk
            self._report(self.done, self.wire)


def _gathered(parts: Iterable[Part], count: _Count) -> Iterator[Chunk]:
    for part in parts:
        yield from count.add(*part)


def _head(blob: Blob, span: tuple[int, int], length: int, coding: str, style: Style) -> Part:
    """Return the header of `length` bytes that represent `span` of the blob."""
    item = blob.file
    blocks, rest = divmod(length, BLOCK)
    words: list[object] = [item.sha256, item.size, span[0], mode_of(blob)]
    words += [blocks, rest, coding, span[1]]
    if item.sha256 in style.unhashed:  # its part has the name, and its hash follows the bytes
        words = ["?", *words[1:], item.sha256]
    elif blob.part:
        words.append(blob.part)
    return (" ".join(map(str, words)) + "\n").encode(), 0, 0


def _blob_parts(blob: Blob, end: int, style: Style) -> Iterator[Part]:
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
    """Yield small contents as bytes, to share a chunk, and large ones as spans."""
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
    """Yield compressed pieces. Each is a frame, because its length must precede it."""
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
    delta = after(blob.delta, blob.offset) if blob.offset else blob.delta
    count, coding = len(delta.pieces), f"delta:{delta.base}"
    if style.worker is not None:
        count, coding = 0, _patch(delta)
    yield _head(blob, (blob.offset, blob.file.size), count * BLOCK, coding, style)
    for piece in delta.pieces:
        yield from _piece(blob, piece, style)
    if style.worker is not None:
        yield b"done\n", 0, 0


def _patch(delta: Delta | StreamingDelta) -> str:
    return f"patch:{delta.base or '-'}:{delta.spare or '-'}"


def _streaming_delta(blob: Blob, delta: StreamingDelta, style: Style) -> Iterator[Part]:
    """Yield a streaming delta, or nothing if it is empty. A stopped device keeps what it can."""
    pieces = delta.pieces(blob.offset)
    first = next(pieces, None)
    if first is None:
        return
    yield _head(blob, (blob.offset, blob.file.size), 0, _patch(delta), style)
    for piece in chain([first], pieces):
        yield from _piece(blob, piece, style)
    yield b"done\n" if delta.whole else b"stop\n", 0, 0


def _piece(blob: Blob, piece: Piece, style: Style) -> Iterator[Part]:
    if piece.count:
        yield f"copy {piece.first} {piece.count}\n".encode(), 0, 0
        return
    blocks, rest = divmod(piece.end - piece.start, BLOCK)
    word = "same" if piece.stays else "take"
    yield f"{word} {blocks} {rest}\n".encode(), 0, 0
    if not piece.stays:
        yield from _content(blob, piece.start, piece.end, style)
