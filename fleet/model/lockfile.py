"""fleet.lock: the exact content of a deploy, with one release for each kind of device."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path, PurePosixPath
from typing import ClassVar

from msgspec import Struct, structs

from fleet.model.errors import InputError, LockFileError
from fleet.model.files import FileRef, check_name
from fleet.model.manifest import Manifest
from fleet.model.plain import to_plain

SCHEMA = 1
NAME = "fleet.lock"
HEADER = "# Written by fleet; commit it. `fleet config lock --check` compares, docs/lock-file.md."
_SHOWN = 5
CURE = "fleet config lock (writes the lock file again; review what changed before you commit it)"


class LockedFile(Struct, frozen=True):
    """A file of a release. `size` in bytes; `arch` is aarch64, hexagon-v73, ... or "".

    Raises LockFileError for a name that no file of a release can have, or that a terminal would
    take for commands: a lock comes with a repository, from anybody. A flat layout has no folders.
    """

    name: str
    sha256: str
    size: int
    executable: bool = False
    arch: str = ""
    PLAIN: ClassVar[str] = "name sha256 size executable? arch?"

    def __post_init__(self) -> None:
        try:
            check_name(self.name)
        except InputError as error:
            raise LockFileError(error.message, hint=CURE) from error
        if str(PurePosixPath(self.name)) != self.name or not self.name.isprintable():
            raise LockFileError(
                f"the lock file contains the file name {self.name!r}; a name must have the form "
                "NAME or FOLDER/NAME and only printable characters",
                hint=CURE,
            )


class LockedRelease(Struct, frozen=True):
    """The release for devices of one target and Hexagon arch. `id` is that of the manifest.

    Raises LockFileError if a name occurs twice, because it is undefined which of the two counts.
    """

    target: str
    arch: str
    id: str
    build_id: str
    env: Mapping[str, str]
    files: tuple[LockedFile, ...]
    PLAIN: ClassVar[str] = "target arch id build_id env=sorted_env count files=sorted_files"

    def __post_init__(self) -> None:
        _once([file.name for file in self.files])

    @property
    def sorted_env(self) -> dict[str, str]:
        """The environment sorted by name, so that the same lock gives the same bytes."""
        return dict(sorted(self.env.items()))

    @property
    def sorted_files(self) -> tuple[LockedFile, ...]:
        """The files sorted by name, for the same reason."""
        return tuple(sorted(self.files, key=lambda file: file.name))

    @property
    def count(self) -> int:
        """The number of files, with which a truncated list is noticed."""
        return len(self.files)

    @property
    def kind(self) -> str:
        """The kind for messages, `aarch64-oe-linux-gcc11.2 v73`."""
        return f"{self.target} {self.arch}".strip()

    def only(self, files: Iterable[FileRef]) -> tuple[FileRef, ...]:
        """Return the files whose names are locked. Files added to the bundle later are left out."""
        names = {file.name for file in self.files}
        return tuple(file for file in files if file.name in names)

    def manifest(self, name: str) -> Manifest:
        """Return a manifest for checking a device. Its files have no host path."""
        files = tuple(
            FileRef(Path("/"), file.name, file.size, file.sha256, file.executable)
            for file in self.files
        )
        return Manifest(name, files, env=self.env, stored_id=self.id)


class Lock(Struct, frozen=True):
    """The content of the lock file. `playbook` is the sha256 of the playbook file."""

    name: str
    playbook: str
    releases: tuple[LockedRelease, ...]
    PLAIN: ClassVar[str] = "schema name playbook releases=sorted_releases"

    def __post_init__(self) -> None:
        _once([release.kind for release in self.releases])

    @property
    def schema(self) -> int:
        """The version of the format."""
        return SCHEMA

    @property
    def sorted_releases(self) -> list[LockedRelease]:
        """The releases sorted by kind, so that the same lock gives the same bytes."""
        return sorted(self.releases, key=lambda release: (release.target, release.arch))

    def release(self, target: str, arch: str | None) -> LockedRelease | None:
        """Return the release for a kind of device, None if the lock has none."""
        for release in self.releases:
            if (release.target, release.arch) == (target, arch or ""):
                return release
        return None

    def required(self, target: str, arch: str | None) -> LockedRelease:
        """Return the release for a kind of device. Raises LockFileError if the lock has none."""
        release = self.release(target, arch)
        if release is None:
            kind = f"{target} with {f'Hexagon {arch}' if arch else 'an unknown Hexagon arch'}"
            raise LockFileError(f"the lock file has no release for devices of {kind}", hint=CURE)
        return release

    def of(self, name: str) -> Lock:
        """Return this lock. Raises LockFileError if it belongs to another release name."""
        if self.name != name:
            raise LockFileError(
                f"the lock file belongs to {self.name}, but the playbook is {name}",
                hint=f"use a separate lock file for each playbook: --lock-file {name}.lock",
            )
        return self

    def beside(self, old: Lock | None) -> Lock:
        """Return this lock with the releases that `old` has for other kinds of device."""
        asked = {release.kind for release in self.releases}
        others = old.releases if old else ()
        kept = tuple(release for release in others if release.kind not in asked)
        return structs.replace(self, releases=(*self.releases, *kept))

    def text(self) -> str:
        """Return the text of the file: the same lock gives the same bytes, one line for each file.

        JSON values are valid YAML.
        """
        head = to_plain(self)
        releases = head.pop("releases")
        lines = [HEADER, *_lines(head), "releases:"]
        for release in releases:
            files = release.pop("files")
            first, *others = _lines(release)
            lines += [f"- {first}", *(f"  {line}" for line in [*others, "files:"])]
            lines += [f"  - {json.dumps(file, ensure_ascii=False)}" for file in files]
        return "\n".join(lines) + "\n"


def _lines(values: Mapping[str, object]) -> list[str]:
    return [f"{key}: {json.dumps(value)}" for key, value in values.items()]


def _once(names: list[str]) -> None:
    known: set[str] = set()
    for name in names:
        if name in known:
            raise LockFileError(f"the lock file has two entries for {name}", hint=CURE)
        known.add(name)


def locked(
    manifest: Manifest, target: str, arch: str | None, kinds: Mapping[Path, str]
) -> LockedRelease:
    """Return a manifest as a locked release. `kinds` maps host paths to the arch of a file."""
    files = tuple(
        LockedFile(file.name, file.sha256, file.size, file.executable, kinds.get(file.source, ""))
        for file in sorted(manifest.files, key=lambda each: each.name)
    )
    build = str(manifest.origin.get("build_id", ""))
    return LockedRelease(target, arch or "", manifest.id, build, dict(manifest.env), files)


def differences(wanted: LockedRelease, have: LockedRelease) -> list[str]:
    """Return one sentence per difference from the lock, the most informative first."""
    lines = []
    if wanted.build_id != have.build_id:
        lines.append(f"QAIRT is {have.build_id}, but the lock file has {wanted.build_id}")
    old = {file.name: file for file in wanted.files}
    new = {file.name: file for file in have.files}
    lines += [f"{name} is not in the lock file" for name in new if name not in old]
    lines += [
        f"{name} is in the lock file, but the release no longer contains it"
        for name in old
        if name not in new
    ]
    for name, file in new.items():
        was = old.get(name)
        if was is not None and _content(was) != _content(file):
            lines.append(
                f"{name} is {_shown(file, was)}, but the lock file has {_shown(was, file)}"
            )
    if not lines and wanted.id != have.id:
        lines.append(
            "the environment, the health probe or the origin changed: the release is "
            f"{have.id}, but the lock file has {wanted.id}"
        )
    return lines


def _content(file: LockedFile) -> tuple[str, int, bool]:
    """Return the content that a device gets. The arch follows from it."""
    return file.sha256, file.size, file.executable


def _shown(file: LockedFile, other: LockedFile) -> str:
    """Return `3f8bd88c8433 (10 bytes)`, with the mode if it differs."""
    mode = " executable" if file.executable and not other.executable else ""
    return f"{file.sha256[:12]} ({file.size} bytes{mode})"


def stale(old: Lock, new: Lock, *, limited: bool) -> list[str]:
    """Return one line per difference between a lock and a newly computed one.

    With `limited` only some devices were asked, so kinds that are missing in `new` are no
    difference.
    """
    changes = [] if old.playbook == new.playbook else ["the playbook changed"]
    for now in new.releases:
        was = old.release(now.target, now.arch)
        lines = ["is not in the lock file"] if was is None else differences(was, now)
        changes += [f"{now.kind}: {line}" for line in lines]
    if not limited:
        asked = {release.kind for release in new.releases}
        gone = [release.kind for release in old.releases if release.kind not in asked]
        changes += [f"{kind}: is in the lock file, but no device is of this kind" for kind in gone]
    return changes


def shortened(lines: list[str]) -> str:
    """Return the first few lines and the number of the others."""
    more = len(lines) - _SHOWN
    return "; ".join(lines[:_SHOWN]) + (f"; and {more} more" if more > 0 else "")
