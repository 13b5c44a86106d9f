"""Checks of the QAIRT runtime: files, machine, builds, stub and skel, foreign copies."""

from __future__ import annotations

from collections.abc import Iterator

from fleet.doctor.seen import Elf, Seen
from fleet.doctor.subject import BACKEND, Subject, device_machine, subjects
from fleet.model.diagnosis import BAD, OK, UNKNOWN, WARN, Check

_SHOWN = 4
_PAIR = ("Stub.so", "Skel.so")


def files(seen: Seen) -> Iterator[Check]:
    """Every library of the set-up is there, for this machine, and as its release says."""
    every = subjects(seen)
    for folder in seen.folders:
        if not folder.there:
            yield Check(
                "runtime",
                "runtime",
                BAD,
                f"{folder.root} does not exist",
                {"runtime.files": "none"},
                f"ls -ld {folder.root}",
                "no such folder",
            )
    if not every and not seen.folders:
        yield Check(
            "runtime",
            "runtime",
            UNKNOWN,
            "no release of fleet and no folder to look at; name one with --folder",
            {"release": "none"},
        )
    for one in every:
        yield from _release(one)
        yield from _machine(one, seen)
        if one.lib or one.release is not None:
            yield from _pair(one, seen)


def _release(one: Subject) -> Iterator[Check]:
    if one.release is None:
        return
    if not one.release.id or (one.release.installed and not one.release.listed):
        text = f"{one.label}: its files cannot be listed: find, stat or readlink is missing"
        yield Check("runtime", "runtime", UNKNOWN, text)
        return
    libraries = [name for name in (*one.missing, *one.damaged) if name.endswith(".so")]
    others = [name for name in (*one.missing, *one.damaged) if not name.endswith(".so")]
    if one.unsealed or libraries or others:
        what = "is not sealed: an install did not end" if one.unsealed else "is damaged"
        said = "; ".join(
            [
                *(f"missing: {n}" for n in one.missing[:_SHOWN]),
                *(f"changed: {n}" for n in one.damaged[:_SHOWN]),
            ]
        )
        yield Check(
            "runtime",
            "runtime",
            BAD,
            f"{one.label} {what}",
            {"release": "damaged", "release.previous": "yes" if _previous(one) else "no"},
            "fleet status --json",
            said or what,
        )
    else:
        yield Check(
            "runtime",
            "runtime",
            OK,
            f"{one.label}: every file as installed, {one.build}",
            {"release": "installed"},
            "fleet status",
        )


def _previous(one: Subject) -> bool:
    """Is there a release to go back to?"""
    past = one.release.history if one.release is not None else ()
    return any(known != one.release.id for known in past) if one.release is not None else False


def _machine(one: Subject, seen: Seen) -> Iterator[Check]:
    """A lab board stands for an arm64 board, so there only a mixture is wrong."""
    host = [lib for lib in one.libraries if lib.machine not in {"", "hexagon"}]
    device = (seen.facts.lab and one.machine) or device_machine(seen)
    odd = [lib for lib in host if lib.machine != device]
    if odd:
        said = "\n".join(f"{lib.path}: {lib.machine}" for lib in odd[:_SHOWN])
        yield Check(
            "machine",
            "runtime",
            BAD,
            f"{odd[0].name} is for {odd[0].machine}, this is {device}",
            {"runtime.machine": "wrong"},
            f"file {odd[0].path}",
            said,
        )
    elif host:
        yield Check(
            "machine", "runtime", OK, f"{one.label}: {host[0].machine}", {"runtime.machine": "ok"}
        )
    broken = [lib for lib in one.libraries if lib.machine == "" and one.release is None]
    if broken:
        yield Check(
            "machine",
            "runtime",
            BAD,
            f"{broken[0].name} is no library: cut or overwritten",
            {"runtime.files": "damaged"},
            f"file {broken[0].path}",
            f"{broken[0].size} bytes, no ELF header",
        )


