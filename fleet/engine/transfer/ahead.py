"""Sending large new files while they are hashed: neither waits for the other.

Nothing is sent twice for it: a file of which the device may have the content already (a blob of
its size) waits for its hash, and of one whose name the live release has goes what differs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

from fleet.content.sources import Late, unreadable
from fleet.engine.session import Session
from fleet.engine.transfer.upload import Upload
from fleet.model.errors import DiskFullError
from fleet.model.events import StepStarted, Warned
from fleet.model.facts import Facts
from fleet.model.files import human_bytes
from fleet.model.manifest import Manifest
from fleet.model.plan import Blob
from fleet.ops.ahead import Answer, ahead_command, ahead_input, parse_ahead, takes_late
from fleet.ops.growing import Growing, likest
from fleet.ops.tail import Step
from fleet.ops.upload import Receipt

MARGIN_BYTES = 16 << 20


class Ahead(Upload):
    """An upload of files whose hash is not known yet. What fails to match is left for later."""

    def __init__(self, session: Session, facts: Facts, name: str, files: Sequence[Late]) -> None:
        super().__init__(session, facts, Manifest(name, ()))
        self._files = {one.key: one for one in files}
        self._asked = 0
        self._there: set[str] = set()

    def bring(self) -> frozenset[str] | None:
        """Send those that may go. All that the store has then; None: that has to be asked.

        Raises as `send`, and InputError for an unreadable file.
        """
        blobs = self._lacking()
        if not blobs:
            return None
        host, plain = self._session.host.name, [one for one in blobs if one.plain]
        says = " and ".join(
            f"{word}{len(some)} files, {human_bytes(sum(one.left for one in some))},"
            for word, some in (("", plain), ("what differs of ", [*set(blobs) - set(plain)]))
            if some
        )
        need = sum(one.left for one in blobs if one.growing is None or not one.growing.spare)
        self._session.emit(StepStarted(host, "send", f"send {says} while they are hashed", need))
        check_room(self._facts, need, host)
        self.send(blobs)
        return frozenset(self._there) if self._facts.store is False and self._asked == 1 else None

    def _lacking(self) -> tuple[Blob, ...]:
        """Those of which the device can have nothing under their hash, each from its part on."""
        facts, files = self._facts, [one.file for one in self._files.values()]
        self._asked += 1
        if facts.store is False and self._asked == 1:
            answer = Answer(dict.fromkeys(self._files, 0))
        else:
            command = ahead_command(facts, self._manifest.name)
            said = self._session.ask(command, "state", stdin=[ahead_input(facts, files)])
            answer = parse_ahead(said.text, self._session.host.name)
        blobs = [
            Blob(one.file, min(answer.free[key], one.file.size), late=_result(one))
            for key, one in self._files.items()
            if key in answer.free
        ]
        return (*blobs, *self._growing(answer))

    def _growing(self, answer: Answer) -> Iterator[Blob]:
        """Those of which the device has an older version, as what differs."""
        depot, spares = self._session.depot, list(answer.spares)
        for key, (base, have) in answer.olds.items():
            one = self._files.get(key)
            old = depot.signatures.load(base)
            if one is None or old is None or have > one.file.size or depot.pace.whole:
                continue
            found = Growing(one.file.size, one.hashing.signing, base, old)
            if not have:
                likest(found, spares, depot.signatures)
            yield Blob(one.file, have, late=_result(one), growing=found)

    def _judge(
        self, blobs: Sequence[Blob], receipt: Receipt, tail: Sequence[Step], stderr: str
    ) -> None:
        """Under their hashes now. What is damaged or has changed is sent again, by its hash."""
        known = []
        for one in blobs:
            if one.growing is not None and not one.growing.whole:
                continue
            sha = one.late() if one.late is not None else one.file.sha256
            if receipt.bad.pop(sha, None) is None:
                known.append(replace(one, file=replace(one.file, sha256=sha)))
                continue
            text = f"{one.file.name} changed or was damaged on its way; sent again"
            self._session.emit(Warned(self._session.host.name, text))
        super()._judge(known, receipt, tail, stderr)
        self._there |= receipt.ok


def send_ahead(
    session: Session, facts: Facts, name: str, files: Sequence[Late]
) -> tuple[Facts, frozenset[str]]:
    """Send what may go before it is hashed, where the device and the wishes allow it.

    The facts as they are then; and of a device without a store before, what that has now.
    """
    if not files or not takes_late(facts) or session.depot.neighbours is not None:
        return facts, frozenset()
    there = Ahead(session, facts, name, files).bring()
    return (facts, there) if there is not None else (replace(facts, store=True), frozenset())


def total(files: Sequence[Late]) -> int:
    """Their bytes."""
    return sum(one.file.size for one in files)


def check_room(facts: Facts, need: int, host: str) -> None:
    """Raise DiskFullError where the device's disk has less than `need` bytes and a margin."""
    disk, have = facts.disk, facts.disk.room_bytes
    if need and have is not None and have < need + MARGIN_BYTES:
        raise DiskFullError(
            f"{disk.path}: needed {human_bytes(need)}, {human_bytes(have)} are available",
            device=host,
            hint=f"free space on {disk.mount or disk.path}, or set base_dir in the inventory",
        )


def _result(one: Late) -> Callable[[], str]:
    def result() -> str:
        try:
            return one.hashing.result()
        except OSError as error:
            raise unreadable(error, one.file.source) from error

    return result
