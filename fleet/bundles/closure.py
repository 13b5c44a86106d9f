"""The closure of a run: every library, model and data file that a start opens.

Each of these files is in the release or on the device. Otherwise fleet refuses the run by the name
of the file, before it sends any data.

These mistakes happened without this check:

- A `.dlc` was sent without the libQnnModelDlc.so of its own command line.
- 265 MB were sent to a Linux board whose configuration named QnnHtp.dll.
- 17 MB were sent for a program that needed GLIBC_2.43.
- 16 MB were sent for a program whose library is not on the device. It ended with status 127
  (`libgomp.so.1: cannot open shared object file`).
- 112 MB were sent for qnn-net-run of SDK 2.25 (`libpython3.10.so.1.0`).

The check reads the command line, the environment and the configuration of every start. It reads the
configurations of the bundle that these name, and the names in the bundle's own formats. It also
reads the required files of the runtime, the linked libraries of each ELF file, and the list of
files of each Python package. If a program opens a file by a name of its own, the check knows this
file only from the runtime's table.
"""

from __future__ import annotations

import csv
import json
import mmap
import posixpath
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from fleet.bundles.elfsymbols import Linked, NotReadableError, read_linked
from fleet.bundles.rule import install
from fleet.data import load
from fleet.model.bundle import Bundle
from fleet.model.facts import Facts
from fleet.model.files import FileRef
from fleet.model.finding import Finding
from fleet.model.runtime import version_key
from fleet.runtimes.packages import left_out

RULE, UNSENT, FOREIGN, GLIBC, ABSENT = (
    *("program-needs", "opened-not-sent", "foreign-library", "program-glibc"),
    "program-absent",
)
_SOURCE = "the command line, the configurations and the linked libraries of the run itself"
_IN_RELEASE = re.compile(r"\{release\}/([^\s:;,\"'|&<>]+)")
_ON_WINDOWS = re.compile(r"[\w.+-]+\.dll", re.IGNORECASE)
_ON_LINUX = re.compile(r"lib[\w.+-]+\.so(\.[0-9.]+)?")
_OF_RUNTIME = re.compile(r"lib(Qnn|Genie|Htp|SnpeHtp)\w*\.so|lib[\w+-]+-[0-9a-f]{6,16}\.so[0-9.]*")
_CONFIG_BYTES = 1 << 20
_PACKAGES = {  # of Debian 12 and Ubuntu 22.04; libc++1 installs the libunwind.so.1 that it needs
    "libatomic.so.1": "libatomic1",
    "libc++.so.1": "libc++1",
    "libc++abi.so.1": "libc++abi1",
    "libgcc_s.so.1": "libgcc-s1",
    "libgomp.so.1": "libgomp1",
    "libstdc++.so.6": "libstdc++6",
    "libunwind.so.1": "libc++1",
}


@dataclass(frozen=True)
class Launch:
    """A start of a program, as its command line describes it.

    `cwd` is relative to the release. `config` is the text of the configuration of this start.
    """

    argv: tuple[str, ...]
    env: Mapping[str, str]
    cwd: str = ""
    config: str = ""

    @property
    def words(self) -> Iterator[str]:
        """The words of the start, without scripts for `sh -c`, and the parts of a word of several
        values.
        """
        for word in (*self.argv, *self.env.values()):
            if "\n" not in word:
                yield word
                yield from re.split(r":=|[=,]", word)[1:]


@dataclass(frozen=True)
class SentFiles:
    """The files that go to a device.

    `bundle` is the folder of the bundle's files, or "" for the release folder. `required` are the
    files of the runtime that the runner requires. `windows` is True if the device runs Windows.
    """

    files: tuple[FileRef, ...]
    bundle: str = "bundle"
    required: tuple[str, ...] = ()
    windows: bool = False

    def placed(self, name: str) -> str:
        """Return the name in the release for a file of the bundle."""
        return posixpath.join(self.bundle, name)


