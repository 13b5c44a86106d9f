"""Common parts of every kind of bundle: files by name, SHA256SUMS, the required QAIRT version."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path

from fleet.bundles.jsonfile import read_text, read_version
from fleet.model.bundle import ContextBinary, MissingFile, WrongHash
from fleet.model.errors import BundleError
from fleet.model.files import FileRef
from fleet.model.runtime import same_build

SUMS = "SHA256SUMS"
_SUM_LINE = re.compile(r"^([0-9a-fA-F]{64}) [ *](.+)$")
VERSION_FILES = (("tool-versions.yaml", ("qairt",)), ("metadata.json", ("tool_versions", "qairt")))


@dataclass
class Found:
    """The files of a bundle folder by name, with the missing files and the warnings."""

    root: Path
    paths: dict[str, Path] = field(default_factory=dict)
    missing: list[MissingFile] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)


def check_sums(files: tuple[FileRef, ...], found: Found) -> tuple[tuple[WrongHash, ...], str]:
    """Return the files that differ from SHA256SUMS, and the name of this file.

    The name is "" if the bundle has no such file. Raises BundleError for a wrong line.
    """
    if SUMS not in found.paths:
        return (), ""
    expected = read_sums(found.paths[SUMS])
    wrong = tuple(
        WrongHash(item.name, expected[item.name], item.sha256)
        for item in files
        if item.name != SUMS  # `sha256sum * > SHA256SUMS` lists the empty file that it fills
        and expected.get(item.name, item.sha256) != item.sha256
    )
    return wrong, SUMS


def qairt_of(found: Found, contexts: tuple[ContextBinary, ...]) -> tuple[str | None, str]:
    """Return the QAIRT version that the bundle needs, and the name of the file with this version.

    Returns (None, "") if neither a version file nor a context binary tells it. If both do and
    differ, adds a warning and returns the build of the context binary.
    """
    first = next((item for item in contexts if item.build_id), None)
    for name, keys in VERSION_FILES:
        path = found.paths.get(name)
        version = clean_version(read_version(path, *keys)) if path else None
        if version is None:
            continue
        if first and first.build_id and not same_build(first.build_id, version):
            found.warnings.append(
                f"{name} says QAIRT {version}, but {first.name} was built with "
                f"{first.build_id}; fleet uses {first.build_id}"
            )
            break
        return version, name
    return (first.build_id, first.name) if first else (None, "")


def clean_version(text: str | None) -> str | None:
    """Return a version without its prefix and suffix: `v2.45.0.260326_1` → `2.45.0.260326`.

    Returns None for a text that is not a version.
    """
    core = (text or "").strip().removeprefix("v").split("_", 1)[0].split("-", 1)[0]
    parts = core.split(".")
    whole = 2 <= len(parts) <= 4 and all(part.isascii() and part.isdigit() for part in parts)
    return core if whole else None


def read_sums(path: Path) -> dict[str, str]:
    """Return the expected SHA-256 by name from a `sha256sum` file. Raises BundleError for a wrong
    line.
    """
    expected = {}
    for number, line in enumerate(read_text(path).splitlines(), 1):
        if not line.strip() or line.startswith("#"):
            continue
        match = _SUM_LINE.match(line)
        if match is None:
            raise BundleError(
                f"{path.name} line {number} does not have the form `<sha256>  <name>`",
                hint=f"cd '{path.parent}' && sha256sum *.bin *.json > {path.name}",
            )
        expected[match[2].strip().removeprefix("./")] = match[1].lower()
    return expected
