"""The doctor's sample of a device: the lines of probe.sh as typed values.

No value raises an error.
"""

from __future__ import annotations

import json
import struct
from dataclasses import dataclass, field

from fleet.facts.parse import framed_values, parse
from fleet.model.errors import RuntimeStoreError
from fleet.model.facts import Facts
from fleet.model.inventory import Host
from fleet.model.manifest import Manifest, read_manifest
from fleet.runtimes.scan import identify

_BLOCKS = {
    "manifest",
    "listed",
    "links",
    "targets",
    "sizes",
    "history",
    "before_blobs",
}


@dataclass(frozen=True)
class Elf:
    """A library or program on the device.

    `machine` is aarch64, x86_64, hexagon or other. It is "" for a file that is not ELF, or is
    shorter than its header states. `arch` is like v73 for code of the DSP, and `build` like
    v2.51.0.260929181845; "" if the file has none.
    """

    path: str
    size: int
    machine: str
    arch: str
    build: str

    @property
    def name(self) -> str:
        """The file's name."""
        return self.path.rpartition("/")[2]


@dataclass(frozen=True)
class Context:
    """A context binary on the device, with the values of its plain-text marks ("" is unknown)."""

    path: str
    size: int
    build: str = ""
    soc: str = ""
    arch: str = ""


@dataclass
class Release:
    """A release: its manifest, and the contents of its folder.

    `staged` releases are ready, but were never live. `links` is name → target, and `sizes` is name
    → bytes of the target. If `listed` is False, the device does not have the tools to list files,
    and nothing is known about them. `before_blobs` are the SHA-256 of the files of the previous
    release.
    """

    name: str
    id: str
    root: str
    installed: bool
    manifest: Manifest | None = None
    files: dict[str, tuple[str, int]] = field(default_factory=dict)
    links: dict[str, str] = field(default_factory=dict)
    sizes: dict[str, int] = field(default_factory=dict)
    history: tuple[str, ...] = ()
    listed: bool = False
    staged: bool = False
    before_blobs: frozenset[str] = frozenset()

    @property
    def before(self) -> str:
        """The id of the release that a rollback would make current, "" for none."""
        return next((past for past in reversed(self.history) if past != self.id), "")


@dataclass
class Folder:
    """A set-up that somebody made by hand; `files` are the paths of its non-empty files."""

    root: str
    there: bool
    elves: list[Elf] = field(default_factory=list)
    contexts: list[Context] = field(default_factory=list)
    configs: dict[str, str | None] = field(default_factory=dict)
    files: set[str] = field(default_factory=set)


@dataclass(frozen=True)
class Seen:
    """The values of one probe. `lines` has the remaining keys of the probe, unchanged."""

    host: Host
    facts: Facts
    lines: dict[str, list[str]]
    releases: tuple[Release, ...]
    folders: tuple[Folder, ...]
    elves: dict[str, Elf]
    hashes: dict[str, str]

    def pairs(self, key: str) -> list[list[str]]:
        """Return the values of a key, split at tabs."""
        return [value.split("\t") for value in self.lines.get(key, ())]

    def block(self, key: str) -> list[str]:
        """Return the first value of a key as lines, without empty lines."""
        text = self.lines.get(key, [""])[0]
        return [line for line in text.split("\n") if line.strip()]


def seen(text: str, host: Host, complaint: str = "") -> Seen:
    """Parse the answer of the probe. Raises DeviceError if it was cut off."""
    values = framed_values(text, host.name, complaint)
    elves = {elf.path: elf for elf in map(_elf, values.get("elf", ())) if elf}
    releases = _releases(text)
    return Seen(
        host=host,
        facts=parse(text, host, complaint=complaint),
        lines=values,
        releases=releases,
        folders=_folders(text, elves),
        elves=elves,
        hashes=dict(_two(value) for value in values.get("hash", ())),
    )


def _two(value: str) -> tuple[str, str]:
    name, _, rest = value.partition("\t")
    return name, rest