@dataclass(frozen=True)
class OpenedFiles:
    """The files outside the release that the starts on one kind of device open.

    `findings` are refusals. `libraries` (with the names of their users) and `programs` may be on
    the device. `linked` has the program of the runtime and the user's programs and libraries, as
    returned by `linked_files`.
    """

    findings: tuple[Finding, ...]
    libraries: Mapping[str, tuple[str, ...]]
    programs: tuple[str, ...]
    linked: Mapping[Path, Linked]


def unsent(bundle: Bundle, release: SentFiles, launches: Sequence[Launch]) -> tuple[Finding, ...]:
    """Return a refusal for each file that a run opens and that is not sent."""
    names = {item.name for item in release.files}
    folders = {parent for name in names for parent in _parents(name)}
    opened: dict[str, str] = {}
    for name in release.required:
        opened.setdefault(name, "the runner")
    for item in bundle.opens:
        opened.setdefault(release.placed(item.name), item.named_by)
    for launch in launches:
        for name in _release_words(launch):
            if name not in folders:
                opened.setdefault(name, "the command line of the run")
        for name, user in _bundle_words(bundle, release, launch):
            opened.setdefault(name, user)
    for name, user in (*_linked_of_runtime(release.files), *_of_packages(release.files)):
        opened.setdefault(name, user)
    return tuple(
        Finding(
            UNSENT,
            "refuse",
            f"{user} opens {name}, but the release does not contain this file",
            "not in the release",
            name,
            _cure_of_unsent(name, bundle, release),
            _SOURCE,
        )
        for name, user in sorted(opened.items())
        if name not in names
    )


def _parents(name: str) -> Iterator[str]:
    parts = name.split("/")
    return ("/".join(parts[:count]) for count in range(1, len(parts)))


def _release_words(launch: Launch) -> Iterator[str]:
    for word in (*launch.argv, *launch.env.values()):
        for match in _IN_RELEASE.finditer(word):
            name = posixpath.normpath(match[1])
            if "{" not in name and (name not in _FOLDERS) and "$" not in name:
                yield name


_FOLDERS = {"lib", "dsp", "bin", "bundle", "site"}  # folders of a release, which may be empty


def _bundle_words(bundle: Bundle, release: SentFiles, launch: Launch) -> Iterator[tuple[str, str]]:
    """Yield the files of the bundle's folder that a start names, whether they are sent or not."""
    for word in launch.words:
        yield from _word(bundle, release, launch.cwd, word, "the command line of the run")
    by = "the configuration of the run"
    for word in _strings_of(launch.config):
        yield from _word(bundle, release, launch.cwd, word, by)
    for item in _configurations(release, launch):
        for word in _strings_of(_small_text(item.source)):
            yield from _word(bundle, release, launch.cwd, word, item.name.rpartition("/")[2])


def _configurations(release: SentFiles, launch: Launch) -> Iterator[FileRef]:
    """Return the files of the release that the command line names and that may name other files.

    Examples are a list of inputs and a configuration of the backend extensions.
    """
    names = {
        posixpath.normpath(posixpath.join(launch.cwd, word.removeprefix("{release}/")))
        for word in launch.words
        if word.endswith((".txt", ".json"))
    }
    return (item for item in release.files if item.name in names)


def _word(
    bundle: Bundle, release: SentFiles, cwd: str, word: str, user: str
) -> Iterator[tuple[str, str]]:
    word = word.removeprefix("{release}/") if word.startswith("{release}/") else word
    odd = not word or word.startswith(("/", "{", "-")) or len(word) > 1024
    if odd or bundle.kind == "runtime":  # a runtime has no folder
        return
    for base in {cwd, release.bundle}:
        name = posixpath.normpath(posixpath.join(base, word))
        inside = posixpath.relpath(name, release.bundle) if release.bundle else name
        if inside.startswith(".."):
            continue
        try:
            there = (bundle.root / inside).is_file()
        except (OSError, ValueError):
            continue
        if there:
            yield name, user


