"""Import of profiles of every known kind: files, folders, exports of another workstation.

A file is imported completely or not at all, and only once: the hash of its content identifies it.
Files are read in batches of TURN. Each batch is one transaction; its raw files are on the disk
before the transaction begins.
"""

from __future__ import annotations

import hashlib
import json
import os
import stat
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fleet.model.errors import InputError, ProfileError, UnknownProfileError, reason
from fleet.model.plain import to_plain
from fleet.model.record import Record
from fleet.profiles.formats import detect
from fleet.profiles.formats.base import Profile
from fleet.profiles.store import ProfileStore
from fleet.profiles.store.database import mapped_errors, writing
from fleet.profiles.store.rows import insert
from fleet.profiles.store.select import named

TURN = 1000
MOST_RAW_BYTES = 64 << 20  # of one file next to a record.json
_OURS = "record.json"
Progress = Callable[[int, int], None]


@dataclass(frozen=True)
class Labels:
    """Labels that the user gives to files that do not contain them. Missing labels stay unknown."""

    host: str = ""
    name: str = ""
    tags: tuple[str, ...] = ()
    emulated: bool | None = None


@dataclass(frozen=True)
class BadFile:
    """A file that was not imported: its path, the reason, and a hint.

    `unknown` is True if the file is not a profile, or belongs to a tool that fleet does not read;
    such a file is not damaged.
    """

    path: str
    message: str
    hint: str = ""
    unknown: bool = False


@dataclass
class Imported:
    """The result of an import. `skipped` are files of a folder that are not profiles."""

    files: int = 0
    new: int = 0
    known: int = 0
    bad: list[BadFile] = field(default_factory=list)
    skipped: list[BadFile] = field(default_factory=list)

    @property
    def unknown(self) -> int:
        """The number of files that are not profiles, including files that the user named."""
        return len(self.skipped) + sum(file.unknown for file in self.bad)

    @property
    def is_empty(self) -> bool:
        """True if there were files and none of them is a profile."""
        return bool(self.files) and not (self.new or self.known)


@dataclass(frozen=True)
class _Item:
    """A file that was read: its records, and the raw files that belong to each record."""

    path: Path
    records: tuple[tuple[Record, dict[str, Any]], ...]  # with its plain data
    raw: tuple[tuple[str, str, int], ...]  # name, sha256, bytes


