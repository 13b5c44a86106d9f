"""fleet.lock: what is to be deployed, exactly. One release for each kind of device."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fleet.model.files import FileRef
from fleet.model.manifest import Manifest

SCHEMA = 1
NAME = "fleet.lock"
_SHOWN = 5


@dataclass(frozen=True)
class LockedFile:
    """A file of a release. `size` in bytes; `arch` is aarch64, hexagon-v73, ... or ""."""

    name: str
    sha256: str
    size: int
    executable: bool = False
    arch: str = ""


@dataclass(frozen=True)
class LockedRelease:
    """What devices of one target and Hexagon arch get. `id` is that of the manifest."""

    target: str
    arch: str
    id: str
    build_id: str
    env: Mapping[str, str]
    files: tuple[LockedFile, ...]

    def manifest(self, name: str) -> Manifest:
        """As a manifest for looking at a device; its files have no host path."""
        files = tuple(
            FileRef(Path("/"), one.name, one.size, one.sha256, one.executable) for one in self.files
        )
        return Manifest(name, files, env=self.env, stored_id=self.id)


@dataclass(frozen=True)
class Lock:
    """The file as a value. `playbook` is the sha256 of the playbook file."""

    name: str
    playbook: str
    releases: tuple[LockedRelease, ...]

    def release(self, target: str, arch: str | None) -> LockedRelease | None:
        """The release of a kind of device; None when the lock has none."""
        for one in self.releases:
            if (one.target, one.arch) == (target, arch or ""):
                return one
        return None

    def text(self) -> str:
        """The file: the same lock gives the same bytes, one line a file."""
        lines = [
            "# Written by fleet; commit it. `fleet lock-file --check` compares, docs/lock-file.md.",
            f"schema: {SCHEMA}",
            f"name: {_quoted(self.name)}",
            f"playbook: {_quoted(self.playbook)}",
            "releases:",
        ]
        for one in sorted(self.releases, key=lambda each: (each.target, each.arch)):
            lines += [
                f"- target: {_quoted(one.target)}",
                f"  arch: {_quoted(one.arch)}",
                f"  id: {_quoted(one.id)}",
                f"  build_id: {_quoted(one.build_id)}",
                f"  env: {json.dumps(dict(one.env), sort_keys=True)}",
                f"  count: {len(one.files)}",
                "  files:",
            ]
            lines += [_line(each) for each in sorted(one.files, key=lambda f: f.name)]
        return "\n".join(lines) + "\n"


def _quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)


def _line(one: LockedFile) -> str:
    values: dict[str, Any] = {"name": one.name, "sha256": one.sha256, "size": one.size}
    if one.executable:
        values["executable"] = True
    if one.arch:
        values["arch"] = one.arch
    return f"  - {json.dumps(values, ensure_ascii=False)}"


def locked(
    manifest: Manifest, target: str, arch: str | None, kinds: Mapping[Path, str]
) -> LockedRelease:
    """A manifest as it is locked; `kinds` maps host paths to the arch of a file."""
    files = tuple(
        LockedFile(one.name, one.sha256, one.size, one.executable, kinds.get(one.source, ""))
        for one in manifest.files
    )
    build = str(manifest.origin.get("build_id", ""))
    return LockedRelease(target, arch or "", manifest.id, build, dict(manifest.env), files)


def differences(wanted: LockedRelease, have: LockedRelease) -> list[str]:
    """What is not as locked, the most telling first; [] when the releases are equal."""
    said = []
    if wanted.build_id != have.build_id:
        said.append(f"QAIRT {have.build_id}, locked {wanted.build_id}")
    old = {one.name: one for one in wanted.files}
    new = {one.name: one for one in have.files}
    said += [f"{name} is not in the lock" for name in new if name not in old]
    said += [f"{name} is locked and gone" for name in old if name not in new]
    for name, one in new.items():
        was = old.get(name)
        if was is not None and (was.sha256, was.executable) != (one.sha256, one.executable):
            said.append(f"{name}: {one.sha256[:12]} ({one.size} bytes), locked {was.sha256[:12]}")
    if not said and wanted.id != have.id:
        said.append(f"environment, health probe or origin differ: {have.id}, locked {wanted.id}")
    return said


def shortened(said: list[str]) -> str:
    """The first few, and how many more."""
    more = len(said) - _SHOWN
    return "; ".join(said[:_SHOWN]) + (f"; and {more} more" if more > 0 else "")
