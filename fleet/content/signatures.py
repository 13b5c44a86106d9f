"""Block signatures of large files, cached next to their hashes, to compute deltas.

The store on a device is addressed by content. The signature of an old blob on this workstation
therefore holds for the device's copy too, and nothing is requested, read or hashed there.
"""

from __future__ import annotations

import binascii
import hashlib
import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import xxhash

from fleet.model.files import BLOCK_BYTES
from fleet.model.home import fleet_home, keep_newest, write_whole

DIGEST = 16  # bytes of the digest of a block
ANCHOR = 16  # first bytes of a block, with which it is found in shifted content
_ENTRY = DIGEST + ANCHOR
_READ = 64 * BLOCK_BYTES
_KEPT = 500  # signatures in the folder; one of 1 GiB takes 0.5 MB
XXH3 = "xxh3-128"
BLAKE2 = "blake2b-128"  # computed by devices; it needs no module there
CRC = "crc32-4"  # the same in a quarter of the time: 0.20 s for 1 GiB instead of 0.88
_QUARTER = BLOCK_BYTES // 4


def _crc(block: memoryview) -> bytes:
    """Return CRC-32 of each 16 KiB of a block.

    Of blocks that differ in one quarter, one in 2^32 looks equal, and an attacker can construct
    one. The hash of the content is then wrong, and the whole file is sent.
    """
    parts = (block[at : at + _QUARTER] for at in range(0, BLOCK_BYTES, _QUARTER))
    return b"".join(binascii.crc32(part).to_bytes(4, "big") for part in parts)


DIGESTS: dict[str, Callable[[memoryview], bytes]] = {
    XXH3: xxhash.xxh3_128_digest,
    CRC: _crc,
    BLAKE2: lambda block: hashlib.blake2b(block, digest_size=DIGEST).digest(),
}


@dataclass(frozen=True)
class BlockSignature:
    """The digest and the first bytes of every block of 64 KiB.

    The digests only find equal blocks. The device verifies the SHA-256 of the whole new content, so
    a false match costs a second transfer, and a digest need not resist attacks.
    """

    size: int
    entries: bytes
    kind: str = XXH3

    @property
    def blocks(self) -> int:
        """The number of blocks; the last one may be shorter."""
        return len(self.entries) // _ENTRY

    def digest(self, index: int) -> bytes:
        """Return the digest of a block."""
        return self.entries[index * _ENTRY : index * _ENTRY + DIGEST]

    def anchor(self, index: int) -> bytes:
        """Return the first 16 bytes of a block, padded with zeros."""
        return self.entries[index * _ENTRY + DIGEST : (index + 1) * _ENTRY]

    def same(self, other: BlockSignature, index: int, count: int, first: int = 0) -> bool:
        """Return True if `count` whole blocks from `index` on are equal to those of `other`.

        Block 0 of `other` corresponds to block `first` of this signature.
        """
        mine = slice((first + index) * _ENTRY, (first + index + count) * _ENTRY)
        part = slice(index * _ENTRY, (index + count) * _ENTRY)
        inside = (index + count) * BLOCK_BYTES <= min(self.size - first * BLOCK_BYTES, other.size)
        return inside and self.entries[mine] == other.entries[part]

    def same_block(self, other: BlockSignature, index: int, first: int = 0) -> bool:
        """Return True if both contain this block, whole or short, with the same digest."""
        there = first + index < self.blocks and index < other.blocks
        return there and self.digest(first + index) == other.digest(index)


class Signing:
    """A signature in progress. It receives the bytes of a file in order; other threads may
    watch.
    """

    def __init__(self, kind: str = XXH3) -> None:
        self._kind = kind
        self._digest = DIGESTS[kind]
        self._entries: list[bytes] = []
        self._size = 0
        self._ended = False
        self._grown = threading.Condition()

    def update(self, piece: memoryview) -> None:
        """Add a piece. The length of all but the last is a multiple of 64 KiB."""
        entries = []
        for at in range(0, len(piece), BLOCK_BYTES):
            block = piece[at : at + BLOCK_BYTES]
            entries.append(self._digest(block) + bytes(block[:ANCHOR]).ljust(ANCHOR, b"\0"))
        with self._grown:
            self._size += len(piece)
            self._entries += entries
            self._grown.notify_all()

    def done(self) -> BlockSignature:
        """Return the signature of the bytes so far."""
        return BlockSignature(self._size, b"".join(self._entries), self._kind)

    def end(self) -> None:
        """Mark the end of the data, so that no thread waits for more."""
        with self._grown:
            self._ended = True
            self._grown.notify_all()

    def beyond(self, first: int) -> BlockSignature:
        """Wait for block `first`, and return the signature of the known bytes from there on.

        It is empty if the data ended before.
        """
        with self._grown:
            self._grown.wait_for(lambda: self._ended or len(self._entries) > first)
            size = max(0, self._size - first * BLOCK_BYTES)
            return BlockSignature(size, b"".join(self._entries[first:]), self._kind)


def hash_and_sign(
    path: Path, kind: str = XXH3, signing: Signing | None = None
) -> tuple[str, BlockSignature]:
    """Compute SHA-256 and signature in one pass. Other threads may watch `signing`. Raises OSError.

    One thread needs 0.71 s for 1 GiB on an idle core. A second thread made it 0.63 s with a fifth
    more CPU time, and no link to a device transfers 1 GB/s.
    """
    digest, signing = hashlib.sha256(), signing or Signing(kind)
    view = memoryview(bytearray(_READ))
    with path.open("rb", buffering=0) as stream:
        while filled := _fill(stream.readinto, view):
            signing.update(view[:filled])
            digest.update(view[:filled])
    return digest.hexdigest(), signing.done()


def _fill(readinto: Callable[[memoryview], int | None], view: memoryview) -> int:
    filled = 0
    while filled < len(view) and (count := readinto(view[filled:])):
        filled += count
    return filled


class Signatures:
    """A cache in `$FLEET_HOME/signatures/<sha256>`, ignored if it cannot be used."""

    def __init__(self, root: Path | None = None) -> None:
        self._root = root or fleet_home() / "signatures"

    def load(self, sha256: str) -> BlockSignature | None:
        """Return the signature of a content, None if it is missing or damaged."""
        try:
            data = (self._root / sha256).read_bytes()
        except OSError:
            return None
        head, _, entries = data.partition(b"\n")
        words = head.split()
        if len(words) != 3 or words[0] != XXH3.encode() or not words[1].isdigit():
            return None
        size, whole = int(words[1]), xxhash.xxh3_64_hexdigest(entries).encode() == words[2]
        if not whole or len(entries) != -(-size // BLOCK_BYTES) * _ENTRY:
            return None
        return BlockSignature(size, entries)

    def save(self, sha256: str, signature: BlockSignature) -> None:
        """Save a signature, and remove the oldest files."""
        head = f"{signature.kind} {signature.size} {xxhash.xxh3_64_hexdigest(signature.entries)}\n"
        if write_whole(self._root / sha256, head.encode() + signature.entries):
            keep_newest(self._root, _KEPT)