class Importer:
    """An import into a store. Raises InputError for an invalid tag name."""

    def __init__(self, store: ProfileStore, labels: Labels | None = None) -> None:
        self.store = store
        self.labels = labels or Labels()
        for tag in self.labels.tags:
            named(tag, "tag")
        self.done = Imported()
        self._stamp = time.strftime("imported-%Y%m%d-%H%M%S", time.gmtime())
        self._folders: dict[Path, tuple[str, int]] = {}

    def take(self, paths: Sequence[Path], progress: Progress | None = None) -> Imported:
        """Import files and folders; a bad file does not stop the others.

        `progress` is called with (files done, total number of files). Raises InputError for a path
        that does not exist, and ProfileStoreError if the store cannot be written.
        """
        unread: list[OSError] = []
        entries = [entry for path in paths for entry in _files(path, unread.append)]
        self.done.bad += [BadFile(str(error.filename), f"{error.strerror}") for error in unread]
        for start in range(0, len(entries), TURN):
            turn = entries[start : start + TURN]
            self._put([item for entry in turn if (item := self._read(*entry)) is not None])
            if progress is not None:
                progress(start + len(turn), len(entries))
        return self.done

    def _read(self, path: Path, asked: bool, alone: bool) -> _Item | None:
        self.done.files += 1
        try:
            info = path.stat()
            if not stat.S_ISREG(info.st_mode):
                raise UnknownProfileError(
                    "this is a pipe or a device, not a file",
                    hint="save the data to a file, and import the file",
                )
            if info.st_size > detect.MOST_BYTES:
                raise UnknownProfileError(
                    f"the file is too large for a profile: {info.st_size} bytes",
                    hint=f"give a file of one of these formats: {detect.KNOWN}",
                )
            data = path.read_bytes()
            if path.name == _OURS:
                plain = json.loads(data)
                made = ((Record.from_dict(plain), plain),)
                return _Item(path, made, () if alone else self._beside(path))
            return self._item(path, data)
        except UnknownProfileError as error:
            place = self.done.bad if asked else self.done.skipped
            place.append(BadFile(str(path), error.message, error.hint, unknown=True))
        except OSError as error:
            self.done.bad.append(BadFile(str(path), f"cannot be read: {reason(error)}"))
        except (ProfileError, InputError) as error:
            self.done.bad.append(BadFile(str(path), error.message, error.hint))
        except (ValueError, RecursionError) as error:
            self.done.bad.append(
                BadFile(str(path), f"is damaged: {reason(error)}", "copy the file again")
            )
        return None

    def _item(self, path: Path, data: bytes) -> _Item:
        read = detect.read(data)
        profiles = [read] if isinstance(read, Profile) else read
        made = [item for item in profiles if isinstance(item, Profile)]
        if not made:
            plain = [item for item in profiles if isinstance(item, dict)]
            return _Item(path, tuple(_numbered(plain)), ())
        sha256 = hashlib.sha256(data).hexdigest()
        records = [self._record(path, item, sha256, row) for row, item in enumerate(made)]
        self.store.raw.keep(data)
        pairs = tuple((record, to_plain(record)) for record in records)
        return _Item(path, pairs, ((path.name, sha256, len(data)),))

    def _record(self, path: Path, profile: Profile, sha256: str, row: int) -> Record:
        """Return the record of one profile; `row` counts the profiles of its file from 0.

        Files of one folder become one run, because nothing else is known about which files belong
        together.
        """
        run_id, count = self._folders.get(path.parent, ("", 0))
        if not run_id:
            more = f"-{len(self._folders) + 1}" if self._folders else ""
            run_id = self._stamp + more
        self._folders[path.parent] = run_id, count + 1
        origin = {**profile.origin, "imported": path.name, "format": profile.format}
        origin["sha256"] = sha256
        if row:
            origin["row"] = str(row)
        if profile.runtime:
            origin["build_id"] = profile.runtime
        return Record(
            run_id=run_id,
            host=self.labels.host,
            name=self.labels.name,
            runner=profile.runner,
            repeat=count,
            metrics=profile.metrics,
            problems=profile.problems,
            emulated=self.labels.emulated,
            origin=origin,
            text=profile.text,
            ops=profile.ops,
            tags=self.labels.tags,
            marks=profile.marks,
        )

    def _beside(self, path: Path) -> tuple[tuple[str, str, int], ...]:
        """Store the other files of a run's folder. Return name, sha256, bytes of each."""
        raw = []
        for file in sorted(path.parent.rglob("*")):
            small = file.is_file() and file.stat().st_size <= MOST_RAW_BYTES
            if small and file != path and not file.name.endswith(".part"):
                data = file.read_bytes()
                name = file.relative_to(path.parent).as_posix()
                raw.append((name, self.store.raw.keep(data), len(data)))
        return tuple(raw)

    def _put(self, items: Sequence[_Item]) -> None:
        self.store.raw.settle()
        link = self.store.link
        with mapped_errors(self.store.path), writing(link):
            for item in items:
                for record, plain in item.records:
                    number = insert(link, record, plain, str(item.path))
                    if not number:
                        self.done.known += 1
                        continue
                    self.done.new += 1
                    for raw in item.raw:
                        link.execute("INSERT INTO raw VALUES (?, ?, ?, ?)", (number, *raw))
                    for tag in self.labels.tags:
                        link.execute("INSERT OR IGNORE INTO tag VALUES (?, ?)", (tag, number))


def _numbered(read: list[dict[str, Any]]) -> Iterator[tuple[Record, dict[str, Any]]]:
    for number, plain in enumerate(read, 1):
        try:
            yield Record.from_dict(plain), plain
        except InputError as error:
            place = f"record {number}: " if len(read) > 1 else ""
            raise InputError(place + error.message, hint=error.hint) from error


def _files(path: Path, unread: Callable[[OSError], None]) -> Iterator[tuple[Path, bool, bool]]:
    """Yield (file, whether the user named it, whether no other file belongs to it).

    The other files in the folder of a record.json belong to that record. `unread` is called with
    the error of each folder that cannot be listed.
    """
    if path.exists() and not path.is_dir():
        yield path, True, path.name != _OURS
        return
    if not path.is_dir():
        raise InputError(
            f"the file or folder {path} does not exist", hint=f"correct the path; ls {path.parent}"
        )
    for folder, below, names in os.walk(path, onerror=unread):
        below.sort()
        if _OURS in names:
            alone = len(names) == 1 and not below
            below.clear()
            yield Path(folder, _OURS), False, alone
            continue
        below[:] = [name for name in below if not name.startswith("profiles.")]
        for name in sorted(names):
            if not name.startswith("profiles.db") and not name.endswith(".part"):
                yield Path(folder, name), False, True