def _elf(value: str) -> Elf | None:
    path, size, head, build = [*value.split("\t"), "", "", ""][:4]
    if not path.startswith("/"):
        return None
    machine, arch = "", ""
    try:
        raw = bytes.fromhex(head)
        if raw[:4] == b"\x7fELF" and _end(raw) <= _number(size):
            machine, hexagon = identify(raw, path)
            arch = hexagon or ""
    except (ValueError, struct.error, IndexError, RuntimeStoreError):
        machine = ""
    return Elf(path, _number(size), machine, arch, build.strip())


def _end(head: bytes) -> int:
    """Return the end of the section table, which is the end of an ELF file."""
    if head[4] == 2:
        start, size, count = struct.unpack_from("<Q10xHH", head, 40)
    else:
        start, size, count = struct.unpack_from("<I10xHH", head, 32)
    return int(start + size * count)


def _number(text: str) -> int:
    digits = text.strip()
    return int(digits) if digits.isascii() and digits.isdigit() and len(digits) < 19 else 0


def _releases(text: str) -> tuple[Release, ...]:
    """Parse the releases.

    Each block of lines follows the line of its release, so the order matters.
    """
    releases: list[Release] = []
    for line in text.split("\n"):
        key, _, raw = line.partition("\t")
        value = raw.replace("\x1f", "\n")
        if key == "release":
            name, key_id, root, installed = [*value.split("\t"), "", "", ""][:4]
            staged = installed == "staged"
            releases.append(Release(name, key_id, root, installed == "yes", staged=staged))
        elif releases and key in _BLOCKS:
            _fill(releases[-1], key, value)
    return tuple(releases)


def _fill(release: Release, key: str, value: str) -> None:
    rows = [row for row in value.split("\n") if row]
    names = [row.removeprefix("./") for row in rows]
    if key == "manifest":
        _read_manifest(release, value)
    elif key == "links":
        release.links = dict.fromkeys(names, "")
    elif key == "targets" and len(rows) == len(release.links):
        release.links = dict(zip(release.links, rows, strict=True))
    elif key == "sizes":
        for row in rows:
            size, _, name = row.partition(" ")
            release.sizes[name.removeprefix("./")] = _number(size)
    elif key == "history":
        release.history = tuple(rows)
    elif key == "listed":
        release.listed = True
    elif key == "before_blobs":
        release.before_blobs = frozenset(row.rpartition("/")[2] for row in rows)


def _read_manifest(release: Release, text: str) -> None:
    try:
        release.manifest = read_manifest(text, release.name, release.id)
        release.files = {
            file["name"]: (file["sha256"], int(file["size"])) for file in json.loads(text)["files"]
        }
    except (ValueError, KeyError, TypeError):
        release.manifest = None


def _folders(text: str, elves: dict[str, Elf]) -> tuple[Folder, ...]:
    folders: list[Folder] = []
    for line in text.split("\n"):
        key, _, raw = line.partition("\t")
        value = raw.replace("\x1f", "\n")
        if key == "folder":
            root, state = _two(value)
            folders.append(Folder(root, state == "there"))
        elif folders and key == "context":
            folders[-1].contexts.append(_context(value))
        elif folders and key == "json":
            path, _, content = value.partition("\t")
            folders[-1].configs[path] = content or None
        elif folders and key == "files":
            folders[-1].files = {row for row in value.split("\n") if row}
    for folder in folders:
        below = folder.root.rstrip("/") + "/"
        folder.elves = [elf for path, elf in elves.items() if path.startswith(below)]
    return tuple(folders)


def _context(value: str) -> Context:
    path, size, marks = [*value.split("\t"), "", ""][:3]
    build = next((mark for mark in marks.split("\n") if mark.startswith("v2.")), "")
    soc, arch = "", ""
    for mark in marks.split("\n"):
        if mark.startswith("soc_type="):
            soc, _, arch = mark.removeprefix("soc_type=").partition(";arch=")
    return Context(path, _number(size), build, soc, f"v{arch}" if arch else "")
