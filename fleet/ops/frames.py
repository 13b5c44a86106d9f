"""Standard input of receive.sh: many blobs in one stream."""

from __future__ import annotations

import tarfile
from collections.abc import Callable, Iterable, Iterator, Sequence

from fleet.model.errors import InputError
from fleet.model.plan import Blob

CHUNK = 1 << 18  # large enough that a read costs nothing beside a send; small in memory
BLOCK = 1 << 20  # what receive.sh asks dd for at a time
SMALL = 1 << 16  # from here on the bytes cost more than the programs that a blob needs there
BATCH_BYTES = 4 << 20  # what a broken link costs again; each batch costs a sync of the disk
BATCH_FILES = 1000  # their names are arguments of one program: 66 kB of the 128 kB that fit


def mode_of(blob: Blob) -> str:
    """Blobs are read-only, and executable when any file of theirs is."""
    return "555" if blob.file.executable else "444"


def frames(
    blobs: Sequence[Blob], progress: Callable[[int], None], *, batches: bool = False
) -> Iterator[bytes]:
    """The stream in chunks; `progress` gets the payload bytes sent so far.

    With `batches`, small blobs that are not begun yet go together as tar archives: a device
    starts seven programs for a blob, and for a batch. Raises InputError when a source changed
    while it was sent.
    """
    count = _Count(progress)
    small: list[Blob] = []
    alone: list[Blob] = []
    for one in blobs:
        (small if batches and not one.offset and one.file.size <= SMALL else alone).append(one)
    if len(small) == 1:
        small, alone = [], list(blobs)
    for some in _batches(small):
        yield from _gathered(_archive(some), count)
    for blob in alone:
        yield from _gathered(_single(blob), count)
    yield from count.rest()


class _Count:
    """Payload bytes that were handed over, told when the chunk that holds them has gone."""

    def __init__(self, progress: Callable[[int], None]) -> None:
        self._progress = progress
        self.done = 0
        self.waiting = bytearray()

    def add(self, piece: bytes, payload: int) -> Iterator[bytes]:
        """A piece of the stream; yields a chunk when enough has gathered."""
        self.done += payload
        if len(piece) >= CHUNK and not self.waiting:
            yield piece
            self._progress(self.done)
            return
        self.waiting += piece
        if len(self.waiting) >= CHUNK:
            yield from self.rest()

    def rest(self) -> Iterator[bytes]:
        """What is left."""
        if self.waiting:
            chunk, self.waiting = bytes(self.waiting), bytearray()
            yield chunk
            self._progress(self.done)


def _gathered(pieces: Iterable[tuple[bytes, int]], count: _Count) -> Iterator[bytes]:
    for piece, payload in pieces:
        yield from count.add(piece, payload)


def _single(blob: Blob) -> Iterator[tuple[bytes, int]]:
    item = blob.file
    blocks, rest = divmod(blob.left, BLOCK)
    head = f"{item.sha256} {item.size} {blob.offset} {mode_of(blob)} {blocks} {rest}\n"
    yield head.encode(), 0
    left = blob.left
    with item.source.open("rb") as stream:
        stream.seek(blob.offset)
        while left and (chunk := stream.read(min(CHUNK, left))):
            yield chunk, len(chunk)
            left -= len(chunk)
    if left:
        raise _changed(blob)


def _batches(small: Sequence[Blob]) -> Iterator[list[Blob]]:
    some: list[Blob] = []
    for blob in small:
        full = sum(one.file.size for one in some) + blob.file.size > BATCH_BYTES
        if some and (full or len(some) == BATCH_FILES):
            yield some
            some = []
        some.append(blob)
    if some:
        yield some


def _archive(blobs: Sequence[Blob]) -> Iterator[tuple[bytes, int]]:
    """A tar archive of `<mode>/<sha256>` files, behind a line with its length."""
    entries = [(_entry(blob), blob) for blob in blobs]
    size = (
        sum(len(head) + _padded(blob.file.size) for head, blob in entries) + 2 * tarfile.BLOCKSIZE
    )
    blocks, rest = divmod(size, BLOCK)
    yield f"batch {len(blobs)} 0 0 {blocks} {rest}\n".encode(), 0
    for head, blob in entries:
        data = blob.file.source.read_bytes()
        if len(data) != blob.file.size:
            raise _changed(blob)
        yield head + data + bytes(_padded(len(data)) - len(data)), len(data)
    yield bytes(2 * tarfile.BLOCKSIZE), 0


def _entry(blob: Blob) -> bytes:
    mode = mode_of(blob)
    info = tarfile.TarInfo(f"{mode}/{blob.file.sha256}")
    info.size, info.mode = blob.file.size, int(mode, 8)
    return info.tobuf(format=tarfile.USTAR_FORMAT)


def _padded(size: int) -> int:
    return -(-size // tarfile.BLOCKSIZE) * tarfile.BLOCKSIZE


def _changed(blob: Blob) -> InputError:
    return InputError(f"{blob.file.source} changed while it was sent", hint="deploy again")
