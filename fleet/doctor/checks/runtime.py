"""Checks of the QAIRT runtime: files, machine, builds, needs, foreign copies."""

from __future__ import annotations

from collections.abc import Iterator

from fleet.doctor.checks.making import Maker
from fleet.doctor.seen import Elf, Release, Seen
from fleet.doctor.subject import Subject, device_machine, subjects
from fleet.model.diagnosis import Check

_SHOWN = 4
_PAIR = ("Stub.so", "Skel.so")
_FILES = Maker("runtime", "runtime")
_MACHINE = Maker("machine", "runtime")
_BUILDS = Maker("builds", "runtime")
_NEEDS = Maker("needs", "runtime")
_VENDOR = ("/vendor/", "/odm/")  # of the firmware
_ELSEWHERE = Maker("elsewhere", "runtime")


def files(seen: Seen) -> Iterator[Check]:
    """Every file of a release is as it was installed."""
    for folder in seen.folders:
        if not folder.there:
            text = f"{folder.root}, which --folder names, does not exist on the device"
            yield _FILES.bad(text, {"folder": "absent"}, f"ls -ld {folder.root}", "no such folder")
    if not seen.releases and not seen.folders:
        text = "nothing is deployed; to check files that you copied by hand: --folder FOLDER"
        yield _FILES.unknown(text, {"release": "none"})
    for subject in subjects(seen):
        if subject.release is not None:
            yield _release(subject, subject.release)
    if large := seen.lines.get("unhashed"):
        text = (
            f"{len(large)} large files are newer than their release, and fleet did not check "
            "their hashes"
        )
        yield _FILES.unknown(f"{text}; to check all hashes: --verify")


def _release(one: Subject, release: Release) -> Check:
    if not release.id or ((release.installed or release.staged) and not release.listed):
        tools = "the device lacks the program find, stat or readlink"
        return _FILES.unknown(f"fleet cannot list the files of {one.label}: {tools}")
    lists = (("missing", one.missing), ("changed", one.damaged), ("replaced", one.strange))
    said = "; ".join(f"{word}: {name}" for word, names in lists for name in names[:_SHOWN])
    if not one.unsealed and not said:
        how = "staged" if release.staged else "installed"
        text = f"{one.label}: every file as {how}" + (f", {one.build}" if one.build else "")
        return _FILES.ok(text, {"release": "installed"}, "fleet status")
    what = "is incomplete: a deploy did not finish" if one.unsealed else "is damaged"
    changed = (*one.damaged, *one.strange)
    contexts = not one.unsealed and not one.missing and all(n.endswith(".bin") for n in changed)
    facts = {"release": "contexts-damaged" if contexts else "damaged"}
    return _FILES.bad(f"{one.label} {what}", facts, "fleet status --json", said or what)


def machine(seen: Seen) -> Iterator[Check]:
    """Libraries are whole, and for this machine."""
    for subject in subjects(seen):
        host = [lib for lib in subject.libraries if lib.machine not in {"", "hexagon"}]
        # A lab board stands for an arm64 board, so there only a mixture is wrong.
        device = (seen.facts.lab and subject.machine) or device_machine(seen)
        odd = [lib for lib in host if lib.machine != device]
        if odd:
            text = f"{odd[0].name} is built for {odd[0].machine}, but the device is {device}"
            said = "\n".join(f"{lib.path}: {lib.machine}" for lib in odd[:_SHOWN])
            yield _MACHINE.bad(text, {"runtime.machine": "wrong"}, f"file {odd[0].path}", said)
        elif host:
            yield _MACHINE.ok(f"{subject.label}: {host[0].machine}", {"runtime.machine": "ok"})
        for lib in subject.libraries:
            if lib.machine == "" and subject.release is None:
                text = f"{lib.name} is not a valid library: the file is truncated or overwritten"
                said = f"{lib.size} bytes, not a complete ELF file"
                yield _MACHINE.bad(text, {"runtime.files": "damaged"}, f"file {lib.path}", said)
                break


def builds(seen: Seen) -> Iterator[Check]:
    """All libraries of a set-up come from one build of QAIRT."""
    for subject in subjects(seen):
        # Stub and skel of another build are a finding of their own.
        main = [lib for lib in subject.libraries if lib.build and not lib.name.endswith(_PAIR)]
        found = {lib.build for lib in main if lib.name.startswith("libQnn")}
        if len(found) > 1:
            text = f"{subject.label} mixes QAIRT versions: {', '.join(sorted(found))}"
            said = "\n".join(f"{lib.build}  {lib.path}" for lib in main)
            yield _BUILDS.bad(text, {"runtime.builds": "mixed"}, f"ls -lR {subject.root}", said)
        elif found:
            yield _BUILDS.ok(f"{subject.label}: {next(iter(found))}", {"runtime.builds": "one"})


def needs(seen: Seen) -> Iterator[Check]:
    """The loader finds every library that libQnnHtp needs."""
    missing = [row for row in seen.pairs("lacking") if len(row) == 2]
    # The stub asks for libcdsprpc, and that is a check of its own.
    for path, name in missing[:_SHOWN]:
        text = f"the library {name.strip()} is missing, but {path.rpartition('/')[2]} needs it"
        said = f"{name.strip()} => not found"
        yield _NEEDS.bad(text, {"runtime.needs": "missing"}, f"ldd {path}", said)
    if not missing:
        yield _NEEDS.ok("no library is missing", {"runtime.needs": "ok"})


def elsewhere(seen: Seen) -> Iterator[Check]:
    """Another QNN on the system, which a search path may find first."""
    mine = {subject.build for subject in subjects(seen) if subject.build and not subject.emulator}
    found = [seen.elves[p] for p in seen.lines.get("system", []) if p in seen.elves]
    vendor = [lib for lib in found if lib.path.startswith(_VENDOR)]
    own = [lib for lib in found if lib not in vendor]
    odd = [lib for lib in own or vendor if lib.build and mine and lib.build not in mine]
    builds = {lib.path: lib.build for lib in found}
    paths = [lib.path for lib in own]
    paths += [path for path in seen.facts.qnn_libraries if not path.startswith(_VENDOR)]
    second = list(dict.fromkeys([*(lib.path for lib in odd), *paths]))
    if not second or (seen.facts.android is not None and not odd):
        facts = {"runtime.system": "none", "runtime.vendor": "none"}
        yield _ELSEWHERE.ok("the system has no other QNN libraries", facts)
        return
    said = "\n".join(f"{builds.get(path) or 'unknown build'}  {path}" for path in second[:_SHOWN])
    command = "find / -name 'libQnnHtp*.so' 2>/dev/null"
    if odd:
        text = f"another QNN version is installed: {odd[0].path} is from {odd[0].build}"
    else:
        text = f"another QNN is installed on the system: {second[0]}"
    if not any(subject.release is None for subject in subjects(seen)):
        text += " (releases of fleet do not load it; programs that fleet does not start may)"
    yield _ELSEWHERE.warn(text, _elsewhere_facts(seen, odd, own), command, said)


def _elsewhere_facts(seen: Seen, odd: list[Elf], own: list[Elf]) -> dict[str, str]:
    """Return the words for causes. Older libraries in the firmware of a phone are usual: they
    matter to a set-up by hand, whose search paths are not fleet's.
    """
    manual = any(subject.release is None for subject in subjects(seen))
    if odd and not own:
        return {"runtime.vendor": "older"} if manual else {}
    if odd and manual:
        return {"runtime.system": "other-build"}
    return {"runtime.system": "second"} if subjects(seen) else {}
