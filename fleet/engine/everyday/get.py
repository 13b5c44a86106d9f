"""The fetching of files from devices: first a list, then one stream in which each file is
verified.
"""

from __future__ import annotations

import contextlib
import errno
import os
import shlex
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from fleet.device.shell import AfterMark, device_script, failed
from fleet.engine.everyday.landing import (
    CHANGED,
    LIST_BYTES,
    UNREAD,
    Landing,
    Listing,
    Space,
    Wanted,
    inside,
    named,
)
from fleet.engine.lease.lease import Lease
from fleet.engine.pool import DeviceResult, PoolOptions, on_every_device
from fleet.engine.session import CONTROL_SECONDS, Beginning, Session
from fleet.engine.states import HASHING_BYTES_PER_SECOND
from fleet.model.command import Command, Result
from fleet.model.deadline import Stall
from fleet.model.errors import (
    CancelledError,
    ConnectionLostError,
    DeviceError,
    InputError,
    TransferError,
    TransportError,
)
from fleet.model.events import Listener, Progress, StepStarted
from fleet.model.files import human_bytes
from fleet.model.home import kept
from fleet.model.inventory import Host
from fleet.ops.lease import HEAD_BYTES, Holders, holders_in, who_command
from fleet.transport.base import Output

TRIES = 3
SHOW_BYTES = 4 << 20  # between two events of progress
MOST_NAMED = 50  # files to name in warnings if the work ended before they were requested
_HEAD_BYTES = 1 << 20  # room for the output of a login shell, and lines around a file


@dataclass
class _Found:
    """The files in the folder of one device, with the reason of each that did not arrive."""

    items: list[Wanted]
    lost: dict[bytes, str]

    @property
    def here(self) -> list[Wanted]:
        """The files that have arrived."""
        return [item for item in self.items if item.here]

    @property
    def open(self) -> list[Wanted]:
        """The missing files without a reason, which may still arrive."""
        return [item for item in self.items if not item.here and not item.why]

    @property
    def missing(self) -> dict[str, str]:
        """Name → reason of each missing file, "" if it may still arrive."""
        late = {item.name: item.why for item in self.items if not item.here}
        return {named(name): why for name, why in (self.lost | late).items()}


@dataclass(frozen=True)
class Fetched:
    """The files that arrived from one device; `missing` has the reason of each that did not.

    `holders` is None if the fetch took the lease itself.
    """

    files: tuple[str, ...]
    bytes: int
    missing: dict[str, str]
    holders: Holders | None = None


@dataclass(frozen=True)
class Fetching:
    """A file or folder `remote` to fetch from each device into `folder`.

    With `apart`, each device gets a folder of its own.
    """

    remote: str
    folder: Path
    apart: bool = False
    lease: bool = False
    space: Space = field(default_factory=Space, compare=False)

    def work(self, session: Session, result: DeviceResult[Fetched]) -> None:
        """Fetch the files of one device.

        Raises TransferError if a file did not arrive, with the names in the value of the result.
        Raises DeviceError if `remote` does not exist, and InputError if a link of this workstation
        is in the way. Raises WorkstationError if there is too little space.
        """
        with contextlib.ExitStack() as stack:
            if self.lease:
                stack.enter_context(Lease(session, f"get {self.remote}")).take()
            listing, holders = self._listed(session)
            files = self._targets(session, listing)
            total = sum(item.size for item in files.items)
            many = len(files.items) != 1
            words = f"{len(files.items)} files" if many else named(files.items[0].name)
            session.emit(StepStarted(session.host.name, "get", words, total))
            try:
                self._bring(session, files, total)
            except BaseException as error:
                _let_go(session, files, error)
                raise
            finally:
                result.value = Fetched(
                    tuple(named(item.name) for item in files.here),
                    sum(item.size for item in files.here),
                    files.missing,
                    None if self.lease else holders,
                )
        if files.missing:
            raise _incomplete(session, files)
        result.outcome = "ok"
        result.text = f"{words}, {human_bytes(total)}, in {self._root(session.host)}"

    def _listed(self, session: Session) -> tuple[Listing, Holders]:
        command = device_script("get", "list", self.remote)
        command = command if self.lease else who_command(command)

        def ask() -> tuple[Listing, Holders]:
            listing = Listing()
            head = Beginning(AfterMark(listing.take), HEAD_BYTES)
            done = _run(session, command, head.take, Stall(CONTROL_SECONDS), LIST_BYTES)
            if not listing.whole:
                raise self._absent(done.status, failed(done, "get", session.host.name))
            return listing, holders_in(head.text, session.host.name)

        return session.reading(ask)

    def _absent(self, status: int, error: DeviceError) -> DeviceError:
        if status != 44:
            return error
        return DeviceError(
            f"{self.remote} does not exist on the device, or this user cannot read it",
            step="get",
            hint="correct the path; list the home folder of the device: fleet exec 'ls -la'",
        )

    def _root(self, host: Host) -> Path:
        return self.folder / host.name if self.apart else self.folder

    def _targets(self, session: Session, listing: Listing) -> _Found:
        """Return the files to fetch, each with its place here. Warns about everything else."""
        for name, why in listing.skipped.items():
            session.warn(f"{named(name)} {why}; fleet did not copy it")
        if listing.skipped and not (listing.files or listing.lost):
            first = f"{self.remote.rstrip('/')}/{named(next(iter(listing.skipped)))}"
            raise DeviceError(
                f"{self.remote} has only links and special files: fleet copied nothing",
                step="get",
                hint=f"fleet get {shlex.quote(first)} (a link that is named itself is followed)",
            )
        root, folders = self._root(session.host), dict[bytes, Path]()
        top = os.fsencode(self.remote.rstrip("/").rpartition("/")[2]) if listing.folder else b""
        items = []
        for name, size in listing.files.items():
            above = (top + b"/" + name if inside(top) else name).rpartition(b"/")[0]
            if above not in folders:
                folders[above] = _place(root, Path(os.fsdecode(above)))
            items.append(Wanted(name, size, folders[above]))
        return _Found(items, listing.lost)

    def _bring(self, session: Session, files: _Found, total: int) -> None:
        """Fetch all files.

        Bytes that arrived before a broken link are not requested again, and are checked by hash
        too. A file that changed meanwhile is requested again with its new size.
        """
        breaks = changes = done = shown = 0

        def moved(count: int) -> None:
            nonlocal done, shown
            done += count
            if done - shown >= SHOW_BYTES:
                shown = done
                session.emit(Progress(session.host.name, "get", done, total))

        while wanted := files.open:
            done = sum(item.size for item in files.here)
            landing = Landing(wanted, moved)
            try:
                self._receive(session, wanted, landing)
                changes += 1
            except ConnectionLostError:
                breaks += 1
                if breaks == TRIES:
                    raise
                session.reopen()
            finally:
                landing.close()
            if changes == TRIES:
                for item in files.open:
                    item.why = CHANGED

    def _receive(self, session: Session, wanted: Sequence[Wanted], landing: Landing) -> None:
        asked = b"".join(item.request() for item in wanted)
        self.space.claim(session.host.name, self.folder, wanted)
        for folder in dict.fromkeys(item.folder for item in wanted):
            with kept(folder):
                folder.mkdir(parents=True, exist_ok=True)
                if not os.access(folder, os.W_OK | os.X_OK):
                    raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
        sizes = [item.size - item.start for item in wanted]
        done = _run(
            session,
            device_script("get", "send", self.remote),
            AfterMark(landing.take),
            Stall(CONTROL_SECONDS + max(item.size for item in wanted) / HASHING_BYTES_PER_SECOND),
            sum(sizes) + sum(sizes) // 1000 + 200 * len(sizes),
            stdin=asked,
        )
        if not landing.whole:
            raise failed(done, "get", session.host.name)


