"""Files of devices for this workstation: what is there, then one stream, each file verified."""

from __future__ import annotations

import contextlib
import hashlib
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from fleet.device.shell import AfterMark, device_script, failed
from fleet.engine.leasing import Lease
from fleet.engine.pool import DeviceResult, on_every_device
from fleet.engine.session import CONTROL_SECONDS, Beginning, Session
from fleet.engine.states import HASHING_BYTES_PER_SECOND
from fleet.model.deadline import Stall
from fleet.model.errors import ConnectionLostError, DeviceError, InputError, TransferError
from fleet.model.events import Listener, Progress, StepStarted
from fleet.model.files import human_bytes
from fleet.model.home import kept
from fleet.model.inventory import Host
from fleet.ops.collected import FileStream, safe
from fleet.ops.lease import HEAD_BYTES, holders_in, who_command

TRIES = 3
SHOW_BYTES = 4 << 20  # between two events of progress
_NOT_SENT = {
    "link": "is a symbolic link, and fleet does not follow links",
    "odd": "is not a regular file, or its name contains characters that fleet cannot send",
    "unread": "cannot be read by this user",
}


@dataclass
class Wanted:
    """A file of the device: its name below what was asked for, its bytes, where it goes."""

    name: str
    size: int
    target: Path

    @property
    def part(self) -> Path:
        """What has come of it so far."""
        word = hashlib.sha256(self.target.name.encode()).hexdigest()[:16]
        return self.target.with_name(f".fleet-{word}.part")

    @property
    def there(self) -> int:
        """Bytes of the part that can be gone on with; a link in its place is none of ours."""
        size = self.part.lstat().st_size if self.part.is_file() else 0
        return size if size <= self.size and not self.part.is_symlink() else 0


class Landing(FileStream):
    """Puts a stream of files into their parts, and each one that its hash proves in its place."""

    def __init__(self, wanted: Sequence[Wanted], session: Session) -> None:
        super().__init__()
        self.wanted = list(wanted)
        self.bad: list[str] = []  # names of files with another hash
        self._session = session
        self._total = sum(item.size for item in wanted)
        self._done = self._shown = 0
        self._number = -1
        self._file: IO[bytes] | None = None
        self._hash = hashlib.sha256()

    def begin(self, size: int, name: str) -> None:
        """See FileStream. Raises DeviceError for a file that was not asked for."""
        self._number += 1
        if name != str(self._number) or self._number >= len(self.wanted):
            raise DeviceError(
                "the device sent a file that fleet did not ask for",
                step="get",
                hint="run the command again; fleet doctor (examines the device)",
            )
        item = self.wanted[self._number]
        there = item.there
        if size != item.size - there:
            raise DeviceError(
                f"the file {item.name} changed on the device while fleet read it: fleet "
                f"received {size} bytes instead of {item.size - there}",
                step="get",
                hint="run the command again when no program writes to the file",
            )
        self._hash = hashlib.sha256()
        with kept(item.part):
            if there:
                with item.part.open("rb") as old:
                    self._hash = hashlib.file_digest(old, "sha256")
            else:
                item.part.unlink(missing_ok=True)
            flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW
            self._file = os.fdopen(os.open(item.part, flags, 0o666), "ab")
        self._done += there

    def put(self, piece: memoryview) -> None:
        """See FileStream."""
        if self._file is not None:
            with kept(self.wanted[self._number].part):
                self._file.write(piece)
            self._hash.update(piece)
            self._done += len(piece)
            if self._done - self._shown >= SHOW_BYTES:
                self._shown = self._done
                name = self._session.host.name
                self._session.emit(Progress(name, "get", self._done, self._total))

    def finish(self) -> None:
        """See FileStream."""
        self.close()

    def line(self, words: list[str]) -> None:
        """The hash of the file before: it takes its place, or is no file at all."""
        if words[0] != "hash" or self._number < 0:
            return
        item = self.wanted[self._number]
        with kept(item.target):
            if words[1:] == [self._hash.hexdigest()]:
                item.part.replace(item.target)
            else:
                item.part.unlink(missing_ok=True)
                self.bad.append(item.name)

    def close(self) -> None:
        """What has come is on the disk, for the next try."""
        if self._file is not None:
            with kept(self.wanted[self._number].part):
                self._file.close()
            self._file = None


