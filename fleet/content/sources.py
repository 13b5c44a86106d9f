"""Files and folders that are to go to devices: found at once, hashed meanwhile."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from pathlib import Path
from threading import Thread

import xxhash

from fleet.content.caches import keep_newest, write_whole
from fleet.content.hashes import MIN_BYTES, HashCache, Hashing, settled, state_of
from fleet.model.errors import InputError, reason
from fleet.model.files import FileRef, contents
from fleet.model.home import fleet_home

# SHA-256 of the small files of a folder, kept together: a folder of thousands is pushed often.

_HEAD = b"fleet-tree-1"
_KEPT = 50  # folders; 2,000 files take 0.3 MB


class TreeHashes:
    """name, size, mtime, inode and ctime → SHA-256, one file for each folder that was pushed.

    It is read when that folder is asked about and holds what is in it now, nothing more. Large
    files are left to `large`, which every command shares. A cache only, as `HashCache` is: an
    unreadable, damaged or unwritable one is passed over. Call `save` at the end.
    """

    def __init__(self, root: Path, large: HashCache, kept: Path | None = None) -> None:
        self._large = large
        name = xxhash.xxh3_128_hexdigest(os.fsencode(root.absolute()))
        self._path = (kept or fleet_home() / "trees") / name
        self._known = self._read()
        self._now: dict[str, str] = {}

    def knows(self, name: str, stat: os.stat_result) -> bool:
        """Whether the hash of that small file is here."""
        return self._known.get(name, "").startswith(_key(stat))

    def sha256(self, name: str, path: str | Path, stat: os.stat_result) -> tuple[str, bytes | None]:
        """The hash of the file `name` of the folder, and its content where that was read for it
        in one piece; `stat` is from before. Raises OSError.
        """
        if stat.st_size >= MIN_BYTES:
            return self._large.sha256(Path(path)), None
        key = _key(stat)
        known = self._known.get(name, "")
        if known.startswith(key):
            self._now[name] = known
            return known[len(key) :], None
        data = contents(path)
        digest = hashlib.sha256(data).hexdigest()
        if settled(stat):
            self._now[name] = key + digest
        return digest, data

    def save(self) -> None:
        """Keep what is there now; the folders that changed longest ago fall out."""
        if self._now == self._known:
            return
        text = json.dumps(self._now).encode()
        sum_of = xxhash.xxh3_64_hexdigest(text).encode()
        if write_whole(self._path, b"%s %s\n%s" % (_HEAD, sum_of, text)):
            self._known = self._now
            keep_newest(self._path.parent, _KEPT)

    def _read(self) -> dict[str, str]:
        """What was saved; the sum says that we wrote it and that it is whole."""
        try:
            head, _, text = self._path.read_bytes().partition(b"\n")
        except OSError:
            return {}
        if head != b"%s %s" % (_HEAD, xxhash.xxh3_64_hexdigest(text).encode()):
            return {}
        found: dict[str, str] = json.loads(text)
        return found


def _key(stat: os.stat_result) -> str:
    return f"{state_of(stat)}|"


LATE_BYTES = 16 << 20  # from here on hashing takes longer than asking what the device has
HELD_BYTES = 32 << 20  # small files that were just hashed stay in memory until they are sent


@dataclass(slots=True)
class _Found:
    name: str
    where: str
    stat: os.stat_result
    inside: str = ""  # its name in `tree`
    tree: TreeHashes | None = None
    hashing: Hashing | None = None

    @property
    def path(self) -> Path:
        """Made when it is needed: 2,000 take 6 ms."""
        return Path(self.where)


@dataclass(frozen=True)
class Late:
    """A large file that is still being hashed. `key` names this state of it, in 37 letters."""

    file: FileRef
    key: str
    hashing: Hashing = field(compare=False)


class SourceFiles:
    """All files of some files and folders. Hashing begins with `start`, in threads.

    A file has its own name; of one folder its content, of several each under its name.
    """

    def __init__(self, sources: Sequence[Path]) -> None:
        """Raises InputError for what is not there, cannot be read, or cannot be sent."""
        self._cache = HashCache()
        self._trees: list[TreeHashes] = []
        self._result: Future[tuple[FileRef, ...]] = Future()
        try:
            self._found = [
                file for source in sources for file in self._files(source, alone=len(sources) == 1)
            ]
        except OSError as error:
            raise unreadable(error) from error
        self._check_names()
        if not self._found:
            raise InputError(
                f"{', '.join(map(str, sources))} contains no file to send",
                hint="name a file, or a folder with at least one file",
            )

    def start(self) -> SourceFiles:
        """Begin to hash; large files two at a time, small ones behind each other."""
        for file in self._found:
            if file.stat.st_size >= LATE_BYTES:
                file.hashing = Hashing(file.path, self._cache).start()
        Thread(target=self._work, daemon=True, name="fleet-sources").start()
        return self

    def files(self) -> tuple[FileRef, ...]:
        """All of them with their hashes; waits for that. Raises InputError."""
        return self._result.result()

    def __len__(self) -> int:
        return len(self._found)

    def late(self) -> list[Late]:
        """The large ones whose hash is not there yet."""
        return [
            _late(file, file.hashing)
            for file in self._found
            if file.hashing and not file.hashing.done
        ]

    def late_bytes(self) -> int:
        """How many bytes those have."""
        return sum(late.file.size for late in self.late())

    def _work(self) -> None:
        try:
            self._result.set_result(self._hashed())
        except OSError as error:
            self._result.set_exception(unreadable(error))
        except BaseException as error:  # noqa: BLE001 - raised where the files are asked for
            self._result.set_exception(error)

    def _hashed(self) -> tuple[FileRef, ...]:
        found, room = {}, HELD_BYTES
        for file in self._found:
            sha256, data = self._hash(file)
            held = data if data is not None and len(data) <= room else None
            room -= len(held or b"")
            found[file.name] = _ref(file, sha256, held)
        self._cache.save()
        for tree in self._trees:
            tree.save()
        return tuple(found.values())

    def _check_names(self) -> None:
        """One name, one content. Raises InputError."""
        first: dict[str, _Found] = {}
        for file in self._found:
            other = first.setdefault(file.name, file)
            if other is not file and self._hash(file)[0] != self._hash(other)[0]:
                raise InputError(
                    f"two different files have the name {file.name}: {other.path} and {file.path}",
                    hint="rename one of the files, or push the folders of the files instead",
                )
        self._found = list(first.values())

    def _hash(self, file: _Found) -> tuple[str, bytes | None]:
        if file.hashing is not None:
            return file.hashing.result(), None
        if file.tree is not None:
            return file.tree.sha256(file.inside, file.where, file.stat)
        return self._cache.sha256(file.path), None

    def _files(self, source: Path, *, alone: bool) -> Iterator[_Found]:
        if not source.exists():
            raise InputError(
                f"the file or folder {source} does not exist",
                hint=f"correct the path; ls {source.parent}",
            )
        if source.is_file():
            _check(str(source))
            yield _Found(source.name, str(source), source.stat())
            return
        if not source.is_dir():
            raise _odd(source)
        tree = TreeHashes(source, self._cache)
        self._trees.append(tree)
        prefix = "" if alone else f"{source.resolve().name}/"
        for name, where, file in _walk(source, str(source), ""):
            if not tree.knows(name, file):
                _check(where)
            yield _Found(prefix + name, where, file, name, tree)


def _walk(top: Path, folder: str, prefix: str) -> Iterator[tuple[str, str, os.stat_result]]:
    """Name, path and state of every file, by name; 2,000 in 10 ms, where pathlib takes 60."""
    with os.scandir(folder) as entries:
        inside = sorted(entries, key=lambda file: file.name)
    for entry in inside:
        name = prefix + entry.name
        if entry.is_symlink():
            yield name, entry.path, _led_to(top, Path(entry.path))
        elif entry.is_dir():
            yield from _walk(top, entry.path, f"{name}/")
        elif entry.is_file():
            yield name, entry.path, entry.stat()
        else:
            raise _odd(Path(entry.path))


def _led_to(top: Path, link: Path) -> os.stat_result:
    """The state of the file that a link of the folder `top` leads to."""
    try:
        stays = link.resolve().is_relative_to(top.resolve())
    except RuntimeError:  # it leads to itself
        raise _odd(link) from None
    if not stays:
        raise InputError(
            f"the symbolic link {link} points outside of {top}",
            hint="replace the link with a copy of its target, or remove the link",
        )
    if link.is_dir():
        raise InputError(
            f"{link} is a symbolic link to a folder",
            hint="replace the link with a copy of the folder, or remove the link",
        )
    if not link.is_file():
        raise _odd(link)
    return link.stat()


def _odd(path: Path) -> InputError:
    return InputError(
        f"{path} is neither a file nor a folder (a broken link, a pipe or a device node), so "
        "fleet cannot send it",
        hint="remove this entry from the folder that you send",
    )


def _ref(file: _Found, sha256: str, held: bytes | None = None) -> FileRef:
    executable = bool(file.stat.st_mode & 0o111)
    return FileRef(file.path, file.name, file.stat.st_size, sha256, executable, held)


def _late(file: _Found, hashing: Hashing) -> Late:
    key = late_key(file.path, file.stat)
    return Late(_ref(file, key), key, hashing)


def late_key(path: Path, stat: os.stat_result) -> str:
    """A name for this state of a file, under which a device keeps what came before its hash."""
    state = f"{path.absolute()}|{state_of(stat)}"
    return "late-" + hashlib.sha256(os.fsencode(state)).hexdigest()[:32]


def key_of(item: FileRef) -> str:
    """The same of a file whose hash is known; "" where it is small, or gone."""
    if item.size < LATE_BYTES:
        return ""
    try:
        return late_key(item.source, item.source.stat())
    except OSError:
        return ""


def _check(path: str) -> None:
    if not os.access(path, os.R_OK):
        raise PermissionError(13, "Permission denied", path)


def unreadable(error: OSError, path: Path | str = "a source") -> InputError:
    """The error for a file that cannot be read; `path` where the system does not name it."""
    return InputError(
        f"cannot read the file {error.filename or path} to send it: {reason(error)}",
        hint=f"check the permissions: ls -l {error.filename or path}",
    )
