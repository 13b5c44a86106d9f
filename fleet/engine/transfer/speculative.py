"""The transfer of large new files while they are hashed, so that neither waits for the other.

Nothing is sent twice: a file whose content may be on the device already (a blob of its size) waits
for its hash. A file with a name in the live release is sent as a delta.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace

from msgspec import structs

from fleet.content.sources import Late, unreadable
from fleet.device.shell import framed, odd_answer
from fleet.engine.session import Session
from fleet.engine.transfer.upload import Upload
from fleet.model.errors import DiskFullError
from fleet.model.events import StepStarted
from fleet.model.facts import Facts
from fleet.model.files import human_bytes
from fleet.model.manifest import Manifest
from fleet.model.plan import Blob, Delta
from fleet.ops.backend import backend_for
from fleet.ops.frames import Unhashed
from fleet.ops.streaming_delta import StreamingDelta, choose_recyclable
from fleet.ops.upload import Receipt, Step

_OLD = re.compile(r"old (\S+) ([0-9a-f]{64}) ([0-9]{1,18})")
_RECYCLABLE = re.compile(r"spare ([0-9a-f]{64})")


@dataclass(frozen=True)
class SpeculativeAnswer:
    """The answer which files may be sent now.

    `free` maps the name of a state → bytes that are already on the device. `olds` maps files that
    may be sent as a delta → the sha256 in the live release and those bytes. `recyclable` are the
    sha256 of files that no release needs. Other files may already be stored under their hash.
    """

    free: dict[str, int] = field(default_factory=dict)
    olds: dict[str, tuple[str, int]] = field(default_factory=dict)
    recyclable: tuple[str, ...] = ()


def parse_speculative(text: str, host: str) -> SpeculativeAnswer:
    """Parse the answer of ahead.sh. Raises DeviceError."""
    free, olds, recyclable = {}, {}, []
    for words in framed(text, "fleet-ahead 1", host):
        if match := _OLD.fullmatch(" ".join(words)):
            olds[match[1]] = (match[2], int(match[3]))
        elif match := _RECYCLABLE.fullmatch(" ".join(words)):
            recyclable.append(match[1])
        elif len(words) == 2 and words[1].isdigit():
            free[words[0]] = int(words[1])
        else:
            raise odd_answer(" ".join(words), host)
    return SpeculativeAnswer(free, olds, tuple(recyclable))


MARGIN_BYTES = 16 << 20


class SpeculativeSend:
    """A transfer of files whose hash is not known yet. Files that do not match are left for
    later.
    """

    def __init__(self, session: Session, facts: Facts, name: str, files: Sequence[Late]) -> None:
        self._session, self._facts, self._name = session, facts, name
        self._files = {late.key: late for late in files}
        self.unhashed: dict[str, Unhashed] = {}
        self._asked = 0
        self._there: set[str] = set()
        self.finished = False

    def bring(self, tail: Sequence[Step] = ()) -> frozenset[str] | None:
        """Send the files that may be sent, and the `tail`.

        Return the sha256 of everything in the store, None if the device must be asked. Raises the
        errors of `send`, and InputError for an unreadable file.
        """
        blobs = self.lacking()
        if not blobs:
            return None
        host, plain = self._session.host.name, [blob for blob in blobs if blob.plain]
        says = " and ".join(
            f"{word}{len(some)} files, {human_bytes(sum(blob.left for blob in some))},"
            for word, some in (("", plain), ("what differs of ", [*set(blobs) - set(plain)]))
            if some
        )
        need = sum(blob.left for blob in blobs if blob.delta is None or not blob.delta.spare)
        self._session.emit(StepStarted(host, "send", f"send {says} while they are hashed", need))
        check_room(self._facts, need)
        upload = Upload(self._session, self._facts, Manifest(self._name, ()), self)
        upload.send(blobs, tail, ends=True)
        self.finished = upload.finished
        return frozenset(self._there) if self._facts.store is False and self._asked == 1 else None

    def lacking(self) -> tuple[Blob, ...]:
        """Return the blobs that the device cannot have yet, each with the offset to resume from."""
        facts, files = self._facts, [late.file for late in self._files.values()]
        self._asked += 1
        if facts.store is False and self._asked == 1:
            answer = SpeculativeAnswer(dict.fromkeys(self._files, 0))
        else:
            asked = backend_for(facts).speculative(self._name, files)
            result = self._session.ask(asked.command, "state", stdin=asked.stdin)
            answer = parse_speculative(result.text, self._session.host.name)
        blobs = []
        for key, late in self._files.items():
            if key in answer.free:
                self.unhashed[key] = Unhashed(_result(late))
                blobs.append(Blob(late.file, min(answer.free[key], late.file.size)))
        return (*blobs, *self._streaming_delta(answer))

    def _streaming_delta(self, answer: SpeculativeAnswer) -> Iterator[Blob]:
        """Yield the files of which the device has an older version, as streaming deltas."""
        transfer, recyclable = self._session.transfer, list(answer.recyclable)
        for key, (base, have) in answer.olds.items():
            late = self._files.get(key)
            old = transfer.signatures.load(base)
            if late is None or old is None or have > late.file.size or transfer.options.whole:
                continue
            streaming = StreamingDelta(late.file.size, late.hashing.signing, base, old)
            if not have:
                choose_recyclable(streaming, recyclable, transfer.signatures)
            self.unhashed[key] = Unhashed(_result(late), streaming)
            yield Blob(late.file, have, delta=Delta(base, (), streaming.spare))

    def hashed(self, blobs: Sequence[Blob], receipt: Receipt) -> Sequence[Blob]:
        """Return the blobs with their hashes. Damaged or changed files are sent again by hash."""
        known = []
        for blob in blobs:
            unhashed = self.unhashed[blob.file.sha256]
            if unhashed.delta is not None and not unhashed.delta.whole:
                continue
            sha = unhashed.sha256()
            if receipt.bad.pop(sha, None) is None:
                known.append(replace(blob, file=replace(blob.file, sha256=sha)))
                continue
            self._session.warn(
                f"{blob.file.name} was modified or damaged on its way; fleet sends it again"
            )
        self._there |= receipt.ok
        return known


def send_speculatively(
    session: Session, facts: Facts, name: str, files: Sequence[Late], tail: Sequence[Step] = ()
) -> tuple[Facts, frozenset[str], bool]:
    """Send files before they are hashed, if the device and the options allow it.

    Return the current facts, the content of a new store, and whether the `tail` was executed.
    """
    if not files or not backend_for(facts).late or session.transfer.neighbours is not None:
        return facts, frozenset(), False
    sending = SpeculativeSend(session, facts, name, files)
    there = sending.bring(tail)
    if there is None:
        return structs.replace(facts, store=True), frozenset(), False
    return facts, there, sending.finished


def check_room(facts: Facts, need: int) -> None:
    """Raise DiskFullError if the device's disk has less than `need` bytes and a margin."""
    disk, have = facts.disk, facts.disk.room_bytes
    if need and have is not None and have < need + MARGIN_BYTES:
        raise DiskFullError(
            f"the disk of {disk.path} on the device is too full: needed {human_bytes(need)}, free "
            f"{human_bytes(have)}",
            hint=f"free space on {disk.mount or disk.path}, or set base_dir in the inventory",
        )


def _result(late: Late) -> Callable[[], str]:
    def result() -> str:
        try:
            return late.hashing.result()
        except OSError as error:
            raise unreadable(error, late.file.source) from error

    return result
