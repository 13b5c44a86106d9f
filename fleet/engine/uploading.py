"""Getting blobs onto a device: one stream, resumed at the byte when the link breaks."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Sequence

from fleet.engine.leasing import LeasedStall
from fleet.engine.planning import HASHING_BYTES_PER_SECOND, ask_state
from fleet.engine.session import Session
from fleet.model.command import Command
from fleet.model.deadline import Stall
from fleet.model.errors import (
    ConnectionLostError,
    DeadlineError,
    FleetError,
    TransferError,
    UnreachableError,
)
from fleet.model.events import Progress, Warned
from fleet.model.facts import Facts
from fleet.model.manifest import Manifest
from fleet.model.plan import Blob
from fleet.ops.frames import frames, mode_of
from fleet.ops.shell import AfterMark, device_script
from fleet.ops.upload import Receipt, receive_command, sync_mode, takes_batches

STALL_SECONDS = 60.0  # a link on which no byte moves for this long is dead
TRIES = 6  # of which each must bring bytes over, or the waiting grows
WAIT_SECONDS = 0.5  # before the second try; doubled for each further one
_BROKEN = (ConnectionLostError, DeadlineError, UnreachableError)


class Upload:
    """One upload of the blobs of a manifest to a device."""

    def __init__(self, session: Session, facts: Facts, manifest: Manifest) -> None:
        self._session = session
        self._facts = facts
        self._manifest = manifest
        self._total = 0

    def send(self, blobs: Sequence[Blob]) -> None:
        """Send until all is there. Raises the last error when the link stays broken."""
        self._total = sum(blob.left for blob in blobs)
        for attempt in range(TRIES):
            try:
                if attempt:
                    self._session.reopen()
                    blobs = self._lacking()
                self._send_once(blobs)
            except _BROKEN as error:
                self._again_or_raise(error, attempt)
            else:
                return

    def _again_or_raise(self, error: FleetError, attempt: int) -> None:
        if attempt + 1 == TRIES:
            error.hint = error.hint or "deploy again; it goes on where it stopped"
            raise error
        wait = WAIT_SECONDS * 2**attempt
        self._session.emit(
            Warned(self._session.host.name, f"{error.message}; going on in {wait:g} s")
        )
        time.sleep(wait)

    def _lacking(self) -> list[Blob]:
        state = ask_state(self._session, self._facts, self._manifest)
        return [
            Blob(item, min(state.parts.get(sha, 0), item.size))
            for sha, item in self._manifest.blobs.items()
            if sha not in state.have
        ]

    def _send_once(self, blobs: Sequence[Blob]) -> None:
        if self._facts.tools.dd_fullblock:
            self._stream(blobs, before=self._total - sum(blob.left for blob in blobs), single=False)
            return
        done = self._total - sum(blob.left for blob in blobs)
        for blob in blobs:
            self._stream([blob], before=done, single=True)
            done += blob.left

    def _stream(self, blobs: Sequence[Blob], *, before: int, single: bool) -> None:
        if not blobs:
            return
        host = self._session.host.name

        counted = self._session.payload_bytes

        def progress(done: int) -> None:
            self._session.payload_bytes = counted + done
            self._session.emit(Progress(host, "send", before + done, self._total))

        receipt = Receipt()
        largest = max(blob.file.size for blob in blobs)
        stall = STALL_SECONDS + largest / HASHING_BYTES_PER_SECOND
        lease = self._session.lease
        result = self._session.run(
            receive_command(self._facts, single=single),
            "send",
            stdin=frames(blobs, progress, batches=takes_batches(self._facts)),
            mutates=True,
            deadline=Stall(stall) if lease is None else LeasedStall(stall, lease),
            on_stdout=receipt.take,
        )
        receipt.check(blobs, self._facts, host, result.error_text)
        for blob in blobs:
            if blob.file.sha256 in receipt.unhashed:
                self._read_back(blob)

    def _read_back(self, blob: Blob) -> None:
        """No hash tool there: read the bytes back and hash them here."""
        host, sha = self._session.host.name, blob.file.sha256
        digest = hashlib.sha256()
        path = f"{self._facts.base_dir}/store/{sha}.part"
        self._session.transport.run(
            device_script("show", path), Stall(STALL_SECONDS), on_stdout=AfterMark(digest.update)
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
