"""Relays for the large blobs of one upload, which come from a neighbour on the same LAN."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Protocol

from fleet.engine.lease.lease import LeasedStall
from fleet.engine.session import Session
from fleet.engine.transfer.neighbours import LEAST_BYTES, BlobHolder, Neighbours, RelayTurn, lan_of
from fleet.model.command import Result
from fleet.model.deadline import Deadline, Stall
from fleet.model.errors import TransportError, UnreachableError
from fleet.model.events import Relayed
from fleet.model.facts import Facts
from fleet.model.masking import masked
from fleet.model.plan import Blob
from fleet.ops.backend import backend_for
from fleet.ops.relay import Passage, relay_command
from fleet.ops.upload import Step
from fleet.transport.neighbour import Bridge, peer_of

WORTH_BYTES_PER_SECOND = 2e6  # a slower LAN is not worth the wait
WAIT_SECONDS = 60.0
SETTLE_TRIES = 10
SETTLE_SECONDS = 0.5


class DirectUpload(Protocol):
    """The upload to which a relay belongs, with its direct connection."""

    def send_directly(self, blobs: Sequence[Blob], tail: Sequence[Step] = ()) -> None:
        """Send these blobs from the workstation."""

    def lacking(self) -> tuple[Blob, ...]:
        """Return the blobs that the device lacks now."""

    def counter(self) -> Callable[[int], object]:
        """Return a function that counts bytes sent by another carrier."""

    def patience(self, blobs: Sequence[Blob]) -> float:
        """Return the seconds to wait for progress."""


def deliver(
    upload: DirectUpload,
    session: Session,
    facts: Facts,
    neighbours: Neighbours,
    blobs: Sequence[Blob],
    *,
    tail: Sequence[Step],
) -> None:
    """Relay large blobs from neighbours; send all others and the `tail` directly.

    Blobs that no neighbour delivers, or all if the device cannot relay, are sent directly too.
    """
    near, relaying = [b for b in blobs if b.plain and b.left >= LEAST_BYTES], None
    try:
        relaying = Relaying(session, facts, neighbours, upload) if near else None
    except UnreachableError as error:
        session.warn(f"this device cannot relay files: {error.message}; files are sent directly")
    if relaying is None:
        upload.send_directly(blobs, tail)
        return
    upload.send_directly([blob for blob in blobs if blob not in near])
    # The neighbour's report about this device is not trusted.
    lacking = _settled(upload) if relaying.fetch(near) else ()
    upload.send_directly(lacking, tail)
    relaying.have(near)


def _settled(upload: DirectUpload) -> tuple[Blob, ...]:
    """Return the missing blobs. After a broken relay, wait for its last bytes."""
    before, now = None, upload.lacking()
    for _ in range(SETTLE_TRIES):
        if not any(blob.offset for blob in now) or now == before:
            break
        time.sleep(SETTLE_SECONDS)
        before, now = now, upload.lacking()
    return now


def tell_of(session: Session, facts: Facts, shas: frozenset[str]) -> None:
    """Tell the neighbours that a device has these blobs."""
    neighbours, lan = session.transfer.neighbours, lan_of(session.host)
    if neighbours is None or not lan or not shas:
        return
    try:
        peer = peer_of(session.transport, session.host)
    except TransportError:
        return
    neighbours.have(lan, BlobHolder(peer, facts.base_dir), shas)


class Relaying:
    """The relays to one device.

    A neighbour's report only decides who is asked next; Upload asks the device itself.
    """

    def __init__(
        self, session: Session, facts: Facts, neighbours: Neighbours, upload: DirectUpload
    ) -> None:
        """Prepare the relays. Raises UnreachableError with the reason if the device takes
        no part.
        """
        self._session = session
        self._facts = facts
        self._neighbours = neighbours
        self._upload = upload
        self._lan = lan_of(session.host)
        if not self._lan:
            raise UnreachableError("the inventory has no label `lan` for the device")
        if not facts.tools.sha256 or not facts.tools.dd_fullblock:
            raise UnreachableError("the device lacks a sha256 tool, or a dd with iflag=fullblock")
        self._me = BlobHolder(peer_of(session.transport, session.host), facts.base_dir)
        self._alone = False

    def fetch(self, blobs: Sequence[Blob]) -> bool:
        """Get each blob from a neighbour or directly, whichever is available first.

        Return True if a neighbour was used; the device must then be asked what it has.
        """
        left = {blob.file.sha256: blob for blob in blobs}
        asked = False
        while left and not self._alone:
            slowest = max(blob.left for blob in left.values())
            patience = Deadline(WAIT_SECONDS + slowest / WORTH_BYTES_PER_SECOND)
            turns = self._neighbours.turn(
                self._lan, self._me, tuple(left), patience, self._session.check
            )
            with turns as turn:
                blob = left.pop(turn.sha)
                if turn.source is None:
                    self._upload.send_directly([blob])
                    turn.arrived = True
                else:
                    asked = True
                    turn.arrived = self._relayed(turn, turn.source, blob)
        for blob in left.values():
            self._upload.send_directly([blob])
        return asked

    def have(self, blobs: Sequence[Blob]) -> None:
        """Record that the device has reported these blobs."""
        self._neighbours.have(self._lan, self._me, [blob.file.sha256 for blob in blobs])

    def _relayed(self, turn: RelayTurn, source: BlobHolder, blob: Blob) -> bool:
        session, name = self._session, self._session.host.name
        passage = Passage(blob, self._upload.counter(), session.check)
        try:
            with Bridge(source.peer, session.transport.traffic) as bridge, session.beside(bridge):
                why = self._lend(bridge)
                if not why:
                    passage.admitted = bridge.admitted
                    result = self._run(bridge, source, blob, passage)
                    why = self._judge(turn, passage, result)
        except TransportError as error:
            session.check()
            why = error.message
            self._neighbours.broke(self._lan, turn)
        if why:
            passage.report(0)
            file, board = blob.file.name, source.peer.name
            session.warn(
                f"fleet could not copy {file} from {board}: {why}; the file is sent directly"
            )
            return False
        session.relayed_bytes += blob.left
        session.emit(Relayed(name, source.peer.name, blob.left))
        return True

    def _lend(self, bridge: Bridge) -> str:
        try:
            bridge.lend(self._me.peer)
        except UnreachableError as error:
            self._alone = True
            return error.message
        return ""

    def _run(self, bridge: Bridge, source: BlobHolder, blob: Blob, passage: Passage) -> Result:
        """Run the relay on the source. The target's lease guards the receiving command."""
        facts, lease = self._facts, self._session.lease
        backend = backend_for(facts)
        take = backend.receive()
        seconds = self._upload.patience([blob])
        go = passage.leave()
        result = bridge.run(
            relay_command(
                blob,
                source.base_dir,
                self._me.peer,
                take if lease is None else lease.guarded(take),
                backend.worker or b"",
            ),
            Stall(seconds) if lease is None else LeasedStall(seconds, lease),
            stdin=go if lease is None else lease.feed(go),
            on_stdout=passage.take,
        )
        # a renewal in the output is not trusted; only the end of the lease counts
        if lease is not None:
            lease.judge(result, result.error_text, 0.0)
        return result

    def _judge(self, turn: RelayTurn, passage: Passage, result: Result) -> str:
        """Return why the blob is missing, and record who must not be asked again; "" on success."""
        receipt, sha = passage.receipt, turn.sha
        if sha in receipt.ok:
            return ""
        if sha in receipt.bad:
            if passage.blob.offset:  # or the existing part is damaged
                return "the file arrived damaged"
            self._neighbours.damaged(self._lan, turn)
            return "that board has a damaged copy"
        if passage.refused:
            self._neighbours.damaged(self._lan, turn)
            if not passage.gone:
                self._neighbours.broke(self._lan, turn)
            return passage.refused
        if receipt.failed:  # a direct transfer would fail with the same error
            return receipt.failed
        output = masked(" | ".join(result.error_text.splitlines()))[-200:] or "no reason given"
        if passage.inside:
            self._neighbours.broke(self._lan, turn)
        else:
            self._alone = True
            self._neighbours.shut_out(self._lan, turn, self._session.host.name)
        return f"the relay stopped: {output}" if passage.inside else f"the login failed: {output}"
