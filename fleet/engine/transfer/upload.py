"""The upload of blobs to a device: one stream, resumed at the byte after a broken link."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from typing import Protocol

from fleet.device.shell import AfterMark, device_script
from fleet.engine.lease.lease import LeasedStall
from fleet.engine.session import Session
from fleet.engine.states import HASHING_BYTES_PER_SECOND, ask_state
from fleet.engine.transfer.carriers import Carriers
from fleet.engine.transfer.context import Compression
from fleet.engine.transfer.deltas import with_asked
from fleet.model.command import Command
from fleet.model.deadline import Stall
from fleet.model.errors import (
    ConnectionLostError,
    DeadlineError,
    DeviceError,
    FleetError,
    TransferError,
    UnreachableError,
)
from fleet.model.events import Progress
from fleet.model.facts import Facts
from fleet.model.inventory import ADB
from fleet.model.manifest import Manifest
from fleet.model.plan import Blob
from fleet.ops.backend import ReleaseBackend, backend_for
from fleet.ops.batches import mode_of
from fleet.ops.frames import CHUNK, Style, Unhashed, frames
from fleet.ops.release import resumed
from fleet.ops.upload import Receipt, Step, step_frames, sync_mode
from fleet.transport.base import WORTH_BYTES, Carrier

# The bytes that the link has transferred are fewer than those written to it. An adb server buffers
# tens of megabytes (adb 36: 78 MB over a link of 40 MB/s).

_FAR_OFF = ADB.name  # the carrier whose buffered bytes cannot be counted


class Counting:
    """The payload count of one stream in `session.payload_bytes`, corrected after a broken
    stream.
    """

    def __init__(
        self, session: Session, blobs: Sequence[Blob], receipt: Receipt, packed: Collection[str]
    ) -> None:
        """Start counting. `packed` are the sha256 of compressed blobs."""
        self._session = session
        self._blobs = blobs
        self._receipt = receipt
        self._exact = all(blob.plain and blob.file.sha256 not in packed for blob in blobs)
        self._before = session.payload_bytes
        self._over = False

    def written(self, wire: int) -> None:
        """Record that this many bytes of the stream were written."""
        if not self._over:
            self._session.payload_bytes = self._before + wire

    def broke(self, carrier: str) -> None:
        """Stop counting after the link broke. Of buffered bytes only the received ones count."""
        self._over = True
        if carrier == _FAR_OFF:
            arrived = self._before + sum(self._known(blob) for blob in self._blobs)
            self._session.payload_bytes = min(self._session.payload_bytes, arrived)

    def settle(self, lacking: Sequence[Blob]) -> None:
        """Correct the count with the blobs that the device still lacks."""
        if not self._exact:
            return
        left = {blob.file.sha256: blob.left for blob in lacking}
        gone = (max(0, blob.left - left.get(blob.file.sha256, 0)) for blob in self._blobs)
        self._session.payload_bytes = self._before + sum(gone)

    def _known(self, blob: Blob) -> int:
        """Return the bytes of a blob that the device reported before the link broke."""
        if blob.file.sha256 in self._receipt.ok:
            return blob.left
        took = self._receipt.took
        return min(blob.left, max(took.get(blob.file.sha256, 0), took.get(blob.part, 0)))


# for a device that answers but accepts no byte; for a dead link see LeasedStall
HASHING_SECONDS = 60.0
TRIES = 6  # each try must transfer bytes, or the wait grows
WAIT_SECONDS = 0.5  # before the second try; doubled for each further one
_BROKEN = (ConnectionLostError, DeadlineError, UnreachableError)


class Contents(Protocol):
    """The files of an upload whose hashes are not known yet."""

    unhashed: dict[str, Unhashed]  # by the key of the file

    def lacking(self) -> tuple[Blob, ...]:
        """Return the files that may be sent."""

    def hashed(self, blobs: Sequence[Blob], receipt: Receipt) -> Sequence[Blob]:
        """Return the blobs that arrived, with their hashes."""


class Upload:
    """An upload of the blobs of a manifest to a device."""

    def __init__(
        self,
        session: Session,
        facts: Facts,
        manifest: Manifest,
        contents: Contents | None = None,
        backend: ReleaseBackend | None = None,
    ) -> None:
        """Prepare the upload. With `contents` it sends those instead of the manifest's blobs."""
        self._contents = contents
        self._session = session
        self._transfer = session.transfer
        self._facts = facts
        self._manifest = manifest
        self._total = 0
        self._done = 0
        self._whole: frozenset[str] = frozenset()  # blobs whose delta gave a wrong hash
        self._tail: tuple[Step, ...] = ()
        self._ends = False
        self.finished = False  # the tail was executed
        self._broken: Counting | None = None
        self._compression = Compression(
            self._transfer.options.compress, self._transfer.sampler, able=facts.tools.gzip
        )
        self._backend = backend or backend_for(facts)
        self._style = self._backend.style(
            self._transfer.source, contents.unhashed if contents else {}
        )

    def send(self, blobs: Sequence[Blob], tail: Sequence[Step] = (), *, ends: bool = False) -> None:
        """Send until the device has everything, then execute the `tail` (device workers only).

        With `ends` the tail also releases the lease. Raises the last error if the link stays
        broken, and DeviceError if the tail was not executed. This happens if unhashed files did not
        arrive completely at once.
        """
        self._tail, self._ends = tuple(tail), ends
        with self._transfer.hubs.lane(self._session.host):
            blobs = with_asked(self._session, self._facts, blobs)
            self._total = sum(blob.wire for blob in blobs)
            for attempt in range(TRIES):
                try:
                    if attempt:
                        self._session.reopen()
                        blobs = self.lacking()
                        if self._contents is not None:
                            self._tail = ()
                        if self._broken is not None:
                            self._broken.settle(blobs)
                            self._broken = None
                    self._deliver(blobs)
                except _BROKEN as error:
                    self._again_or_raise(error, attempt)
                else:
                    break
        if self._tail:
            names = ", ".join(step.name for step in self._tail)
            raise DeviceError(f"these steps were not done on the device: {names}")

    def _deliver(self, blobs: Sequence[Blob]) -> None:
        """Send all blobs. Large ones may come from neighbours; the others are sent from here."""
        neighbours = self._transfer.neighbours
        if neighbours is None:
            self.send_directly(blobs, self._tail)
            return
        from fleet.engine.transfer.relaying import deliver  # noqa: PLC0415 - only to relay

        deliver(self, self._session, self._facts, neighbours, blobs, tail=self._tail)

    def counter(self) -> Callable[[int], object]:
        """Return a function that counts bytes sent by another carrier from now on."""
        begun = self._done

        def report(gone: int) -> None:
            self._done = begun + gone
            host = self._session.host.name
            self._session.emit(Progress(host, "send", self._done, self._total))

        return report

    def _again_or_raise(self, error: FleetError, attempt: int) -> None:
        lease = self._session.lease
        if attempt + 1 == TRIES or (lease is not None and lease.gone):
            error.hint = error.hint or "deploy again; the transfer resumes where it stopped"
            raise error
        wait = WAIT_SECONDS * 2**attempt
        self._session.warn(f"{error.message}; fleet tries again in {wait:g} s")
        time.sleep(wait)

    def lacking(self) -> tuple[Blob, ...]:
        """Return the blobs that the device lacks now, each with the offset to resume from."""
        blobs = self._unsent() if self._contents is None else self._contents.lacking()
        self._done = max(0, self._total - sum(blob.wire for blob in blobs))
        return blobs

    def _unsent(self) -> tuple[Blob, ...]:
        state = ask_state(self._session, self._facts, self._manifest)
        lacking = (
            resumed(item, state)
            for sha, item in self._manifest.blobs.items()
            if sha not in state.have
        )
        plain = [
            replace(blob, base="") if blob.file.sha256 in self._whole else blob for blob in lacking
        ]
        return with_asked(self._session, self._facts, plain)

    def send_directly(self, blobs: Sequence[Blob], tail: Sequence[Step] = ()) -> None:
        """Send these blobs from here, once, and execute the `tail`."""
        if not blobs:
            self._stream((), self._session.transport, self._style, tail=tail)
            return
        if not self._backend.frames:
            for blob in blobs:
                self._stream([blob], self._session.transport, self._style, single=True)
            return
        carriers = Carriers(self._session, self._transfer.options.carrier)
        try:
            choice = carriers.choose(blobs, self._try)
            if choice.why != "little to send":
                self._session.chose(choice.carrier.name, choice.why)
            if choice.rate is None and self._compression.shrinking(choice.blobs) >= WORTH_BYTES:
                choice = choice.measured(self._try)
            packed = self._compression.files(choice.blobs, choice.rate)
            style = replace(self._style, gzip=packed)
            self._stream(choice.blobs, choice.carrier, style, tail=tail)
        finally:
            carriers.close()

    def _try(self, blob: Blob, count: int, carrier: Carrier) -> float:
        """Send `count` bytes of a longer blob; return bytes per second."""
        began = time.monotonic()
        self._stream([blob], carrier, self._style, limit=count)
        return count / (time.monotonic() - began)

    def _stream(
        self,
        blobs: Sequence[Blob],
        carrier: Carrier,
        style: Style,
        *,
        limit: int | None = None,
        single: bool = False,
        tail: Sequence[Step] = (),
    ) -> None:
        if not blobs and not tail:
            return
        session, host = self._session, self._session.host.name
        begun, receipt = self._done, Receipt()
        counting = Counting(session, blobs, receipt, style.gzip)

        def count(done: int, wire: int) -> None:
            self._done = begun + done
            counting.written(wire)
            if self._total:
                session.emit(Progress(host, "send", self._done, self._total))

        stall = self.patience(blobs)
        lease = session.lease
        behind = step_frames(tail, host, session.say)
        stream = frames(blobs, count, style, limit=limit, tail=behind)
        throttle = self._transfer.throttle
        try:
            result = session.run(
                self._backend.receive(single=single, steps=bool(tail)),
                "send",
                stdin=throttle.feed(stream) if throttle else stream,
                mutates=True,
                ends=self._ends and bool(tail),
                deadline=Stall(stall) if lease is None else LeasedStall(stall, lease),
                on_stdout=receipt.take,
                via=carrier,
            )
        except _BROKEN:
            counting.broke(carrier.name)
            self._broken = counting
            raise
        self._judge(() if limit is not None else blobs, receipt, tail, result.error_text)

    def _judge(
        self, blobs: Sequence[Blob], receipt: Receipt, tail: Sequence[Step], stderr: str
    ) -> None:
        """Raise the error of a stream, unless sending again can correct it.

        Damaged blobs are sent again at once. Raises ConnectionLostError if the device still writes
        an earlier try, and the errors of `Receipt.check`.
        """
        if self._contents is not None:
            known = self._contents.hashed(blobs, receipt)
            if len(known) < len(blobs):
                self._tail = tail = ()
            blobs = known
        session, host = self._session, self._session.host.name
        if receipt.cut and not receipt.failed:
            raise ConnectionLostError(
                "the device was still writing the data of an earlier try",
                hint="wait some seconds until the device has finished; then run the same command "
                "again",
            )
        doubtful = [blob for blob in blobs if not blob.plain or blob.offset]
        if wrong := [blob for blob in doubtful if blob.file.sha256 in receipt.bad]:
            self._send_again(wrong, receipt)
            if not receipt.bad and tail:
                self._stream((), session.transport, self._style, tail=tail)
                tail = ()
        receipt.check(blobs, self._facts, host, stderr, tail)
        for blob in blobs:
            if blob.file.sha256 in receipt.unhashed:
                self._read_back(blob)
        if tail:
            self._tail, self.finished = (), True
        if receipt.unpruned:
            session.warn(f"could not delete old releases: {receipt.unpruned}")

    def _send_again(self, blobs: Sequence[Blob], receipt: Receipt) -> None:
        """Send blobs again whose base (recyclable blob, old blob, part) had the wrong content."""
        again: Sequence[Blob] = [
            Blob(blob.file, base=blob.base if blob.delta is not None and blob.delta.spare else "")
            for blob in blobs
        ]
        self._whole |= {blob.file.sha256 for blob in again if not blob.base}
        again = with_asked(self._session, self._facts, again)
        for blob in again:
            how = "completely" if blob.delta is None else "as a delta to the current release"
            self._session.warn(
                f"{blob.file.name} is damaged on the device; fleet sends the file {how}"
            )
        self._total += sum(blob.wire for blob in again)
        self._stream(again, self._session.transport, self._style)
        for blob in blobs:
            receipt.bad.pop(blob.file.sha256)
            receipt.ok.add(blob.file.sha256)

    def patience(self, blobs: Sequence[Blob]) -> float:
        """Return the seconds without a byte that are allowed for hashing, copying and other
        devices.
        """
        largest = max((blob.file.size for blob in blobs), default=0)
        seconds = HASHING_SECONDS + 2 * largest / HASHING_BYTES_PER_SECOND
        bandwidth = self._transfer.options.bandwidth
        return seconds + (256 * CHUNK / bandwidth if bandwidth else 0)

    def _read_back(self, blob: Blob) -> None:
        """Hash the bytes here, because the device has no hash tool. Raises TransferError."""
        sha = blob.file.sha256
        digest = hashlib.sha256()
        path = f"{self._facts.base_dir}/store/{sha}.part"
        forward: Callable[[bytes], object] = digest.update
        self._session.transport.run(
            device_script("show", path), Stall(HASHING_SECONDS), on_stdout=AfterMark(forward)
        )
        if digest.hexdigest() != sha:
            self._session.ask(Command(("rm", "-f", path)), "discard", mutates=True)
            raise TransferError(f"{blob.file.name} differs on the device from what was sent")
        self._session.ask(
            device_script("accept", self._facts.base_dir, sync_mode(self._facts)),
            "accept",
            stdin=[f"{sha} {mode_of(blob)}\n".encode()],
            mutates=True,
        )
