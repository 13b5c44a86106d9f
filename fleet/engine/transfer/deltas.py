"""Deltas for large files of which the device has an older version."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from functools import partial

from fleet.content.delta import MOST_PIECES, SMALLEST, delta, in_place
from fleet.content.signatures import (
    BLAKE2,
    DIGEST,
    DIGESTS,
    XXH3,
    BlockSignature,
    Signatures,
    hash_and_sign,
)
from fleet.engine.session import Session
from fleet.engine.transfer.context import TransferContext
from fleet.model.errors import DeviceError, TransportError
from fleet.model.facts import Facts
from fleet.model.files import BLOCK_BYTES
from fleet.model.plan import Blob, Delta, Piece
from fleet.ops.backend import backend_for

SIGNING_BYTES_PER_SECOND = 20e6  # Python on a small core, reading slow flash
STAYING = 0.5  # share of the bytes that stay in a recyclable blob and need not be written
MOST_OVER = (
    64 << 20
)  # bytes to send into a recyclable blob; they are lost when the device loses power
_ENTRY = 2 * DIGEST


def with_known(transfer: TransferContext, facts: Facts, blobs: Iterable[Blob]) -> tuple[Blob, ...]:
    """Return the blobs, with a delta where this workstation knows the old content."""
    return _all(transfer, facts, blobs, None)


def with_asked(session: Session, facts: Facts, blobs: Iterable[Blob]) -> tuple[Blob, ...]:
    """Return the blobs as `with_known`; the device signs unknown old blobs, one round trip each."""
    return _all(session.transfer, facts, blobs, session)


def _all(
    transfer: TransferContext, facts: Facts, blobs: Iterable[Blob], session: Session | None
) -> tuple[Blob, ...]:
    done: list[Blob] = []
    blobs = tuple(blobs)
    if (
        transfer.options.whole
        or not any(blob.base or blob.recyclable for blob in blobs)
        or not backend_for(facts).frames
    ):
        return blobs
    taken = {blob.delta.spare for blob in blobs if blob.delta}
    for blob in blobs:
        made = _with(transfer, facts, blob, session, taken)
        taken |= {made.delta.spare} if made.delta else set()
        done.append(made)
    return tuple(done)


def _with(
    transfer: TransferContext, facts: Facts, blob: Blob, session: Session | None, taken: set[str]
) -> Blob:
    if not blob.plain:
        return blob
    sha = blob.file.sha256
    if sha in blob.recyclable and sha not in taken:
        return replace(blob, delta=Delta("", (Piece(0, blob.file.size, stays=True),), sha))
    if blob.file.size < SMALLEST or not blob.base:
        return blob
    old = transfer.signatures.load(blob.base) or transfer.asked.get(blob.base)
    if old is None and session is not None:
        old = _asked(session, facts, blob)
        if old is not None:
            transfer.asked[blob.base] = old
    found_delta = None
    if old is not None:
        found_delta = transfer.delta(blob, old.kind, partial(_find, transfer.signatures, blob, old))
    over = [
        made
        for spare in blob.recyclable
        if spare not in taken and (made := _over(transfer, blob, found_delta, spare))
    ]
    best = max(over, key=lambda delta: delta.staying, default=found_delta)
    return replace(blob, delta=best) if best else blob


def _over(
    transfer: TransferContext, blob: Blob, plain_delta: Delta | None, spare: str
) -> Delta | None:
    """Return a delta that overwrites a recyclable blob, if most of the blob stays."""
    plain = plain_delta or Delta(blob.base, (Piece(0, blob.file.size),))

    def make() -> Delta | None:
        old, new = (transfer.signatures.load(sha) for sha in (spare, blob.file.sha256))
        if old is None or new is None or old.kind != new.kind or new.size != blob.file.size:
            return None
        made = in_place(plain, spare, old, new)
        few = len(made.pieces) <= MOST_PIECES and made.bytes <= MOST_OVER
        return made if few and made.staying >= blob.file.size * STAYING else None

    return transfer.delta(blob, f"over {spare} {plain_delta is None}", make)


def _find(known: Signatures, blob: Blob, old: BlockSignature) -> Delta | None:
    try:
        return delta(blob.file, blob.base, old, _own(known, blob, old.kind))
    except OSError:
        return None


def _own(known: Signatures, blob: Blob, kind: str) -> BlockSignature | None:
    """Return the signature of the new content. A runtime's file was hashed without one."""
    own = known.load(blob.file.sha256)
    if own is not None or kind != XXH3:
        return own
    sha, own = hash_and_sign(blob.file.source)
    if sha == blob.file.sha256:
        known.save(sha, own)
    return own


def _asked(session: Session, facts: Facts, blob: Blob) -> BlockSignature | None:
    """Return the old blob's signature from the device, if it has Python and the link is slow."""
    asked = backend_for(facts).sign(blob.base)
    if asked is None:
        return None
    seconds = 60.0 + 8 * blob.file.size / SIGNING_BYTES_PER_SECOND
    try:
        answer = session.ask(asked.command, "sign", stdin=asked.stdin, seconds=seconds)
        return _signature(answer.text.split())
    except TransportError:
        raise
    except (DeviceError, ValueError):
        return None


def _signature(words: list[str]) -> BlockSignature | None:
    """Parse `[kind] size entries...`; without a kind it is BLAKE2. Raises ValueError."""
    kind, size, *lines = [BLAKE2, *words] if words and words[0].isdigit() else words
    entries = bytes.fromhex("".join(lines))
    whole = len(entries) == -(-int(size) // BLOCK_BYTES) * _ENTRY
    return BlockSignature(int(size), entries, kind) if whole and kind in DIGESTS else None