def _strings_of(text: str) -> Iterator[str]:
    """Yield the strings of a JSON text, or the words of a text that is not JSON."""
    try:
        stack = [json.loads(text)] if text.strip() else []
    except (ValueError, RecursionError):
        for word in text.split():
            yield from (word, word.rpartition(":=")[2])
        return
    while stack:
        value = stack.pop()
        if isinstance(value, dict | list):
            stack += value.values() if isinstance(value, dict) else value
        elif isinstance(value, str):
            yield value


def _small_text(path: Path) -> str:
    try:
        return path.read_text("utf-8", "replace") if path.stat().st_size <= _CONFIG_BYTES else ""
    except OSError:
        return ""


def _cure_of_unsent(name: str, bundle: Bundle, release: SentFiles) -> str:
    base = name.rpartition("/")[2]
    inside = name.removeprefix(f"{release.bundle}/") if release.bundle else name
    if (bundle.root / inside).is_file():
        return (
            f"name {inside} in the configuration of the bundle, or list the files that go along: "
            f"fleet bundle inspect {bundle.root}"
        )
    if _OF_RUNTIME.fullmatch(base) or base.lower().endswith((".so", ".dll")):
        return (
            f"name a copy of {base}, made for this device, under `run: libraries:` in the "
            "playbook; or add an SDK that has it: fleet runtime add SDK"
        )
    return f"copy {base} into {bundle.root}, or correct its name where it is used"


@lru_cache(maxsize=4096)
def _linked(path: Path, size: int, changed: int) -> Linked | None:
    """Return the linked libraries of an ELF file for a CPU, or None for another file.

    Only some pages of a large file are read. `changed` (mtime in ns) is only a part of the cache
    key.
    """
    del changed
    if size < 64:
        return None
    try:
        with path.open("rb") as stream:
            if stream.read(4) != b"\x7fELF":
                return None
            with mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ) as data:
                return read_linked(data)
    except (NotReadableError, OSError, ValueError):
        return None


def linked(path: Path) -> Linked | None:
    """Return the linked libraries of an ELF file for a CPU; None for any other file.

    None also stands for a file that is missing, truncated or for a DSP.
    """
    try:
        stat = path.stat()
    except OSError:
        return None
    return _linked(path, stat.st_size, stat.st_mtime_ns)


def linked_files(paths: Iterable[Path]) -> dict[Path, Linked]:
    """Return the linked libraries of each file, without the files for which `linked` is None."""
    return {path: result for path in paths if (result := linked(path)) is not None}


def _linked_of_runtime(files: tuple[FileRef, ...]) -> Iterator[tuple[str, str]]:
    """Yield the libraries of QAIRT or of a wheel that a file of the release is linked with.

    Libraries in the release are left out.
    """
    places: dict[str, str] = {}
    for item in files:
        places.setdefault(item.name.rpartition("/")[2], item.name)
    for item in files:
        base = item.name.rpartition("/")[2]
        if ".so" not in base and not item.executable:
            continue
        links = linked(item.source)
        for library in links.needed if links is not None else ():
            if library not in places and _OF_RUNTIME.fullmatch(library):
                yield posixpath.join(posixpath.dirname(item.name), library), base


def _of_packages(files: tuple[FileRef, ...]) -> Iterator[tuple[str, str]]:
    """Yield the files of Python packages, from the RECORD of each package (PEP 376)."""
    for item in files:
        folder, _, base = item.name.rpartition("/")
        if base != "RECORD" or not folder.endswith(".dist-info"):
            continue
        site, package = posixpath.dirname(folder), posixpath.basename(folder)
        for row in csv.reader(_small_text(item.source).splitlines()):
            name = row[0] if row else ""
            if name and not name.startswith(("../", "/")) and not left_out(name):
                yield posixpath.join(site, name), package.removesuffix(".dist-info")


