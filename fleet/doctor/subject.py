"""What is to run on the device: a release of fleet or a folder that somebody filled by hand."""

from __future__ import annotations

from dataclasses import dataclass, field

from fleet.doctor.seen import Context, Elf, Folder, Release, Seen
from fleet.runtimes.targets import TargetFacts, target_facts

BACKEND = "libQnnHtp.so"
_MACHINES = {"aarch64": "aarch64", "arm64": "aarch64", "x86_64": "x86_64", "amd64": "x86_64"}


@dataclass(frozen=True)
class Subject:
    """One set-up. `lib` and `dsp` are the folders that its search paths name ("" is none).

    `missing`, `damaged` and `strange` are names of files: not there, not as the release says,
    and in the place of a file of the release. `target` is known for releases only.
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
        """Libraries by the end of their name: `Stub.so`, `Skel.so`."""
        return tuple(library for library in self.libraries if library.name.endswith(ending))

    @property
    def machine(self) -> str:
        """Of the backend library: aarch64, x86_64, or "" when that is not known."""
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
        """True for the x86_64 build: no FastRPC, no stub, no skel."""
        return self.machine == "x86_64"


def subjects(seen: Seen) -> tuple[Subject, ...]:
    """Releases first, then folders that are there and hold a QAIRT runtime or a bundle."""
    releases = [_of_release(release, seen) for release in seen.releases]
    folders = [_of_folder(folder) for folder in seen.folders if folder.there]
    return (*releases, *folders)


def device_machine(seen: Seen) -> str:
    """aarch64 or x86_64 as fleet calls it; a lab board stands for the board that it claims."""
    return _MACHINES.get((seen.facts.machine or "").lower(), seen.facts.machine or "")


def _of_release(release: Release, seen: Seen) -> Subject:
    origin = release.manifest.origin if release.manifest is not None else {}
    build = str(origin.get("build_id", ""))
    build = build if build.startswith("v") or not build else f"v{build}"
    missing, damaged, strange = _faults(release, seen)
    libraries = [
        seen.elves.get(path) or Elf(path, size, "", "", build if "libQnn" in name else "")
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


def _faults(release: Release, seen: Seen) -> tuple[list[str], list[str], list[str]]:
    """Names of files that are missing, damaged, or another file in their place."""
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
        elif release.sizes[name] != size or seen.hashes.get(sha256, sha256) != sha256:
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
