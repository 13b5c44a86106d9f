"""Checks of stub and skel: the CPU's and the DSP's half of the HTP backend."""

from __future__ import annotations

from collections.abc import Iterator

from fleet.doctor.checks.making import Maker
from fleet.doctor.seen import Elf, Seen
from fleet.doctor.subject import BACKEND, Subject, subjects
from fleet.model.diagnosis import Check

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
