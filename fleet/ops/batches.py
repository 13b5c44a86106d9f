"""Small blobs, many in one frame of the stream."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from fleet.model.files import Chunk, changed, contents
from fleet.model.plan import Blob
from fleet.ops import archives

BLOCK = 1 << 20  # the block size of dd in receive.sh
BATCH_BYTES = 4 << 20  # the loss when a link breaks; each batch costs a sync of the disk
BATCH_FILES = 1000  # the names are arguments of one program: 66 kB of the 128 kB limit

_MODES = ("444", "555")

# Bytes of the stream; payload bytes that they represent; payload bytes that they contain.
Part = tuple[Chunk, int, int]


def mode_of(blob: Blob) -> str:
    """Return the mode of a blob: read-only, and executable if any of its files is."""
    return "555" if blob.file.executable else "444"


def batches(small: Sequence[Blob]) -> Iterator[list[Blob]]:
    """Yield the blobs in groups that are small enough to lose when a link breaks."""
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


def together(blobs: Sequence[Blob], *, archive: archives.Kind | None) -> Iterator[Part]:
    """Yield one frame of blobs: an archive for receive.sh, else a list and the contents."""
    yield from _archive(blobs, archive) if archive else _listed(blobs)


def _listed(blobs: Sequence[Blob]) -> Iterator[Part]:
    rows = [f"{blob.file.sha256} {blob.file.size} {mode_of(blob)}\n" for blob in blobs]
    listed = "".join(rows).encode()
    size = sum(blob.file.size for blob in blobs)
    yield f"files {len(blobs)} {len(listed)} {size}\n".encode() + listed, 0, 0
    for blob in blobs:
        data = _content(blob)
        yield data, len(data), len(data)


def _archive(blobs: Sequence[Blob], kind: archives.Kind) -> Iterator[Part]:
    """Yield an archive of `<mode>/<sha256>` files after a line with its length.

    It also contains `<mode>.sums`, the expected output of the hash tool for each folder.
    """
    modes = {mode: sorted(b.file.sha256 for b in blobs if mode_of(b) == mode) for mode in _MODES}
    sums = {
        f"{mode}.sums": "".join(f"{sha}  {sha}\n" for sha in names).encode()
        for mode, names in modes.items()
        if names
    }
    small = b"".join(archives.folder(kind, mode) for mode, names in modes.items() if names)
    small += b"".join(archives.file(kind, name, text) for name, text in sums.items())
    last = archives.end(kind)
    names = {blob.file.sha256: f"{mode_of(blob)}/{blob.file.sha256}" for blob in blobs}
    sizes = (archives.file_bytes(kind, names[b.file.sha256], b.file.size) for b in blobs)
    blocks, rest = divmod(len(small) + sum(sizes) + len(last), BLOCK)
    yield f"batch {len(blobs)} {kind} 0 {blocks} {rest}\n".encode() + small, 0, 0
    for blob in blobs:  # the device unpacks one file while the next is made
        data, name = _content(blob), names[blob.file.sha256]
        yield archives.file(kind, name, data, int(mode_of(blob), 8)), len(data), len(data)
    yield last, 0, 0


def _content(blob: Blob) -> bytes:
    data = contents(blob.file.source) if blob.file.held is None else blob.file.held
    if len(data) != blob.file.size:
        raise changed(blob.file.source)
    return data
