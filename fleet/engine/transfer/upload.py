"""Getting blobs onto a device: one stream, resumed at the byte when the link breaks."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from fleet.device.hand import hand_for
from fleet.device.shell import AfterMark, device_script
from fleet.engine.leasing import LeasedStall
from fleet.engine.session import Session
from fleet.engine.states import HASHING_BYTES_PER_SECOND, ask_state
from fleet.engine.transfer.carriers import Carriers, Turn
from fleet.engine.transfer.counting import Counting
from fleet.engine.transfer.deltas import with_asked
from fleet.engine.transfer.squeezing import Squeezing
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
from fleet.model.events import Progress, StepStarted, Warned
from fleet.model.facts import Facts
from fleet.model.manifest import Manifest
from fleet.model.plan import Blob
from fleet.ops.batches import mode_of
from fleet.ops.frames import CHUNK, Style, Trial, frames
from fleet.ops.release import resumed
from fleet.ops.tail import Step, check_steps
from fleet.ops.upload import Receipt, receive_command, sync_mode, takes_batches, takes_frames
from fleet.transport.base import Carrier

if TYPE_CHECKING:
    from fleet.engine.transfer.relaying import Relaying

HASHING_SECONDS = 60.0  # of a device that answers and takes no byte; a dead link: LeasedStall
TRIES = 6  # of which each must bring bytes over, or the waiting grows
SETTLE_TRIES = 10
WAIT_SECONDS = 0.5  # before the second try; doubled for each further one
_BROKEN = (ConnectionLostError, DeadlineError, UnreachableError)


class Upload:
    """One upload of the blobs of a manifest to a device."""

    def __init__(self, session: Session, facts: Facts, manifest: Manifest) -> None:
        self._session = session
        self._depot = session.depot
        self._facts = facts
        self._manifest = manifest
        self._total = 0
        self._done = 0
        self._whole: frozenset[str] = frozenset()  # those whose delta came out wrong
        self._tail: tuple[Step, ...] = ()
        self._broken: Counting | None = None
        self._squeezing = Squeezing(self._depot, facts, self._try)
        self._style = Style(
            batches=takes_batches(facts),
            hand=hand_for(facts),
            source=self._depot.source,
        )

    def send(self, blobs: Sequence[Blob], tail: Sequence[Step] = ()) -> None:
        """Send until all is there, then do the `tail` (devices with `has_hand` only).

        Raises the last error when the link stays broken.
        """
        self._tail = tuple(tail)
        with self._depot.hubs.lane(self._session.host):
            blobs = with_asked(self._session, self._facts, blobs)
            self._total = sum(blob.wire for blob in blobs)
            for attempt in range(TRIES):
                try:
                    if attempt:
                        self._session.reopen()
                        blobs = self._lacking()
                        if self._broken is not None:
                            self._broken.settle(blobs)
                            self._broken = None
                    self._deliver(blobs)
                except _BROKEN as error:
                    self._again_or_raise(error, attempt)
                else:
                    break
        if self._tail:
            names = ", ".join(one.name for one in self._tail)
            raise DeviceError(f"not done: {names}", device=self._session.host.name)

    def _deliver(self, blobs: Sequence[Blob]) -> None:
        """All of them: large ones may come from neighbours, the others meanwhile from here."""
        self._done = max(0, self._total - sum(blob.wire for blob in blobs))
        if self._depot.neighbours is None:
            self._send_once(blobs, self._tail)
            return
        from fleet.engine.transfer.relaying import Direct, Relaying  # noqa: PLC0415

        near = [blob for blob in blobs if Relaying.suits(blob)]
        relaying = self._relaying() if near else None
        if relaying is None:
            self._send_once(blobs, self._tail)
            return
        self._send_once([blob for blob in blobs if blob not in near])
        direct = Direct(
            lambda one: self._send_once([one]), self._told, lambda b: self._patience([b])
        )
        lacking: tuple[Blob, ...] = ()
        if relaying.fetch(near, direct):
            # What a neighbour says of this device is not believed.
            lacking = self._settled()
            self._done = max(0, self._total - sum(blob.wire for blob in lacking))
        self._send_once(lacking, self._tail)
        relaying.have(near)

    def _relaying(self) -> Relaying | None:
        neighbours = self._depot.neighbours
        if neighbours is None:
            return None
        from fleet.engine.transfer.relaying import Relaying  # noqa: PLC0415

        try:
            return Relaying(self._session, self._facts, neighbours)
        except UnreachableError as error:
            text = f"no relay for this device: {error.message}; sent directly"
            self._session.emit(Warned(self._session.host.name, text))
            return None

    def _settled(self) -> tuple[Blob, ...]:
        """What is lacking; of a relay that broke, the last bytes may still be on their way."""
        before, now = None, self._lacking()
        for _ in range(SETTLE_TRIES):
            if not any(blob.offset for blob in now) or now == before:
                break
            time.sleep(WAIT_SECONDS)
            before, now = now, self._lacking()
        return now

    def _told(self) -> Callable[[int], object]:
        begun = self._done

        def told(gone: int) -> None:
            self._done = begun + gone
            host = self._session.host.name
            self._session.emit(Progress(host, "send", self._done, self._total))

        return told

    def _again_or_raise(self, error: FleetError, attempt: int) -> None:
        lease = self._session.lease
        if attempt + 1 == TRIES or (lease is not None and lease.gone):
            error.hint = error.hint or "deploy again; it goes on where it stopped"
            raise error
        wait = WAIT_SECONDS * 2**attempt
        self._session.emit(
            Warned(self._session.host.name, f"{error.message}; going on in {wait:g} s")
        )
        time.sleep(wait)

    def _lacking(self) -> tuple[Blob, ...]:
        state = ask_state(self._session, self._facts, self._manifest)
        lacking = [
            resumed(item, state)
            for sha, item in self._manifest.blobs.items()
            if sha not in state.have
        ]
        plain = [
            replace(one, base="") if one.file.sha256 in self._whole else one for one in lacking
        ]
        return with_asked(self._session, self._facts, plain)

    def _send_once(self, blobs: Sequence[Blob], tail: Sequence[Step] = ()) -> None:
        if not blobs:
            self._stream((), self._session.transport, self._style, tail=tail)
            return
        if not takes_frames(self._facts):
            for blob in blobs:
                self._stream([blob], self._session.transport, self._style, single=True)
            return
        carriers = Carriers(self._session, self._depot.pace.carrier)
        try:
            choice = carriers.choose(blobs, self._try, apart=self._squeezing.may_pay(blobs))
            if choice.turn is None and choice.why != "little to send":
                self._session.chose(choice.carrier.name, choice.why)
            choice = self._squeezing.measured(choice)
            style = replace(self._style, gzip=self._squeezing.files(choice))
            self._stream(choice.blobs, choice.carrier, style, tail=tail, turn=choice.turn)
            if choice.turn is not None and choice.turn.lost:
                carriers.close()
                choice = choice.back()
                self._stream(choice.blobs, choice.carrier, style, tail=tail)
        finally:
            carriers.close()

    def _try(self, blob: Blob, count: int, carrier: Carrier) -> float:
        """Send so many bytes of a blob that is longer; bytes a second."""
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
        turn: Turn | None = None,
    ) -> None:
        if not blobs and not tail:
            return
        session, host = self._session, self._session.host.name
        begun, receipt = self._done, Receipt()
        counting = Counting(session, blobs, receipt, style.gzip)

        def told(done: int, wire: int) -> None:
            self._done = begun + done
            counting.told(wire)
            if self._total:
                session.emit(Progress(host, "send", self._done, self._total))

        stall = self._patience(blobs)
        lease = session.lease
        trial = (
            Trial(turn.place, turn.count, partial(self._goes_on, turn, carrier)) if turn else None
        )
        stream = frames(blobs, told, style, limit=limit, tail=self._steps(tail), trial=trial)
        if turn is not None:
            turn.begin()
        throttle = self._depot.throttle
        try:
            result = session.run(
                receive_command(self._facts, single=single),
                "send",
                stdin=throttle.feed(stream) if throttle else stream,
                mutates=True,
                deadline=Stall(stall) if lease is None else LeasedStall(stall, lease),
                on_stdout=receipt.take,
                via=carrier,
            )
        except _BROKEN:
            counting.broke(carrier.name)
            self._broken = counting
            raise
        cut = limit is not None or (turn is not None and turn.lost)
        self._judge(() if cut else blobs, receipt, () if cut else tail, result.error_text)

    def _goes_on(self, turn: Turn, carrier: Carrier) -> bool:
        turn.end()
        self._session.chose((turn.first if turn.lost else carrier).name, turn.why)
        return not turn.lost

    def _judge(
        self, blobs: Sequence[Blob], receipt: Receipt, tail: Sequence[Step], stderr: str
    ) -> None:
        """Raise what went wrong; what can be put right is."""
        session, host = self._session, self._session.host.name
        if receipt.cut and not receipt.failed:
            raise ConnectionLostError(
                "what an earlier try left was still being written", device=host
            )
        doubtful = [one for one in blobs if not one.plain or one.offset]
        if wrong := [one for one in doubtful if one.file.sha256 in receipt.bad]:
            self._send_again(wrong, receipt)
            if not receipt.bad and tail:
                self._stream((), session.transport, self._style, tail=tail)
                tail = ()
        receipt.check(blobs, self._facts, host, stderr)
        for blob in blobs:
            if blob.file.sha256 in receipt.unhashed:
                self._read_back(blob)
        if tail:
            check_steps(receipt, tail, host, stderr)
            self._tail = ()
        if receipt.unpruned:
            session.emit(Warned(host, f"old releases were not removed: {receipt.unpruned}"))

    def _steps(self, tail: Sequence[Step]) -> Iterator[bytes]:
        for one in tail:
            self._session.emit(StepStarted(self._session.host.name, one.name, one.says))
            yield one.frame()

    def _send_again(self, blobs: Sequence[Blob], receipt: Receipt) -> None:
        """What they were built on, a spare, an old blob or a part, is not what it should be."""
        again: Sequence[Blob] = [
            Blob(one.file, base=one.base if one.delta is not None and one.delta.spare else "")
            for one in blobs
        ]
        self._whole |= {one.file.sha256 for one in again if not one.base}
        again = with_asked(self._session, self._facts, again)
        for one in again:
            how = "whole" if one.delta is None else "as what differs from the live one"
            text = f"{one.file.name}: what the device had of it is damaged; sent {how}"
            self._session.emit(Warned(self._session.host.name, text))
        self._total += sum(one.wire for one in again)
        self._stream(again, self._session.transport, self._style)
        for one in blobs:
            receipt.bad.pop(one.file.sha256)
            receipt.ok.add(one.file.sha256)

    def _patience(self, blobs: Sequence[Blob]) -> float:
        """Seconds without a byte: the device hashes and copies, others have their turn."""
        largest = max((blob.file.size for blob in blobs), default=0)
        seconds = HASHING_SECONDS + 2 * largest / HASHING_BYTES_PER_SECOND
        bandwidth = self._depot.pace.bandwidth
        return seconds + (256 * CHUNK / bandwidth if bandwidth else 0)

    def _read_back(self, blob: Blob) -> None:
        """No hash tool there: read the bytes back and hash them here."""
        host, sha = self._session.host.name, blob.file.sha256
        digest = hashlib.sha256()
        path = f"{self._facts.base_dir}/store/{sha}.part"
        forward: Callable[[bytes], object] = digest.update
        self._session.transport.run(
            device_script("show", path), Stall(HASHING_SECONDS), on_stdout=AfterMark(forward)
        )
        if digest.hexdigest() != sha:
            self._session.ask(Command(("rm", "-f", path)), "discard", mutates=True)
            raise TransferError(
                f"{blob.file.name}: what is on the device is not what was sent", device=host
            )
        self._session.ask(
            device_script("accept", self._facts.base_dir, sync_mode(self._facts)),
            "accept",
            stdin=[f"{sha} {mode_of(blob)}\n".encode()],
            mutates=True,
        )
