"""Reading and writing fleet.lock."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated, Literal

from msgspec import Meta, field

from fleet.config.problems import Problems
from fleet.config.shape import Body, Doc, read_body
from fleet.config.values import Pattern
from fleet.config.yamlpos import read
from fleet.model.errors import InputError, LockFileError, Position
from fleet.model.files import check_name, sha256_file, told
from fleet.model.lockfile import NAME, Lock, LockedFile, LockedRelease

MAX_BYTES = 1 << 44  # 16 TiB: more is no file of a release

_Sha = Annotated[str, Pattern(r"[0-9a-f]{64}", "sha256", "write 64 hex digits, in lower case")]
_Id = Annotated[str, Pattern(r"[0-9a-f]{16}", "release id", "write 16 hex digits, in lower case")]
_Word = Annotated[str, Pattern(r"[A-Za-z0-9._-]*", "word", "letters, digits, . _ -")]


class FileLine(Body, frozen=True, kw_only=True):
    """One file of a release."""

    name: Annotated[str, Doc("Name in the release.")]
    sha256: Annotated[_Sha, Doc("SHA-256 of the content.")]
    size: Annotated[Annotated[int, Meta(ge=0, le=MAX_BYTES)], Doc("Bytes.")]
    executable: Annotated[bool, Doc("True for a program.")] = False
    arch: Annotated[_Word, Doc("CPU architecture of the file.")] = ""


class ReleaseBody(Body, frozen=True, kw_only=True):
    """What one kind of device gets."""

    target: Annotated[_Word, Doc("QAIRT target.")]
    arch: Annotated[_Word, Doc("Hexagon arch.")]
    id: Annotated[_Id, Doc("Release id.")]
    build_id: Annotated[_Word, Doc("Build id of the QAIRT runtime.")]
    env: Annotated[dict[str, str], Doc("Environment of the release.")]
    count: Annotated[int, Meta(ge=0), Doc("Number of files, to detect a truncated file.")]
    files: Annotated[list[FileLine], Doc("Files.")]


class LockBody(Body, frozen=True, kw_only=True):
    """fleet.lock."""

    schema_: Annotated[Literal[1], Doc("Version of this format.")] = field(name="schema")
    name: Annotated[_Word, Doc("Release name.")]
    playbook: Annotated[_Sha, Doc("sha256 of the playbook file.")]
    releases: Annotated[list[ReleaseBody], Doc("One for each kind of device.")]


def lock_path(playbook: Path, given: Path | None) -> Path:
    """Where the lock is: what was given, else `fleet.lock` beside the playbook."""
    return given or playbook.absolute().parent / NAME


def playbook_hash(playbook: Path) -> str:
    """sha256 of the playbook file. Raises InputError when it cannot be read."""
    with told(playbook):
        return sha256_file(playbook)


def load_lock(path: Path) -> Lock:
    """The lock in a file. Raises LockFileError with file, line, cause and cure."""
    if not path.is_file():
        raise LockFileError(f"there is no lock file {path}", hint="fleet config lock (writes it)")
    for number, line in enumerate(_text(path).splitlines(), 1):
        if line.startswith("<<<<<<<"):
            raise LockFileError(
                "the lock file contains a merge conflict",
                position=Position(path, number, 1),
                hint="remove the lines of one side, then write the file again: fleet config lock",
            )
    document = read(path, LockFileError)
    problems = Problems(LockFileError)
    body = read_body(LockBody, document, problems)
    for number, release in enumerate(body.releases):
        if release.count != len(release.files):
            at = document.value(("releases", number, "count"))
            said = f"`count` is {release.count}, but the list has {len(release.files)} files"
            problems.add(said, at, "fleet config lock (writes the file again)")
        for index, file in enumerate(release.files):
            try:
                check_name(file.name)
            except InputError as error:
                at = document.value(("releases", number, "files", index))
                problems.add(error.message, at, "fleet config lock (writes the file again)")
    problems.raise_first()
    return Lock(body.name, body.playbook, tuple(_release(release) for release in body.releases))


def _text(path: Path) -> str:
    with told(path, kind=LockFileError):
        return path.read_text("utf-8", "replace")


def _release(body: ReleaseBody) -> LockedRelease:
    files = tuple(
        LockedFile(file.name, file.sha256, file.size, file.executable, file.arch)
        for file in body.files
    )
    return LockedRelease(body.target, body.arch, body.id, body.build_id, body.env, files)


def save_lock(path: Path, lock: Lock) -> bool:
    """Write it, whole or not at all; False when the same text stands there already."""
    text = lock.text()
    if path.is_file() and _text(path) == text:
        return False
    part = path.with_name(f".{path.name}.{os.getpid()}.part")
    with told(path, "write"):
        with part.open("w", encoding="utf-8") as stream:
            stream.write(text)
            stream.flush()
            os.fsync(stream.fileno())
        part.replace(path)
    return True