def _run(
    session: Session,
    command: Command,
    take: Output,
    deadline: Stall,
    limit: int,
    *,
    stdin: bytes = b"",
) -> Result:
    """Run a command whose output goes to `take`.

    Closes the connection at once and raises the error if `take` raises, or DeviceError if the
    device sends much more than `limit` bytes.
    """
    refused: list[Exception] = []
    left = limit + _HEAD_BYTES

    def taken(chunk: bytes) -> None:
        nonlocal left
        left -= len(chunk)
        try:
            if left < 0:
                raise DeviceError(
                    f"the device sent more than {human_bytes(limit)}, and did not end",
                    step="get",
                    hint="fleet doctor (finds tools on the device that do not work as expected)",
                )
            take(chunk)
        except Exception as error:
            refused.append(error)
            session.transport.close()
            raise

    try:
        return session.run(
            command, "get", stdin=[stdin] if stdin else (), deadline=deadline, on_stdout=taken
        )
    except TransportError:
        if not refused:
            raise
        if session.lease is not None:  # the new connection returns the lease
            session.reopen()
        raise refused[0] from None


def _let_go(session: Session, files: _Found, error: BaseException) -> None:
    """Warn about the files that an error prevented. Parts stay only if they can be resumed."""
    resumes = isinstance(error, TransportError | CancelledError)
    late = files.open
    for item in late:
        item.why = "did not arrive"
        if not resumes:
            item.drop()
    if not isinstance(error, CancelledError):
        _name(session, files.missing, MOST_NAMED)


def _name(session: Session, missing: dict[str, str], most: int) -> None:
    for name, why in list(missing.items())[:most]:
        session.warn(f"{name} {why}")
    if len(missing) > most:
        session.warn(f"{len(missing) - most} more files did not arrive")


def _incomplete(session: Session, files: _Found) -> TransferError:
    """Warn about the missing files, and return the error for them."""
    missing = files.missing
    _name(session, missing, len(missing))
    total = len(files.items) + len(files.lost)
    name, why = next(iter(missing.items()))
    first = f"{name} {why}" if len(missing) == 1 else "each is named above, with the reason"
    unread = all(why == UNREAD for why in missing.values())
    return TransferError(
        f"{len(missing)} of {total} files did not arrive: {first}",
        step="get",
        hint="log in as a user who can read them (`user:` in the inventory)"
        if unread
        else "run the command again when no program writes to the files; or make a copy on the "
        "device and fetch the copy",
    )


def _place(root: Path, above: Path) -> Path:
    """Return the folder for files here. Raises InputError where a link is in the way."""
    folder = root
    for part in above.parts:
        folder /= part
        if folder.is_symlink():
            raise InputError(
                f"{folder} on this computer is a symbolic link, and fleet does not write "
                "through symbolic links",
                hint="fetch into an empty folder",
            )
    return folder


def fetch_everywhere(
    job: Fetching,
    hosts: Sequence[Host],
    listener: Listener,
    *,
    parallel: int,
    accept_new: bool = False,
) -> list[DeviceResult[Fetched]]:
    """Fetch the files of `job` from every host. `accept_new` pins new host keys."""
    options = PoolOptions[Fetched](parallel=parallel, accept_new=accept_new)
    return on_every_device(hosts, job.work, listener, options)
