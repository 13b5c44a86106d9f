"""Checks of the QAIRT runtime: files, machine, builds, stub and skel, foreign copies, paths."""

from __future__ import annotations

import re
from collections.abc import Iterator

from fleet.doctor.checks.making import Maker
from fleet.doctor.seen import BACKEND, Elf, Release, Seen, Subject, device_machine, subjects
from fleet.model.diagnosis import Check

_SHOWN = 4
_PAIR = ("Stub.so", "Skel.so")
_FILES = Maker("runtime", "runtime")
_MACHINE = Maker("machine", "runtime")
_BUILDS = Maker("builds", "runtime")
_NEEDS = Maker("needs", "runtime")
_VENDOR = ("/vendor/", "/odm/")  # folders of the firmware
_ELSEWHERE = Maker("elsewhere", "runtime")


def files(sample: Seen) -> Iterator[Check]:
    """Every file of a release is as it was installed."""
    for folder in sample.folders:
        if not folder.there:
            text = f"{folder.root}, which --folder names, does not exist on the device"
            yield _FILES.bad(text, {"folder": "absent"}, f"ls -ld {folder.root}", "no such folder")
    if not sample.releases and not sample.folders:
        text = "nothing is deployed; to check files that you copied by hand: --folder FOLDER"
        yield _FILES.unknown(text, {"release": "none"})
    for subject in subjects(sample):
        if subject.release is not None:
            yield _release(subject, subject.release)
    if large := sample.lines.get("unhashed"):
        text = (
            f"{len(large)} large files are newer than their release, and fleet did not check "
            "their hashes"
        )
        yield _FILES.unknown(f"{text}; to check all hashes: --verify")


def _release(subject: Subject, release: Release) -> Check:
    if not release.id or ((release.installed or release.staged) and not release.listed):
        tools = "the device lacks the program find, stat or readlink"
        return _FILES.unknown(f"fleet cannot list the files of {subject.label}: {tools}")
    lists = (
        ("missing", subject.missing),
        ("changed", subject.damaged),
        ("replaced", subject.strange),
    )
    output = "; ".join(f"{word}: {name}" for word, names in lists for name in names[:_SHOWN])
    if not subject.unsealed and not output:
        how = "staged" if release.staged else "installed"
        text = f"{subject.label}: every file as {how}" + (
            f", {subject.build}" if subject.build else ""
        )
        return _FILES.ok(text, {"release": "installed"}, "fleet status")
    what = "is incomplete: a deploy did not finish" if subject.unsealed else "is damaged"
    changed = (*subject.damaged, *subject.strange)
    contexts = (
        not subject.unsealed and not subject.missing and all(n.endswith(".bin") for n in changed)
    )
    facts = {"release": "contexts-damaged" if contexts else "damaged"}
    return _FILES.bad(f"{subject.label} {what}", facts, "fleet status --json", output or what)


def machine(sample: Seen) -> Iterator[Check]:
    """Libraries are whole, and for this machine."""
    for subject in subjects(sample):
        host = [lib for lib in subject.libraries if lib.machine not in {"", "hexagon"}]
        # A lab board represents an arm64 board, so only a mixture is wrong there.
        device = (sample.facts.lab and subject.machine) or device_machine(sample)
        odd = [lib for lib in host if lib.machine != device]
        if odd:
            text = f"{odd[0].name} is built for {odd[0].machine}, but the device is {device}"
            output = "\n".join(f"{lib.path}: {lib.machine}" for lib in odd[:_SHOWN])
            yield _MACHINE.bad(text, {"runtime.machine": "wrong"}, f"file {odd[0].path}", output)
        elif host:
            yield _MACHINE.ok(f"{subject.label}: {host[0].machine}", {"runtime.machine": "ok"})
        for lib in subject.libraries:
            if lib.machine == "" and subject.release is None:
                text = f"{lib.name} is not a valid library: the file is truncated or overwritten"
                output = f"{lib.size} bytes, not a complete ELF file"
                yield _MACHINE.bad(text, {"runtime.files": "damaged"}, f"file {lib.path}", output)
                break


