"""What differs of a large file that is still being hashed: sent while it is found."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from fleet.bundles.signatures import Signature, Signatures, Signing
from fleet.model.files import BLOCK_BYTES
from fleet.model.plan import Piece
from fleet.ops.delta import joined

MOST_FRESH = 64 << 20  # bytes: with more, or an eighth of the file, it waits for its hash
_MANY = 64  # blocks that are compared at once


@dataclass
class Growing:
    """Content of `size` bytes out of the blob `base`, and out of a `spare` that is made over.

    Compared block by block at its own place only. `whole` when all of it was told: else nothing
    differs from `base`, so much that what moved should be looked for, or the reading failed.
    """

    size: int
    signing: Signing
    base: str
    old: Signature
    spare: str = ""
    other: Signature | None = None
    whole: bool = False

    def pieces(self, offset: int) -> Iterator[Piece]:
        """From `offset` on, as soon as they are known.

        Without a spare the first comes when something differs: of the same content again no copy
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
            new = sum(one.bytes for one in held)
            fresh += 0 if holding and not new else new
            if fresh > min(MOST_FRESH, self.size // 8):
                return
            if new or not holding:
                holding = False
                yield from joined(iter(held))
                held = []
        self.whole = not holding

    def _compared(self, part: Signature, first: int, at: int) -> Iterator[Piece]:
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

    def _equal(self, part: Signature, index: int, first: int) -> tuple[int, str]:
        """How many blocks are the same in what; 1 and "" where one is new."""
        olds = [(self.other, "spare")] if self.other is not None else []
        for old, name in (*olds, (self.old, "base")):
            if old is not None and old.same(part, index, _MANY, first):
                return _MANY, name
        for old, name in (*olds, (self.old, "base")):
            if old is not None and old.same_block(part, index, first):
                return 1, name
        return 1, ""


def likest(found: Growing, spares: list[str], known: Signatures) -> None:
    """Let it be made over out of the spare that is most like the old blob, if half of it is."""
    best = found.old.blocks // 2
    for sha in spares:
        other = known.load(sha)
        count = _shared(other, found.old) if other is not None else 0
        if other is not None and count > best:
            best, found.spare, found.other = count, sha, other
    if found.spare:
        spares.remove(found.spare)


def _shared(one: Signature, other: Signature) -> int:
    """Blocks that both have at the same place, in stretches of many."""
    count = min(one.blocks, other.blocks) // _MANY
    return sum(one.same(other, n * _MANY, _MANY) for n in range(count)) * _MANY