@dataclass(frozen=True)
class Fetching:
    """A file or folder `remote` of each device, for `folder`; `apart`: one folder a device."""

    remote: str
    folder: Path
    apart: bool = False
    lease: bool = False

    def work(self, session: Session, result: DeviceResult) -> None:
        """On one device. Raises DeviceError where there is no such file, TransferError where its
        hash is another one twice, InputError where a link of this workstation is in the way.
        """
        with contextlib.ExitStack() as stack:
            if self.lease:
                stack.enter_context(Lease(session, f"get {self.remote}")).take()
            body = bytearray()
            head = Beginning(AfterMark(body.extend), HEAD_BYTES)
            command = device_script("get", "list", self.remote)
            done = session.run(
                command if self.lease else who_command(command),
                "get",
                deadline=Stall(CONTROL_SECONDS),
                on_stdout=head.take,
            )
            if not body.endswith(b"end\n"):
                raise self._absent(done.status, failed(done, "get", session.host.name))
            wanted = self._wanted(session, body.decode("utf-8", "replace").split("\n")[:-2])
            total = sum(item.size for item in wanted)
            words = f"{len(wanted)} files" if len(wanted) != 1 else wanted[0].name
            session.emit(StepStarted(session.host.name, "get", words, total))
            self._bring(session, wanted)
        holders = holders_in(head.text, session.host.name)
        result.details = {"files": [item.name for item in wanted], "bytes": total}
        if not self.lease:
            result.details |= {"notes": holders.notes()}
        result.outcome = "ok"
        result.text = f"{words}, {human_bytes(total)}, in {self._root(session.host)}"

    def _absent(self, status: int, error: DeviceError) -> DeviceError:
        if status != 44:
            return error
        return DeviceError(
            f"{self.remote} does not exist on the device, or this user cannot read it",
            step="get",
            hint="list the home folder of the device: fleet exec 'ls -la'",
        )

    def _root(self, host: Host) -> Path:
        return self.folder / host.name if self.apart else self.folder

    def _wanted(self, session: Session, lines: list[str]) -> list[Wanted]:
        """The files that can be had; what cannot is said."""
        root, found = self._root(session.host), []
        top = self.remote.rstrip("/").rpartition("/")[2] if "folder" in lines else ""
        for line in lines:
            kind, _, rest = line.partition(" ")
            size, _, name = rest.partition(" ")
            if kind == "file" and size.isascii() and size.isdigit() and safe(name):
                inner = f"{top}/{name}" if safe(top) else name
                found.append(Wanted(name, int(size), _place(root, inner)))
            elif kind != "folder":
                why = _NOT_SENT.get(kind, _NOT_SENT["odd"])
                session.warn(f"{rest} {why}; fleet did not copy it")
        return found

    def _bring(self, session: Session, wanted: list[Wanted]) -> None:
        """All of it; what came before a break is not sent again, nor believed without its hash."""
        for last in (*(False for _ in range(TRIES - 1)), True):
            landing = Landing(wanted, session)
            try:
                self._receive(session, landing)
            except ConnectionLostError:
                if last:
                    raise
                session.reopen()
                continue
            finally:
                landing.close()
            if not landing.bad:
                return
            wanted = [item for item in wanted if item.name in landing.bad]
        raise TransferError(
            f"the file {landing.bad[0]} changes on the device while fleet reads it",
            step="get",
            hint="run the command again when no program writes to the file; or make a copy on "
            "the device and fetch the copy",
        )

    def _receive(self, session: Session, landing: Landing) -> None:
        asked = [
            f"{item.there + 1} {item.size - item.there} ./{item.name}/\n" for item in landing.wanted
        ]
        largest = max((item.size for item in landing.wanted), default=0)
        done = session.run(
            device_script("get", "send", self.remote),
            "get",
            stdin=["".join(asked).encode()],
            deadline=Stall(CONTROL_SECONDS + largest / HASHING_BYTES_PER_SECOND),
            on_stdout=AfterMark(landing.take),
        )
        if not done.ok:
            raise failed(done, "get", session.host.name)


def _place(root: Path, name: str) -> Path:
    """Where a file of that name goes; its folders are made, and none of them is a link."""
    folder = root
    for part in Path(name).parts[:-1]:
        folder /= part
        if folder.is_symlink():
            raise InputError(
                f"{folder} on this computer is a symbolic link, and fleet does not write "
                "through symbolic links",
                hint="fetch into an empty folder",
            )
    with kept(folder):
        folder.mkdir(parents=True, exist_ok=True)
    return folder / Path(name).name


def fetch_everywhere(
    job: Fetching,
    hosts: Sequence[Host],
    listener: Listener,
    *,
    parallel: int,
    accept_new: bool = False,
) -> list[DeviceResult]:
    """From every host."""
    return on_every_device(hosts, job.work, listener, parallel=parallel, accept_new=accept_new)