def builds(sample: Seen) -> Iterator[Check]:
    """All libraries of a set-up come from one build of QAIRT."""
    for subject in subjects(sample):
        # Stub and skel of another build are a finding of their own.
        main = [lib for lib in subject.libraries if lib.build and not lib.name.endswith(_PAIR)]
        versions = {lib.build for lib in main if lib.name.startswith("libQnn")}
        if len(versions) > 1:
            text = f"{subject.label} mixes QAIRT versions: {', '.join(sorted(versions))}"
            output = "\n".join(f"{lib.build}  {lib.path}" for lib in main)
            yield _BUILDS.bad(text, {"runtime.builds": "mixed"}, f"ls -lR {subject.root}", output)
        elif versions:
            yield _BUILDS.ok(f"{subject.label}: {next(iter(versions))}", {"runtime.builds": "one"})


def needs(sample: Seen) -> Iterator[Check]:
    """The loader finds every library that libQnnHtp needs."""
    missing = [row for row in sample.pairs("lacking") if len(row) == 2]
    # The stub needs libcdsprpc, which has a check of its own.
    for path, name in missing[:_SHOWN]:
        text = f"the library {name.strip()} is missing, but {path.rpartition('/')[2]} needs it"
        output = f"{name.strip()} => not found"
        yield _NEEDS.bad(text, {"runtime.needs": "missing"}, f"ldd {path}", output)
    if not missing:
        yield _NEEDS.ok("no library is missing", {"runtime.needs": "ok"})


def elsewhere(sample: Seen) -> Iterator[Check]:
    """Another QNN on the system, which a search path may find first."""
    mine = {subject.build for subject in subjects(sample) if subject.build and not subject.emulator}
    libraries = [sample.elves[p] for p in sample.lines.get("system", []) if p in sample.elves]
    vendor = [lib for lib in libraries if lib.path.startswith(_VENDOR)]
    own = [lib for lib in libraries if lib not in vendor]
    odd = [lib for lib in own or vendor if lib.build and mine and lib.build not in mine]
    builds = {lib.path: lib.build for lib in libraries}
    paths = [lib.path for lib in own]
    paths += [path for path in sample.facts.qnn_libraries if not path.startswith(_VENDOR)]
    second = list(dict.fromkeys([*(lib.path for lib in odd), *paths]))
    if not second or (sample.facts.android is not None and not odd):
        facts = {"runtime.system": "none", "runtime.vendor": "none"}
        yield _ELSEWHERE.ok("the system has no other QNN libraries", facts)
        return
    output = "\n".join(f"{builds.get(path) or 'unknown build'}  {path}" for path in second[:_SHOWN])
    command = "find / -name 'libQnnHtp*.so' 2>/dev/null"
    if odd:
        text = f"another QNN version is installed: {odd[0].path} is from {odd[0].build}"
    else:
        text = f"another QNN is installed on the system: {second[0]}"
    if not any(subject.release is None for subject in subjects(sample)):
        text += " (releases of fleet do not load it; programs that fleet does not start may)"
    yield _ELSEWHERE.warn(text, _elsewhere_facts(sample, odd, own), command, output)


def _elsewhere_facts(sample: Seen, odd: list[Elf], own: list[Elf]) -> dict[str, str]:
    """Return the facts for causes.

    Older libraries in the firmware of a phone are usual. They matter only to a manual set-up, whose
    search paths are not fleet's.
    """
    manual = any(subject.release is None for subject in subjects(sample))
    if odd and not own:
        return {"runtime.vendor": "older"} if manual else {}
    if odd and manual:
        return {"runtime.system": "other-build"}
    return {"runtime.system": "second"} if subjects(sample) else {}


_STUB = Maker("stub", "runtime")
_SKEL = Maker("skel", "runtime")


def stub(sample: Seen) -> Iterator[Check]:
    """The stub for the arch of the chip is there, and of the build of libQnnHtp."""
    yield from _halves(sample, _STUB, "Stub.so")


def skel(sample: Seen) -> Iterator[Check]:
    """The skel for the arch of the chip is there, of that arch, and of the build of libQnnHtp."""
    yield from _halves(sample, _SKEL, "Skel.so")


