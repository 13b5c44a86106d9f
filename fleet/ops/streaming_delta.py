"""What differs of a large file that is still being hashed: sent while it is found."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from fleet.content.delta import STRIDE, equal, joined
from fleet.content.signatures import BlockSignature, Signatures, Signing
from fleet.model.files import BLOCK_BYTES
from fleet.model.plan import Piece

MOST_FRESH = 64 << 20  # bytes: with more, or an eighth of the file, it waits for its hash


@dataclass
class StreamingDelta:
    """Content of `size` bytes out of the blob `base`, and out of a `spare` that is made over.

    Compared block by block at its own place only. `whole` when all of it was told: else nothing
    differs from `base`, so much that what moved should be looked for, or the reading failed.
    """

    size: int
    signing: Signing
    base: str
    old: BlockSignature
    spare: str = ""
    other: BlockSignature | None = None
    whole: bool = False

    def pieces(self, offset: int) -> Iterator[Piece]:
        """From `offset` on, as soon as they are known.

        Without one the first comes when something differs: of the same content again no copy
        is made.
        """
        held: list[Piece] = []
        holding, fresh, at = self.other is None, 0, offset
        while at < self.size:
            first = at // BLOCK_BYTES
            part = self.signing.beyond(first)
            if not part.blocks:
                return
            held += joined(self._compared(part, first, at))
            at = min(first * BLOCK_BYTES + part.size, self.size)
            new = sum(piece.bytes for piece in held)
            fresh += new
            if fresh > min(MOST_FRESH, self.size // 8):
                return
            if new or not holding:
                holding = False
                yield from joined(iter(held))
                held = []
        self.whole = not holding

    def _compared(self, part: BlockSignature, first: int, at: int) -> Iterator[Piece]:
        index = 0
        while index < part.blocks:
            start = (first + index) * BLOCK_BYTES
            count, kind = self._equal(part, index, first) if start >= at else (1, "")
            index += count
            end = min(start + count * BLOCK_BYTES, self.size)
            if kind == "base":
                yield Piece(start, end, first + index - count, count)
            else:
                yield Piece(max(start, at), end, stays=kind == "spare")

    def _equal(self, part: BlockSignature, index: int, first: int) -> tuple[int, str]:
        """How many blocks are the same in what; 1 and "" where one is new."""
        olds = {"base": self.old}
        if self.other is not None:
            olds = {"spare": self.other, **olds}
        for name, old in olds.items():
            if old.same(part, index, STRIDE, first):
                return STRIDE, name
        for name, old in olds.items():
            if old.same_block(part, index, first):
                return 1, name
        return 1, ""


def choose_recyclable(found: StreamingDelta, recyclable: list[str], known: Signatures) -> None:
    """Choose the recyclable blob that is most like the old blob, if half of it is."""
    best = found.old.size // 2
    for sha in recyclable:
        other = known.load(sha)
        if other is None:
            continue
        shared = sum(end - start for start, end in equal(other, found.old))
        if shared > best:
            best, found.spare, found.other = shared, sha, other
    if found.spare:
        recyclable.remove(found.spare)