def foreign(
    bundle: Bundle, release: SentFiles, launches: Sequence[Launch]
) -> tuple[tuple[Finding, ...], dict[str, tuple[str, ...]]]:
    """Return refusals of libraries for another system, and the libraries missing in the release.

    The missing libraries may be on the device. Each has the names of its users.
    """
    bases = {item.name.rpartition("/")[2] for item in release.files}
    wrong, other = (_ON_LINUX, _ON_WINDOWS) if release.windows else (_ON_WINDOWS, _ON_LINUX)
    findings, asked = dict[str, Finding](), dict[str, tuple[str, ...]]()
    for user, text in _texts(bundle, release, launches):
        base = re.split(r"[/\\]", text)[-1]
        if wrong.fullmatch(base):
            findings.setdefault(base, _foreign(base, user, windows=release.windows))
        elif other.fullmatch(text) and base not in bases and not release.windows:
            asked.setdefault(base, (user,))
    return tuple(findings.values()), asked


def _texts(
    bundle: Bundle, release: SentFiles, launches: Sequence[Launch]
) -> Iterator[tuple[str, str]]:
    for launch in launches:
        yield from (("the command line of the run", word) for word in launch.words)
        yield from (("the configuration of the run", text) for text in _strings_of(launch.config))
        yield from (
            (item.name.rpartition("/")[2], text)
            for item in _configurations(release, launch)
            for text in _strings_of(_small_text(item.source))
        )
    read = {release.placed(item.name) for item in bundle.opens if item.name.endswith(".json")}
    for item in release.files:
        if item.name in read:
            name = item.name.rpartition("/")[2]
            yield from ((name, text) for text in _strings_of(_small_text(item.source)))


def _foreign(library: str, user: str, *, windows: bool) -> Finding:
    mine, theirs = ("Windows", "Linux") if windows else ("Linux", "Windows")
    return Finding(
        FOREIGN,
        "refuse",
        f"{user} names {library}, a library of {theirs}, which {mine} cannot open",
        library,
        "QnnHtp.dll" if windows else "libQnnHtp.so",
        f"write the name of the library for {mine} where {library} stands",
        _SOURCE,
    )


def needs(own: Mapping[Path, Linked], files: Iterable[FileRef]) -> dict[str, tuple[str, ...]]:
    """Return the missing libraries, each with the programs and libraries that are linked with it.

    `own` are the programs and the user's libraries. `files` are all files of the release; a library
    among them is not missing.
    """
    names = {item.name.rsplit("/", 1)[-1] for item in files}
    users_of: dict[str, list[str]] = {}
    for path, result in own.items():
        for library in result.needed:
            if library not in names:
                users_of.setdefault(library, []).append(path.name)
    return {library: tuple(users) for library, users in sorted(users_of.items())}


def newer_glibc(
    own: Mapping[Path, Linked], files: Iterable[FileRef], facts: Facts
) -> tuple[Finding, ...]:
    """Return a refusal for each program or library that needs a newer C library than the device's.

    Returns no refusal if the version on the device is unknown, or if the release contains a C
    library.
    """
    if any(item.name.endswith("/libc.so.6") for item in files):
        return ()
    try:
        have = version_key(facts.libc_version or "")
    except ValueError:
        return ()
    findings = []
    for path, result in own.items():
        needed = result.glibc
        if needed and (facts.libc not in {None, "glibc"} or max(needed) > have):
            text = ".".join(map(str, max(needed)))
            findings.append(
                Finding(
                    GLIBC,
                    "refuse",
                    f"{path.name} would not start: it needs GLIBC_{text}, but the device has "
                    f"{facts.libc or 'glibc'} {facts.libc_version}",
                    f"{facts.libc or 'glibc'} {facts.libc_version}",
                    f"glibc {text}",
                    f"build {path.name} on the system of the device (or on an older one), or "
                    "link it statically",
                    "DT_VERNEED of the file (Linux Standard Base, symbol versions)",
                )
            )
    return tuple(findings)


