"""The differences of a large file that is still being hashed, sent as they are found."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from fleet.content.delta import STRIDE, equal, joined
from fleet.content.signatures import BlockSignature, Signatures, Signing
from fleet.model.files import BLOCK_BYTES
from fleet.model.plan import Piece

MOST_FRESH = 64 << 20  # bytes: beyond this, or an eighth of the file, the file waits for its hash


@dataclass
class StreamingDelta:
    """A content of `size` bytes made from the blob `base`, and from a `spare` that is overwritten.

    Blocks are compared at their own place only. `whole` is True after all pieces were yielded.
    Otherwise nothing differs from `base`, too much differs, or the file could not be read.
    """

    size: int
    signing: Signing
    base: str
    old: BlockSignature
    spare: str = ""
    other: BlockSignature | None = None
    whole: bool = False

    def pieces(self, offset: int) -> Iterator[Piece]:
        """Yield the pieces from `offset` on as soon as they are known.

        Without `other`, the first piece is yielded when something differs, so that equal content is
        not copied.
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
        """Return how many blocks are equal in which blob; 1 and "" for a new block."""
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


def choose_recyclable(delta: StreamingDelta, recyclable: list[str], known: Signatures) -> None:
    """Choose the recyclable blob that is most similar to the old blob, if at least half is
    equal.
    """
    best = delta.old.size // 2
    for sha in recyclable:
        other = known.load(sha)
        if other is None:
            continue
        shared = sum(end - start for start, end in equal(other, delta.old))
        if shared > best:
            best, delta.spare, delta.other = shared, sha, other
    if delta.spare:
        recyclable.remove(delta.spare)
