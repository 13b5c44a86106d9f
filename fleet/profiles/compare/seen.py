"""Readers of conditions from a record, as values that can be compared."""

from __future__ import annotations

import hashlib
import json
import re
import statistics
from collections.abc import Callable, Sequence
from operator import attrgetter
from typing import TypeVar

from fleet.model.conditions import Sample
from fleet.model.record import Record

WARMER = 5.0  # °C at the start; a passively cooled board throttles over less, docs/compare.md
BUSIER = 1.0  # load average
LONGER = 0.1  # share of generated tokens

_Found = TypeVar("_Found")
_RUN_FOLDER = re.compile(r"/runs/[^/\s]+")
_RELEASE = re.compile(r"/(releases|current)/[^/\s]+(/([0-9a-f]{8,64}|<release>)(?=/|\s|$))?")
_LIBRARY = re.compile(r"(^(lib|dsp|bin|run)/|\.so(\.[\d.]+)?$|\.cat$)")


def short(text: str) -> str:
    """Return the first eight digits of a hash."""
    return text[:8]


def _digest(value: object) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()


def model_files(record: Record) -> str | None:
    """Return one hash for all files that are neither programs nor libraries."""
    mine = {name: h for name, h in record.files.items() if not _LIBRARY.search(name)}
    return _digest(mine) if mine else None


def library_files(record: Record) -> str | None:
    """Return one hash for programs and libraries."""
    mine = {name: h for name, h in record.files.items() if _LIBRARY.search(name)}
    return _digest(mine) if mine else None


def options(record: Record) -> str | None:
    """Return arguments and environment without the folders and ids that differ in each run."""
    if not record.argv:
        return None
    words = [f"{name}={value}" for name, value in sorted(record.env.items())]
    text = " ".join([*words, *record.argv])
    for name, word in ((record.run_id, "<run>"), (record.release, "<release>")):
        text = text.replace(name, word) if len(name) > 3 else text
    return _RELEASE.sub(r"/\1/<release>", _RUN_FOLDER.sub("/runs/<run>", text))


def op_packages(record: Record) -> str | None:
    """Return a hash of the op packages of the release, "none" if the record names none."""
    packages = record.origin.get("op_packages")
    return _digest(packages)[:8] if packages else "none"


def system(record: Record) -> str | None:
    """Return operating system, version and kernel."""
    facts = record.facts
    words = [str(facts.get(name) or "") for name in ("os_id", "os_version", "kernel")]
    return " ".join(word for word in words if word) or None


Named = frozenset[tuple[str, object]]


def governors(record: Record) -> Named | None:
    """Return (clock, governor) pairs."""
    return frozenset(record.conditions.governors.items()) or None


def limits(record: Record) -> Named | None:
    """Return (clock, highest frequency in Hz) pairs."""
    return frozenset(record.conditions.limits.items()) or None


def power(record: Record) -> Named | None:
    """Return (supply, state) pairs."""
    return frozenset(record.conditions.power.items()) or None


def named(pairs: Named) -> str:
    """Return text such as `cpu:policy0 performance, ...`."""
    return ", ".join(f"{name} {value}" for name, value in sorted(pairs, key=str))


def megahertz(pairs: Named) -> str:
    """Return text such as `cpu:policy0 2400 MHz, ...`."""
    return ", ".join(
        f"{name} {float(str(hz)) / 1e6:.0f} MHz" for name, hz in sorted(pairs, key=str)
    )


def throttled(record: Record) -> str | None:
    """Return whether the record has the mark `throttled`; None if no sample of clocks was taken."""
    if record.marks and any(mark.partition(":")[0] == "throttled" for mark in record.marks):
        return "yes"
    conditions = record.conditions
    return "no" if conditions.before or conditions.during or conditions.after else None


# The number of tokens of the prompt; another tokenizer makes another prompt.
prompt_tokens = attrgetter("metrics.prompt_tokens")


def _first(records: Sequence[Record]) -> list[Sample]:
    """Return the samples that were taken before each run, as far as they exist."""
    return [record.conditions.before for record in records if record.conditions.before]


def _starts(records: Sequence[Record]) -> list[float]:
    return [max(sample.zones.values()) for sample in _first(records) if sample.zones]


def _loads(records: Sequence[Record]) -> list[float]:
    return [sample.load for sample in _first(records) if sample.load is not None]


def _tokens(records: Sequence[Record]) -> list[float]:
    return [n for n in map(attrgetter("metrics.generated_tokens"), records) if n is not None]


def by_number(
    a: Sequence[Record], b: Sequence[Record], make: Callable[..., _Found]
) -> list[_Found]:
    """Return findings of `make` for temperature, load and tokens whose medians differ."""
    findings: list[_Found] = []
    for what, read, unit, limit, needed in (
        ("start temperature", _starts, " °C", lambda _: WARMER, True),
        ("load", _loads, "", lambda _: BUSIER, False),
        ("generated tokens", _tokens, "", lambda mid: LONGER * mid, False),
    ):
        sides = [read(side) for side in (a, b)]
        texts = [f"{statistics.median(side):.4g}{unit}" if side else "unknown" for side in sides]
        if not all(sides):
            if needed or any(sides):
                findings.append(make(what, *texts, unknown=True))
            continue
        left, right = (statistics.median(values) for values in sides)
        if abs(right - left) > limit(left):
            findings.append(make(what, *texts))
    return findings