def device_programs(launches: Sequence[Launch]) -> tuple[str, ...]:
    """Return the programs of the device that the starts run.

    In `env A=B PROGRAM`, the program is PROGRAM.
    """
    programs = []
    for launch in launches:
        words = [word for word in launch.argv if "=" not in word or "/" in word.partition("=")[0]]
        if words and words[0] in {"env", "/usr/bin/env"}:
            words = [word for word in words[1:] if not word.startswith("-")]
        if words and re.fullmatch(r"[\w./+-]+", words[0]) and "{" not in words[0]:
            programs.append(words[0])
    return tuple(dict.fromkeys(programs))


def absent(programs: Collection[str], there: Collection[str], runner: str) -> tuple[Finding, ...]:
    """Return a refusal for each program that the device does not have."""
    return tuple(
        Finding(
            ABSENT,
            "refuse",
            f"the run of {runner} starts the program {name}, but the device does not have it",
            f"no {name}",
            name,
            f"install {name} on the device, or send one of yours: `run: program: PATH` and "
            "{program} in `argv:`",
            _SOURCE,
        )
        for name in programs
        if name not in there
    )


def lacking(
    wanted: Mapping[str, tuple[str, ...]], there: Collection[str], facts: Facts
) -> tuple[Finding, ...]:
    """Return a refusal for each library that is neither in the release nor on the device."""
    return tuple(
        Finding(
            RULE,
            "refuse",
            f"{' and '.join(users)} would not start: {library}, which the loader needs, is "
            "neither in the release nor on the device",
            f"no {library}",
            library,
            _cure(library, facts),
            "DT_NEEDED of the file; ld.so(8)",
        )
        for library, users in wanted.items()
        if library not in there
    )


def _cure(library: str, facts: Facts) -> str:
    """Return the cure, with the package of the device's distribution if there is one."""
    package = _PACKAGES.get(library)
    python = re.fullmatch(r"libpython(3\.[0-9]+)\.so\.1\.0", library)
    if python and (facts.tools.python3_version or "").startswith(f"{python[1]}."):
        package = f"libpython{python[1]}"
    if package and facts.android is None and facts.os_id in {"debian", "ubuntu"}:
        return (
            f"{install(facts, package)}, or name a copy of {library} under "
            "`run: libraries:` in the playbook"
        )
    return (
        f"name a copy of {library}, made for this device, under `run: libraries:` in the playbook"
    )


def executorch_pair(own: Collection[Path], qairt: str, *, emulator: bool) -> tuple[Finding, ...]:
    """Return a finding for an ExecuTorch and a QAIRT version that fail together on x86_64.

    The finding is a refusal only with `emulator`, and only for the backend that was tested;
    otherwise it is a warning. This backend is recognised by its name. The user's own build may have
    other headers. The result is empty if the table does not list this QAIRT version.
    """
    row = load("qairt_releases")["executorch"]
    if qairt not in row["fails"]:
        return ()
    tried = any(path.name == row["backend"] for path in own)
    where = "" if emulator else "; nobody has tried them on hardware"
    works = row["works"]
    return (
        Finding(
            "executorch-qairt",
            "refuse" if emulator and tried else "warn",
            f"{row['backend']} of ExecuTorch {row['version']} with QAIRT {qairt} fails with "
            f"error 14001 on the emulator (`unknown custom config socModel 0`){where}",
            f"QAIRT {qairt}",
            f"QAIRT {works}, or a backend built with the headers of {qairt}",
            f'set `runtime: "{works}"` in the playbook, or build the backend with the headers of '
            f"QAIRT {qairt}",
            "docs/runners.md: QnnDevice_create with both forms of QnnHtpDevice_CustomConfig_t",
        ),
    )
