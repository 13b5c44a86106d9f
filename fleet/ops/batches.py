"""Small blobs, many in one frame of the stream."""

from __future__ import annotations

import tarfile
from collections.abc import Iterator, Sequence

from fleet.model.files import Chunk, changed, contents
from fleet.model.plan import Blob

BLOCK = 1 << 20  # what receive.sh asks dd for at a time
BATCH_BYTES = 4 << 20  # what a broken link costs again; each batch costs a sync of the disk
BATCH_FILES = 1000  # their names are arguments of one program: 66 kB of the 128 kB that fit

# Bytes of the stream; how many of the payload they stand for; how many of them are payload.
Part = tuple[Chunk, int, int]


def mode_of(blob: Blob) -> str:
    """Blobs are read-only, and executable when any file of theirs is."""
    return "555" if blob.file.executable else "444"


def batches(small: Sequence[Blob]) -> Iterator[list[Blob]]:
    """The same blobs, as many together as may be lost by a cut."""
    some: list[Blob] = []
    size = 0
    for blob in small:
        if some and (size + blob.file.size > BATCH_BYTES or len(some) == BATCH_FILES):
            yield some
            some, size = [], 0
        some.append(blob)
        size += blob.file.size
    if some:
        yield some


def together(blobs: Sequence[Blob], *, archive: bool) -> Iterator[Part]:
    """One frame of them: an archive for receive.sh, else a list and the contents."""
    yield from _archive(blobs) if archive else _listed(blobs)


def _listed(blobs: Sequence[Blob]) -> Iterator[Part]:
    rows = [f"{blob.file.sha256} {blob.file.size} {mode_of(blob)}\n" for blob in blobs]
    listed = "".join(rows).encode()
    size = sum(blob.file.size for blob in blobs)
    yield f"files {len(blobs)} {len(listed)} {size}\n".encode() + listed, 0, 0
    for blob in blobs:
        data = _content(blob)
        yield data, len(data), len(data)


def _archive(blobs: Sequence[Blob]) -> Iterator[Part]:
    """A tar archive of `<mode>/<sha256>` files, behind a line with its length."""
    size = tarfile.BLOCKSIZE * (len(blobs) + 2) + sum(_padded(blob.file.size) for blob in blobs)
    blocks, rest = divmod(size, BLOCK)
    yield f"batch {len(blobs)} 0 0 {blocks} {rest}\n".encode(), 0, 0
    for blob in blobs:  # the device unpacks while the next is made
        data = _content(blob)
        yield _entry(blob) + data + bytes(_padded(len(data)) - len(data)), len(data), len(data)
    yield bytes(2 * tarfile.BLOCKSIZE), 0, 0


def _content(blob: Blob) -> bytes:
    data = contents(blob.file.source) if blob.file.held is None else blob.file.held
    if len(data) != blob.file.size:
        raise changed(blob.file.source)
    return data


def _entry(blob: Blob) -> bytes:
    mode = mode_of(blob)
    info = tarfile.TarInfo(f"{mode}/{blob.file.sha256}")
    info.size, info.mode = blob.file.size, int(mode, 8)
    return info.tobuf(format=tarfile.USTAR_FORMAT)


def _padded(size: int) -> int:
    return -(-size // tarfile.BLOCKSIZE) * tarfile.BLOCKSIZE
