"""The transfer of files from a device to a folder here: their list, and the stream of their bytes.

Nothing from a device is trusted. Sizes and names are checked. A file takes its place only if the
hash from the device matches the bytes that arrived.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import shlex
import shutil
import stat
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

from fleet.model.errors import DeviceError, WorkstationError, reason
from fleet.model.files import BLOCK_BYTES, human_bytes
from fleet.model.home import disk_full, unwritable
from fleet.model.text import visible
from fleet.ops.collected import FileStream

MOST_FILES = 200_000  # limit of one `fleet get`: about 60 MB of memory here
LIST_BYTES = 64 << 20
_RECORD_BYTES = 8192  # a path has 4096 bytes at most
_SEEN = re.compile(rb"is ([0-9a-f]{4,8}) (\d{1,24}) (.+)", re.DOTALL)
_LOST = re.compile(rb"(unread|gone) (.+)", re.DOTALL)
LINK = "is a symbolic link, and fleet does not follow links"
ODD = "is not a regular file"
UNREAD = "cannot be read by this user"
CHANGED = "changed on the device while fleet read it"
_OUTSIDE = "has a name that leads out of the folder"
_REASONS = {"link": LINK, "odd": ODD, "unread": UNREAD, "gone": "is gone from the device"}
_SIZE_DIGITS = 24


def inside(name: bytes) -> bool:
    """Return True if a name that a device gave stays below the folder where it is put."""
    return b"\0" not in name and not {b"", b".", b".."} & set(name.split(b"/"))


def named(name: bytes) -> str:
    """Return a name from the device as printable text."""
    return visible(os.fsdecode(name))


def _unreadable(record: bytes) -> DeviceError:
    return DeviceError(
        f"fleet does not understand a line that the device returned: {record[:200]!r}",
        step="get",
        hint="fleet doctor (finds tools on the device that do not work as expected)",
    )


class Listing:
    """The answer of get.sh to `list`, in chunks of any size.

    `files` maps names to bytes. `skipped` maps names that are no regular files to the reason.
    `lost` has the files that were wanted and cannot be fetched. Raises DeviceError for an endless
    list.
    """

    def __init__(self) -> None:
        self.folder = False
        self.files: dict[bytes, int] = {}
        self.skipped: dict[bytes, str] = {}
        self.lost: dict[bytes, str] = {}
        self.whole = False
        self._rest = b""
        self._status = b"0"

    def take(self, chunk: bytes) -> None:
        """Read the next output after the mark. Raises DeviceError, also for too many files."""
        *records, self._rest = (self._rest + chunk).split(b"//\n")
        for record in records:
            self._read(record)
        if len(self._rest) > _RECORD_BYTES:
            raise _unreadable(self._rest)
        if len(self.files) + len(self.skipped) + len(self.lost) > MOST_FILES:
            raise DeviceError(
                f"the folder on the device holds more than {MOST_FILES} files",
                step="get",
                hint="fetch the folders in it one by one; or pack it with tar on the device and "
                "fetch the archive",
            )

    def _read(self, record: bytes) -> None:
        kind, _, rest = record.partition(b" ")
        if kind == b"folder":
            self.folder = True
        elif kind == b"found":
            self._status = rest
        elif kind == b"end":
            self.whole = True
            self._judge()
        elif match := _SEEN.fullmatch(record):
            self._file(int(match[1], 16), int(match[2]), match[3].removeprefix(b"./"))
        elif match := _LOST.fullmatch(record):
            self.lost[match[2].removeprefix(b"./")] = _REASONS[match[1].decode()]
        else:
            raise _unreadable(record)

    def _file(self, mode: int, size: int, name: bytes) -> None:
        if stat.S_ISDIR(mode):
            return
        if not stat.S_ISREG(mode):
            self.skipped[name] = LINK if stat.S_ISLNK(mode) else ODD
        elif inside(name):
            self.files[name] = size
        else:
            self.lost[name] = _OUTSIDE

    def _judge(self) -> None:
        """Remove lost files from the other lists.

        A `find` that failed without naming a file has not listed everything.
        """
        for name in self.lost:
            self.files.pop(name, None)
            self.skipped.pop(name, None)
        if self._status != b"0" and not self.lost:
            self.lost[b"."] = "could not be listed completely: a folder changed meanwhile"


@dataclass(slots=True, eq=False)
class Wanted:
    """A file to fetch: its name below the requested path, its size in bytes, and its folder here.

    `first` is the first requested block of 64 KiB. `why` is the reason why the file cannot be
    fetched.
    """

    name: bytes
    size: int
    folder: Path
    first: int = 0
    here: bool = False
    why: str = ""

    @property
    def target(self) -> Path:
        """The final path of the file."""
        return self.folder / os.fsdecode(self.name.rpartition(b"/")[2])

    @property
    def part(self) -> Path:
        """The path for the bytes that have arrived so far."""
        word = hashlib.sha256(self.name.rpartition(b"/")[2]).hexdigest()[:16]
        return self.folder / f".fleet-{word}.part"

    @property
    def start(self) -> int:
        """The offset of the first byte to request."""
        return self.first * BLOCK_BYTES

    def drop(self) -> None:
        """Remove the part."""
        with contextlib.suppress(OSError):
            self.part.unlink()

    def request(self) -> bytes:
        """Return the line for get.sh; bytes that a part holds already are not requested.

        The last whole block is requested in any case, so that the device finds the rest after it.
        """
        there = 0
        with contextlib.suppress(OSError):
            about = self.part.lstat()
            there = about.st_size if stat.S_ISREG(about.st_mode) else 0
        blocks, rest = divmod(self.size, BLOCK_BYTES)
        self.first = max(0, min(there // BLOCK_BYTES, blocks - 1)) if there <= self.size else 0
        words = b"%d %d %d %d" % (self.first, blocks - self.first, rest, self.size)
        return b"%b ./%b//\n" % (words, self.name)


class Landing(FileStream):
    """A stream of files that is written to parts, each of which is renamed when its hash is right.

    `whole` is True once the device has answered for every file. `moved` gets the number of bytes
    that arrived, or that a part held. Raises DeviceError for data that was not requested, and
    WorkstationError if the disk is full. Another write error fails one file only.
    """

    def __init__(self, wanted: Sequence[Wanted], moved: Callable[[int], None]) -> None:
        super().__init__()
        self.whole = False
        self._items = list(wanted)
        self._moved = moved
        self._number = 0
        self._due = -1  # bytes of the file that were not announced yet; -1: it has not begun
        self._file: IO[bytes] | None = None
        self._hash = hashlib.sha256()

    def begin(self, size: int, name: str) -> None:
        """Start a piece of the next file; see FileStream."""
        item = self._expected(name)
        if self._due < 0:
            self._open(item)
        if not 0 < size <= self._due:
            raise self._unasked()
        self._due -= size

    def put(self, piece: memoryview) -> None:
        """Write a piece; see FileStream."""
        if self._file is None:
            return
        item = self._items[self._number]
        with _writing(item, item.part):
            self._file.write(piece)
        self._hash.update(piece)
        self._moved(len(piece))

    def finish(self) -> None:
        """Do nothing at the end of a piece; see FileStream."""

    def line(self, words: list[str]) -> None:
        """Read the line with which the device ends a file, or all of them; see FileStream."""
        if words == ["end"]:
            self.whole = self._number == len(self._items)
            return
        if len(words) != 3 or words[0] not in {"hash", "now", "not"}:
            raise self._unasked()
        item = self._expected(words[1])
        if words[0] == "hash" and self._due < 0:
            self._open(item)
        self._end(item, words[0], words[2])

    def _end(self, item: Wanted, kind: str, word: str) -> None:
        with _writing(item, item.part):
            self.close()
        if kind == "not":
            item.why = item.why or _REASONS.get(word, ODD)
        elif kind == "now" and word.isascii() and word.isdigit() and len(word) <= _SIZE_DIGITS:
            item.size = int(word)
        elif not item.why and not self._due and word == self._hash.hexdigest():
            with _writing(item, item.target):
                item.part.replace(item.target)
                item.here = True
        if not item.here:
            item.drop()
        self._number += 1
        self._due = -1

    def close(self) -> None:
        """Close the part of an incomplete file, for the next try."""
        file, self._file = self._file, None
        if file is not None:
            file.close()

    def _open(self, item: Wanted) -> None:
        self._hash = hashlib.sha256()
        self._due = item.size - item.start
        with _writing(item, item.part):
            if not item.first:
                item.part.unlink(missing_ok=True)
            flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW
            self._file = os.fdopen(os.open(item.part, flags, 0o666), "r+b")
            self._file.truncate(item.start)
            self._hash = hashlib.file_digest(self._file, "sha256")
            self._moved(item.start)

    def _expected(self, number: str) -> Wanted:
        if number != str(self._number) or self._number >= len(self._items):
            raise self._unasked()
        return self._items[self._number]

    def _unasked(self) -> DeviceError:
        return DeviceError(
            "the device sent data that fleet did not ask for",
            step="get",
            hint="run the command again; fleet doctor (examines the device)",
        )


@contextlib.contextmanager
def _writing(item: Wanted, path: Path) -> Iterator[None]:
    """Map errors of writing one file here. Raises WorkstationError if the disk is full."""
    try:
        yield
    except OSError as error:
        if disk_full(error):
            raise unwritable(path, error) from error
        item.why = f"cannot be written on this workstation ({reason(error)})"


@dataclass
class Space:
    """The free space of a folder here, shared by the files of several devices."""

    _claims: dict[str, int] = field(default_factory=dict)
    _free: int | None = None
    _lock: threading.Lock = field(default_factory=threading.Lock, repr=False)

    def claim(self, device: str, folder: Path, wanted: Iterable[Wanted]) -> None:
        """Reserve the space for the files of a device. Raises WorkstationError if it is not free.

        If the system does not state the free space, a full disk raises the error later.
        """
        need = sum(item.size - item.start for item in wanted)
        there = next(place for place in (folder, *folder.parents) if place.exists())
        with self._lock:
            if self._free is None:
                with contextlib.suppress(OSError):
                    self._free = shutil.disk_usage(there).free
            self._claims[device] = max(need, self._claims.get(device, 0))
            total = sum(self._claims.values())
        if self._free is not None and total > self._free:
            raise WorkstationError(
                f"the folder {folder} on this workstation has too little free space: needed "
                f"{human_bytes(total)}, free {human_bytes(self._free)}",
                hint=f"free disk space: df -h {shlex.quote(str(there))}; or choose a folder on "
                "another disk",
                step="get",
            )
