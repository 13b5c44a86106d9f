"""Large files of which the device has an older version go as what differs."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from functools import partial

from fleet.bundles.signatures import (
    BLAKE2,
    DIGEST,
    DIGESTS,
    XXH3,
    Signature,
    Signatures,
    hash_and_sign,
)
from fleet.engine.session import Session
from fleet.engine.transfer.depot import Depot
from fleet.model.errors import DeviceError, TransportError
from fleet.model.facts import Facts
from fleet.model.files import BLOCK_BYTES
from fleet.model.plan import Blob, Delta
from fleet.ops.delta import SMALLEST, delta
from fleet.ops.hand import hand, hand_command, has_hand
from fleet.ops.upload import takes_frames

SIGNING_BYTES_PER_SECOND = 20e6  # Python on a small core, reading slow flash
_ENTRY = 2 * DIGEST


def with_known(depot: Depot, facts: Facts, blobs: Iterable[Blob]) -> tuple[Blob, ...]:
    """The same blobs, each with its delta where the old content was hashed on this workstation."""
    return tuple(_with(depot, facts, blob, None) for blob in blobs)


def with_asked(session: Session, facts: Facts, blobs: Iterable[Blob]) -> tuple[Blob, ...]:
    """As `with_known`; what is not known here is signed on the device, one round trip a blob."""
    return tuple(_with(session.depot, facts, blob, session) for blob in blobs)


def _with(depot: Depot, facts: Facts, blob: Blob, session: Session | None) -> Blob:
    large = blob.file.size >= SMALLEST and blob.base != ""
    if depot.pace.whole or blob.delta or not large or not takes_frames(facts):
        return blob
    old = depot.signatures.load(blob.base) or depot.asked.get(blob.base)
    if old is None and session is not None:
        old = _asked(session, facts, blob)
        if old is not None:
            depot.asked[blob.base] = old
    if old is None:
        return blob
    found = depot.delta(blob, old.kind, partial(_find, depot.signatures, blob, old))
    return replace(blob, delta=found) if found else blob


def _find(known: Signatures, blob: Blob, old: Signature) -> Delta | None:
    try:
        return delta(blob.file, blob.base, old, _own(known, blob, old.kind))
    except OSError:
        return None


def _own(known: Signatures, blob: Blob, kind: str) -> Signature | None:
    """Of the new content; a file of a runtime was hashed without being signed."""
    own = known.load(blob.file.sha256)
    if own is not None or kind != XXH3:
        return own
    sha, own = hash_and_sign(blob.file.source)
    if sha == blob.file.sha256:
        known.save(sha, own)
    return own


def _asked(session: Session, facts: Facts, blob: Blob) -> Signature | None:
    """The device signs its old blob, where it has Python and the link is what costs."""
    if not has_hand(facts):
        return None
    path = f"{facts.base_dir}/store/{blob.base}"
    command = hand_command(facts, "sign", path, str(BLOCK_BYTES))
    seconds = 60.0 + 8 * blob.file.size / SIGNING_BYTES_PER_SECOND
    try:
        answer = session.ask(command, "sign", stdin=[hand()], seconds=seconds)
        return _signature(answer.text.split())
    except TransportError:
        raise
    except (DeviceError, ValueError):
        return None


def _signature(words: list[str]) -> Signature | None:
    """Of `[kind] size entries...`; BLAKE2 is meant where none is named. Raises ValueError."""
    kind, size, *lines = [BLAKE2, *words] if words and words[0].isdigit() else words
    entries = bytes.fromhex("".join(lines))
    whole = len(entries) == -(-int(size) // BLOCK_BYTES) * _ENTRY
    return Signature(int(size), entries, kind) if whole and kind in DIGESTS else None
