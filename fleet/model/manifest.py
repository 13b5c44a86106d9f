"""A release: its files by content, its environment and origin; and the reader of manifest.json."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar

from msgspec import Struct, field, structs

from fleet.model.errors import InputError
from fleet.model.files import FileRef
from fleet.model.plain import read_plain, to_plain

SCHEMA = 1
KEEP = 2  # releases of a push that a device keeps
RELEASE = "{release}"  # placeholder for the release's absolute folder in environment values
BASE = "{base}"  # placeholder for the base folder, three levels above
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")  # as for playbooks


def is_name(text: str) -> bool:
    """Return True if a release can have this name."""
    return _NAME.fullmatch(text) is not None


def check_name(name: str) -> None:
    """Raise InputError for a name that no release can have."""
    if not is_name(name):
        raise InputError(
            f"'{name}' is not a valid release name",
            hint="use at most 64 letters, digits, dots, hyphens and underscores, and begin with a "
            "letter or digit: --name NAME",
        )


class Manifest(Struct, frozen=True, dict=True):
    """A release with a name. Its id is the hash of everything that defines it.

    `env` values may contain `{release}` and `{base}`. `origin` describes the source of the parts
    (runtime id and build, bundle, runner) and is part of the id. `stored_id` is set for a manifest
    that was read from a device; its files have no host path.
    """

    name: str
    files: tuple[FileRef, ...]
    env: Mapping[str, str] = field(default_factory=dict)
    unset: tuple[str, ...] = ()
    origin: Mapping[str, Any] = field(default_factory=dict)
    stored_id: str = ""
    SCHEMA: ClassVar[int] = SCHEMA
    # The form on the device, without host paths.
    PLAIN: ClassVar[str] = "schema=SCHEMA name env unset origin files=in_order"

    @property
    def in_order(self) -> list[FileRef]:
        """The files sorted by name."""
        return sorted(self.files, key=lambda item: item.name)

    @cached_property
    def id(self) -> str:
        """The id in 16 hex digits. The same content gives the same id on every host."""
        if self.stored_id:
            return self.stored_id
        text = json.dumps(to_plain(self), sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(text.encode()).hexdigest()[:16]

    @cached_property
    def blobs(self) -> dict[str, FileRef]:
        """sha256 → a file with that content, executable if any such file is."""
        blobs: dict[str, FileRef] = {}
        for item in self.files:
            if item.sha256 not in blobs or item.executable:
                blobs[item.sha256] = item
        return blobs

    def environment(self, release: str) -> dict[str, str]:
        """Return the environment for a release in the folder `release`."""
        base = release.rsplit("/", 3)[0]
        return {
            name: value.replace(RELEASE, release).replace(BASE, base)
            for name, value in self.env.items()
        }


class _StoredFile(Struct, frozen=True):
    name: str
    size: int
    sha256: str
    executable: bool = False


class _Stored(Struct, frozen=True):
    name: str
    env: Mapping[str, str]
    unset: tuple[str, ...]
    origin: Mapping[str, Any]
    files: tuple[_StoredFile, ...] = ()


def read_manifest(text: str, name: str, release_id: str, *, whole: bool = False) -> Manifest:
    """Return the manifest of a release on a device, from its manifest.json.

    `whole` includes the files and checks that the hash is the id of the release. Raises ValueError
    for a damaged file or another release's file.
    """
    try:
        stored = read_plain(_Stored, json.loads(text), "manifest.json", "")
        files = tuple(FileRef(Path(), *structs.astuple(item)) for item in stored.files if whole)
    except (RecursionError, InputError) as error:
        raise ValueError(str(error)) from error
    manifest = Manifest(stored.name, files, stored.env, stored.unset, stored.origin)
    if manifest.name != name or (whole and manifest.id != release_id):
        raise ValueError("manifest.json belongs to another release")
    return manifest if whole else structs.replace(manifest, stored_id=release_id)
