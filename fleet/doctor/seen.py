"""The doctor's sample of a device: the lines of probe.sh as typed values, and the set-ups in it.

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
from fleet.runtimes.targets import TargetFacts, target_facts

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


BACKEND = "libQnnHtp.so"
_MACHINES = {"aarch64": "aarch64", "arm64": "aarch64", "x86_64": "x86_64", "amd64": "x86_64"}


@dataclass(frozen=True)
class Subject:
    """A set-up. `lib` and `dsp` are the folders that its search paths name ("" is none).

    `missing`, `damaged` and `strange` are names of files. A damaged file differs from the release,
    and a strange file is in the place of a file of the release. `target` is known for releases
    only.
    """

    label: str
    root: str
    lib: str
    dsp: str
    libraries: tuple[Elf, ...] = ()
    contexts: tuple[Context, ...] = ()
    configs: dict[str, str | None] = field(default_factory=dict)
    files: frozenset[str] = frozenset()
    missing: tuple[str, ...] = ()
    damaged: tuple[str, ...] = ()
    strange: tuple[str, ...] = ()
    unsealed: bool = False
    target: TargetFacts | None = None
    build: str = ""
    release: Release | None = None

    def named(self, ending: str) -> tuple[Elf, ...]:
        """Return the libraries with this end of the name: `Stub.so`, `Skel.so`."""
        return tuple(library for library in self.libraries if library.name.endswith(ending))

    @property
    def machine(self) -> str:
        """The machine of the backend library: aarch64, x86_64, or "" if it is unknown."""
        if self.target is not None:
            return self.target.machine
        known = [
            library for library in self.libraries if library.machine not in {"", "hexagon", "other"}
        ]
        own = next((library.machine for library in known if library.name == BACKEND), "")
        others = [library.machine for library in known]
        return own or max(others, key=others.count, default="")

    @property
    def emulator(self) -> bool:
        """True for the x86_64 build, which has no FastRPC, no stub and no skel."""
        return self.machine == "x86_64"


def subjects(sample: Seen) -> tuple[Subject, ...]:
    """Return the releases first, then the existing folders with a QAIRT runtime or a bundle."""
    releases = [_of_release(release, sample) for release in sample.releases]
    folders = [_of_folder(folder) for folder in sample.folders if folder.there]
    return (*releases, *folders)


def device_machine(sample: Seen) -> str:
    """Return the machine in fleet's words, aarch64 or x86_64.

    A lab board counts as its real board.
    """
    return _MACHINES.get((sample.facts.machine or "").lower(), sample.facts.machine or "")


def _of_release(release: Release, sample: Seen) -> Subject:
    origin = release.manifest.origin if release.manifest is not None else {}
    build = str(origin.get("build_id", ""))
    build = build if build.startswith("v") or not build else f"v{build}"
    missing, damaged, strange = _faults(release, sample)
    libraries = [
        sample.elves.get(path) or Elf(path, size, "", "", build if "libQnn" in name else "")
        for name, (_, size) in release.files.items()
        if name.endswith(".so") and name not in missing
        for path in [f"{release.root}/{name}"]
    ]
    env = release.manifest.environment(release.root) if release.manifest is not None else {}
    return Subject(
        label=f"release {release.name}" + " (staged, never live)" * release.staged,
        root=release.root,
        lib=env.get("LD_LIBRARY_PATH", "").partition(":")[0],
        dsp=env.get("ADSP_LIBRARY_PATH", "").partition(";")[0],
        libraries=tuple(libraries),
        missing=tuple(missing),
        damaged=tuple(damaged),
        strange=tuple(strange),
        unsealed=not (release.installed or release.staged) or release.manifest is None,
        target=target_facts(str(origin["target"])) if origin.get("target") else None,
        build=build,
        release=release,
    )


def _faults(release: Release, sample: Seen) -> tuple[list[str], list[str], list[str]]:
    """Return the names of files that are missing, damaged, or replaced by another file."""
    missing: list[str] = []
    damaged: list[str] = []
    strange: list[str] = []
    if not release.listed:
        return missing, damaged, strange
    for name, (sha256, size) in release.files.items():
        target = release.links.get(name)
        if name not in release.sizes:
            missing.append(name)
        elif target is None or not target.endswith(f"/{sha256}"):
            strange.append(name)
        elif release.sizes[name] != size or sample.hashes.get(sha256, sha256) != sha256:
            damaged.append(name)
    return missing, damaged, strange


def _of_folder(folder: Folder) -> Subject:
    backend = next((elf for elf in folder.elves if elf.name == BACKEND), None)
    arm = [elf for elf in folder.elves if elf.name == BACKEND and elf.machine == "aarch64"]
    backend = arm[0] if arm else backend
    skel = next((elf for elf in folder.elves if elf.name.endswith("Skel.so")), None)
    return Subject(
        label=f"folder {folder.root}",
        root=folder.root,
        lib=backend.path.rpartition("/")[0] if backend else "",
        dsp=skel.path.rpartition("/")[0] if skel else "",
        libraries=tuple(folder.elves),
        contexts=tuple(folder.contexts),
        configs=folder.configs,
        files=frozenset(folder.files),
        build=backend.build if backend else "",
    )
