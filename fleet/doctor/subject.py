"""The set-up to run on the device: a release of fleet, or a folder that somebody filled by hand."""

from __future__ import annotations

from dataclasses import dataclass, field

from fleet.doctor.seen import Context, Elf, Folder, Release, Seen
from fleet.runtimes.targets import TargetFacts, target_facts

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