def _halves(sample: Seen, make: Maker, ending: str) -> Iterator[Check]:
    arch = sample.facts.soc.hexagon_arch
    for subject in subjects(sample):
        # The emulator has neither. Without the arch the needed files are unknown.
        if subject.emulator or not subject.lib or arch is None:
            continue
        every = [lib for lib in subject.named(ending) if "Calculator" not in lib.name]
        name = f"libQnnHtp{arch.upper()}{ending}"
        mine = [lib for lib in every if lib.name == name]
        if mine:
            yield _judged(mine[0], arch, subject, make)
        else:
            there = ", ".join(sorted({lib.name for lib in every})) or "none"
            text, command = (
                f"{name} is missing, but this chip ({arch}) needs it",
                f"ls -l {subject.root}/*/{name}",
            )
            yield make.bad(text, {f"runtime.{make.id}": "missing"}, command, f"there: {there}")


def _judged(lib: Elf, arch: str, subject: Subject, make: Maker) -> Check:
    fact = f"runtime.{make.id}"
    if lib.arch and lib.arch != arch:
        text = f"{lib.name} is built for Hexagon {lib.arch}, but the chip is {arch}"
        command = f"readelf -h {lib.path}"
        return make.bad(text, {fact: "other-arch"}, command, f"e_flags {lib.arch}")
    if lib.build and subject.build and lib.build != subject.build:
        text = f"{lib.name} is from QAIRT {lib.build}, but {BACKEND} is from {subject.build}"
        command = f"grep -aoE 'v2[.][0-9]+[.][0-9]+[.][0-9]{{12}}' {lib.path}"
        return make.bad(text, {fact: "other-build"}, command, lib.build)
    return make.ok(f"{lib.name}, {lib.build or 'build unknown'}", {fact: "ok"})


_SETTING = re.compile(r"^(?P<place>[^:]+:\d+):.*\b(?P<name>ADSP|DSP)_LIBRARY_PATH=(?P<value>.*)$")
_DRIVE = re.compile(r"^[A-Za-z]:\\")
_PATHS = Maker("paths", "runtime")
_COLON = "ADSP_LIBRARY_PATH has ':' between its folders; the DSP expects ';'"
_SET = "DSP_LIBRARY_PATH is set, so the DSP ignores ADSP_LIBRARY_PATH"


def paths(sample: Seen) -> Iterator[Check]:
    """ADSP_LIBRARY_PATH is separated by `;`, and DSP_LIBRARY_PATH does not replace it."""
    put_there = any(folder.there for folder in sample.folders) or not sample.releases
    wrong = False
    for name, command, value in _settings(sample):
        if name == "ADSP" and is_joined(value):
            text, facts = _COLON, {"env.adsp": "colon"}
        elif name == "DSP" and value:
            text, facts = _SET, {"env.dsp": "set"}
        else:
            continue
        wrong = True
        if command.startswith("sed "):
            facts["slot.setting"] = command.rpartition(" ")[2]
        if put_there:
            yield _PATHS.bad(text, facts, command, value)
        else:
            text += " (programs that fleet starts are not affected)"
            yield _PATHS.warn(text, facts, command, value)
    if not wrong:
        facts = {"env.adsp": "ok", "env.dsp": "unset"}
        text = "the library search paths of the DSP are correct"
        yield _PATHS.ok(text, facts, "env | grep DSP_LIBRARY_PATH")


def _settings(sample: Seen) -> Iterator[tuple[str, str, str]]:
    """Yield (ADSP or DSP, command that shows it, value) of the session, then of login files."""
    if value := sample.facts.dsp_library_path:
        yield "DSP", "echo $DSP_LIBRARY_PATH", value
    for row in sample.pairs("env"):
        if row[0] == "ADSP_LIBRARY_PATH" and row[-1]:
            yield "ADSP", "echo $ADSP_LIBRARY_PATH", row[-1]
    for text in sample.lines.get("setting", ()):
        if match := _SETTING.match(text):
            file, _, line = match["place"].rpartition(":")
            shown = f"sed -n {line}p {file}"
            yield match["name"], shown, match["value"].strip().strip("\"'")


def is_joined(value: str) -> bool:
    """Return True for folders that are joined by ':', which the library takes for a single name."""
    parts = [part for part in value.split(":") if part]
    return ";" not in value and len(parts) > 1 and not _DRIVE.match(value)
