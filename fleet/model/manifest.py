"""What a release is: its files by content, its environment, where they come from; and what reads
its manifest.json.
"""

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
KEEP = 2  # releases of a push, on a device
RELEASE = "{release}"  # stands for the release's absolute folder in environment values
BASE = "{base}"  # and this for the base folder, three levels above
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")  # as of playbooks


def is_name(text: str) -> bool:
    """Return whether a release can have this name."""
    return _NAME.fullmatch(text) is not None


def check_name(name: str) -> None:
    """Raise InputError for what no release can be called."""
    if not is_name(name):
        raise InputError(
            f"'{name}' is not a valid release name",
            hint="give a name of letters, digits and . _ - : --name NAME",
        )


class Manifest(Struct, frozen=True, dict=True):
    """One release of one name. The id is the hash of everything that makes it what it is.

    `env` values may hold `{release}` and `{base}`. `origin` says where the parts come from
    (runtime id and build, bundle, runner); it is part of the id. `stored_id` is given for a
    manifest that was read back from a device; its files have no host path any more.
    """

    name: str
    files: tuple[FileRef, ...]
    env: Mapping[str, str] = field(default_factory=dict)
    unset: tuple[str, ...] = ()
    origin: Mapping[str, Any] = field(default_factory=dict)
    stored_id: str = ""
    SCHEMA: ClassVar[int] = SCHEMA
    # As it stands on the device: no host paths.
    PLAIN: ClassVar[str] = "schema=SCHEMA name env unset origin files=in_order"

    @property
    def in_order(self) -> list[FileRef]:
        """The files by name."""
        return sorted(self.files, key=lambda item: item.name)

    @cached_property
    def id(self) -> str:
        """16 hex digits: the same content gives the same id on every host."""
        if self.stored_id:
            return self.stored_id
        text = json.dumps(to_plain(self), sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(text.encode()).hexdigest()[:16]

    @cached_property
    def blobs(self) -> dict[str, FileRef]:
        """sha256 → one file with that content; executable when any of them is."""
        found: dict[str, FileRef] = {}
        for item in self.files:
            if item.sha256 not in found or item.executable:
                found[item.sha256] = item
        return found

    def environment(self, release: str) -> dict[str, str]:
        """The environment for a release that stands in the folder `release`."""
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
    """What the manifest.json of a release on a device says. ValueError where it is damaged, or
    is another's.

    `whole`: with its files, and only where its hash is the id of the release.
    """
    try:
        stored = read_plain(_Stored, json.loads(text), "manifest.json", "")
        files = tuple(FileRef(Path(), *structs.astuple(item)) for item in stored.files if whole)
    except (RecursionError, InputError) as error:
        raise ValueError(str(error)) from error
    found = Manifest(stored.name, files, stored.env, stored.unset, stored.origin)
    if found.name != name or (whole and found.id != release_id):
        raise ValueError("manifest.json belongs to another release")
    return found if whole else structs.replace(found, stored_id=release_id)