def _pair(one: Subject, seen: Seen) -> Iterator[Check]:
    """Stub and skel for the arch of the chip, of the build of libQnnHtp."""
    arch = seen.facts.soc.hexagon_arch
    if one.emulator or not one.lib or arch is None:
        return
    number = arch.lstrip("v")
    for kind, ending in (("stub", f"HtpV{number}Stub.so"), ("skel", f"HtpV{number}Skel.so")):
        fact = f"runtime.{kind}"
        found = [lib for lib in one.named(ending) if "Calculator" not in lib.name]
        command = f"ls -l {one.root}/*/libQnn{ending}"
        other = [lib.name for lib in one.named(ending[-7:]) if "Calculator" not in lib.name]
        if not found:
            text = f"libQnn{ending} is missing; this chip is {arch}"
            yield Check(
                kind,
                "runtime",
                BAD,
                text,
                {fact: "missing"},
                command,
                f"there: {', '.join(sorted(set(other))) or 'none'}",
            )
        else:
            yield _kind(kind, found[0], arch, one)


def _kind(kind: str, lib: Elf, arch: str, one: Subject) -> Check:
    fact, build = f"runtime.{kind}", one.build
    shown = f"grep -aoE 'v2[.][0-9]+[.][0-9]+[.][0-9]{{12}}' {lib.path}"
    if kind == "skel" and lib.arch and lib.arch != arch:
        text = f"{lib.name} holds code for Hexagon {lib.arch}, the chip is {arch}"
        return Check(
            kind,
            "runtime",
            BAD,
            text,
            {fact: "other-arch"},
            f"readelf -h {lib.path}",
            f"e_flags {lib.arch}",
        )
    if lib.build and build and lib.build != build:
        text = f"{lib.name} is of {lib.build}, {BACKEND} of {build}"
        return Check(kind, "runtime", BAD, text, {fact: "other-build"}, shown, lib.build)
    return Check(kind, "runtime", OK, f"{lib.name}, {lib.build or 'build unknown'}", {fact: "ok"})


def builds(seen: Seen) -> Iterator[Check]:
    """All libraries of a set-up come from one build of QAIRT."""
    for one in subjects(seen):
        # Stub and skel of another build are a finding of their own.
        main = [lib for lib in one.libraries if lib.build and not lib.name.endswith(_PAIR)]
        found = {lib.build for lib in main if lib.name.startswith("libQnn")}
        said = "\n".join(f"{lib.build}  {lib.path}" for lib in main)
        if len(found) > 1:
            yield Check(
                "builds",
                "runtime",
                BAD,
                f"{one.label} mixes {', '.join(sorted(found))}",
                {"runtime.builds": "mixed"},
                f"ls -lR {one.root}",
                said,
            )
        elif found:
            yield Check(
                "builds",
                "runtime",
                OK,
                f"{one.label}: {next(iter(found))}",
                {"runtime.builds": "one"},
            )


def needs(seen: Seen) -> Iterator[Check]:
    """The loader finds every library that libQnnHtp needs."""
    missing = [row for row in seen.pairs("lacking") if len(row) == 2]
    # Behind FastRPC the loader is asked for libcdsprpc by the stub; that is a check of its own.
    for path, name in missing[:_SHOWN]:
        yield Check(
            "needs",
            "runtime",
            BAD,
            f"{name.strip()} is missing, which {path.rpartition('/')[2]} needs",
            {"runtime.needs": "missing"},
            f"ldd {path}",
            f"{name.strip()} => not found",
        )
    if not missing:
        yield Check("needs", "runtime", OK, "nothing is missing", {"runtime.needs": "ok"})


def elsewhere(seen: Seen) -> Iterator[Check]:
    """Other builds of QNN on the system, which a search path may find first."""
    mine = {one.build for one in subjects(seen) if one.build and not one.emulator}
    foreign = [seen.elves[p] for p in seen.lines.get("system", []) if p in seen.elves]
    odd = [lib for lib in foreign if lib.build and mine and lib.build not in mine]
    if not odd:
        yield Check(
            "elsewhere",
            "runtime",
            OK,
            "no other build of QNN on the system",
            {"runtime.system": "none", "runtime.vendor": "none"},
        )
        return
    vendor = [lib for lib in odd if lib.path.startswith(("/vendor", "/odm"))]
    # Releases of fleet name their own folders only; a set-up by hand may not.
    by_hand = any(one.release is None for one in subjects(seen))
    fact = {"runtime.vendor": "older"} if vendor else {"runtime.system": "other-build"}
    said = "\n".join(f"{lib.build}  {lib.path}" for lib in odd[:_SHOWN])
    yield Check(
        "elsewhere",
        "runtime",
        WARN,
        f"{odd[0].path} is of {odd[0].build}",
        fact if by_hand else {},
        "find / -name 'libQnnHtpV*.so' 2>/dev/null",
        said,
    )
