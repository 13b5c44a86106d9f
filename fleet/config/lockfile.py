"""Reading and writing of fleet.lock."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated, Literal

from msgspec import Meta, convert, field

from fleet.config.playbook import load_playbook
from fleet.config.problems import Problems
from fleet.config.shape import read_body
from fleet.config.values import Pattern
from fleet.config.yamlpos import read
from fleet.model.errors import LockFileError, Position
from fleet.model.files import file_errors, sha256_file
from fleet.model.lockfile import CURE, NAME, Lock, LockedFile, LockedRelease

MAX_BYTES = 1 << 44  # 16 TiB: no file of a release is larger

_Sha = Annotated[str, Pattern(r"[0-9a-f]{64}", "sha256", "write 64 hex digits, in lower case")]
_Id = Annotated[str, Pattern(r"[0-9a-f]{16}", "release id", "write 16 hex digits, in lower case")]
_Word = Annotated[str, Pattern(r"[A-Za-z0-9._-]*", "word", "letters, digits, . _ -")]


class _File(LockedFile, frozen=True, kw_only=True):
    sha256: _Sha
    size: Annotated[int, Meta(ge=0, le=MAX_BYTES)]
    arch: _Word = ""


class _Release(LockedRelease, frozen=True, kw_only=True):
    target: _Word
    arch: _Word
    id: _Id
    build_id: _Word
    env: dict[str, str]
    count: Annotated[int, Meta(ge=0)]
    files: tuple[_File, ...]

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.count != len(self.files):
            raise LockFileError(
                f"`count` is {self.count}, but the list has {len(self.files)} files", hint=CURE
            )


class _Lock(Lock, frozen=True, kw_only=True):
    schema_: Literal[1] = field(name="schema")
    name: _Word
    playbook: _Sha
    releases: tuple[_Release, ...]


def lock_path(playbook: Path, given: Path | None) -> Path:
    """Return the path of the lock file: the given path, else `fleet.lock` next to the playbook."""
    return given or playbook.absolute().parent / NAME


def playbook_hash(playbook: Path) -> str:
    """Return the SHA-256 of the playbook file. Raises InputError if the file cannot be read."""
    with file_errors(playbook):
        return sha256_file(playbook)


def load_lock(path: Path) -> Lock:
    """Return the lock in a file. Raises LockFileError with file, line, cause and cure."""
    if not path.is_file():
        raise LockFileError(f"there is no lock file {path}", hint="fleet config lock (writes it)")
    for number, line in enumerate(_text(path).splitlines(), 1):
        if line.startswith("<<<<<<<"):
            raise LockFileError(
                "the lock file contains a merge conflict",
                position=Position(path, number, 1),
                hint="remove the lines of one side, then write the file again: fleet config lock",
            )
    problems = Problems(LockFileError)
    lock = read_body(_Lock, read(path, LockFileError, problems), problems)
    problems.raise_first()
    return convert(lock, Lock, from_attributes=True)


def lock_of(playbook: Path, path: Path, *, frozen: bool = False) -> Lock:
    """Return the lock in `path` for a playbook file, for `DeployOptions.lock`.

    Raises LockFileError if it is missing, damaged, of another playbook, or, unless it is `frozen`,
    older than the playbook.
    """
    lock = load_lock(path).of(load_playbook(playbook).name)
    if not frozen and lock.playbook != playbook_hash(playbook):
        raise LockFileError(
            f"the playbook {playbook} changed after fleet.lock was written",
            hint=f"fleet config lock {playbook} (writes a new one), or deploy with "
            "--frozen (uses the builds and files in fleet.lock; downloads nothing)",
        )
    return lock


def _text(path: Path) -> str:
    with file_errors(path, kind=LockFileError):
        return path.read_text("utf-8", "replace")


def save_lock(path: Path, lock: Lock) -> bool:
    """Write the lock file atomically. Return False if the file already has this content."""
    text = lock.text()
    if path.is_file() and _text(path) == text:
        return False
    part = path.with_name(f".{path.name}.{os.getpid()}.part")
    with file_errors(path, "write"):
        with part.open("w", encoding="utf-8") as stream:
            stream.write(text)
            stream.flush()
            os.fsync(stream.fileno())
        part.replace(path)
    return True
