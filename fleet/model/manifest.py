"""What a release is: its files by content, its environment, where they come from; and what reads
its manifest.json.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from fleet.model.errors import InputError
from fleet.model.files import FileRef

SCHEMA = 1
KEEP = 2  # releases of a push, on a device
RELEASE = "{release}"  # stands for the release's absolute folder in environment values
BASE = "{base}"  # and this for the base folder, three levels above
_COLUMNS = ("name", "size", "sha256", "executable")  # of a file
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


@dataclass(frozen=True)
class Manifest:
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

    def as_dict(self) -> dict[str, Any]:
        """The manifest as it stands on the device: no host paths."""
        return {
            "schema": SCHEMA,
            "name": self.name,
            "env": dict(self.env),
            "unset": list(self.unset),
            "origin": dict(self.origin),
            "files": [
                {name: getattr(item, name) for name in _COLUMNS}
                for item in sorted(self.files, key=lambda item: item.name)
            ],
        }

    @cached_property
    def id(self) -> str:
        """16 hex digits: the same content gives the same id on every host."""
        if self.stored_id:
            return self.stored_id
        text = json.dumps(self.as_dict(), sort_keys=True, separators=(",", ":"))
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


def read_manifest(text: str, name: str, release_id: str, *, whole: bool = False) -> Manifest:
    """What the manifest.json of a release on a device says. ValueError where it is damaged, or
    is another's.

    `whole`: with its files, and only where its hash is the id of the release.
    """
    try:
        data = json.loads(text)
        files = tuple(FileRef(Path(), **item) for item in data["files"]) if whole else ()
        env = {str(key): str(value) for key, value in data["env"].items()}
        found = Manifest(data["name"], files, env, tuple(data["unset"]), data["origin"])
    except (KeyError, TypeError, AttributeError, RecursionError, InputError) as error:
        raise ValueError(str(error)) from error
    if found.name != name or (whole and found.id != release_id):
        raise ValueError("manifest.json belongs to another release")
    return found if whole else replace(found, stored_id=release_id)
