"""How conditions are read out of a record: as words that can be held against each other."""

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
    """The first eight digits of a hash."""
    return text[:8]


def _digest(value: object) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()


def model_files(record: Record) -> str | None:
    """One hash for all files that are no program and no library."""
    mine = {name: h for name, h in record.files.items() if not _LIBRARY.search(name)}
    return _digest(mine) if mine else None


def library_files(record: Record) -> str | None:
    """One hash for programs and libraries."""
    mine = {name: h for name, h in record.files.items() if _LIBRARY.search(name)}
    return _digest(mine) if mine else None


def options(record: Record) -> str | None:
    """Arguments and environment without what differs from run to run: folders and ids."""
    if not record.argv:
        return None
    words = [f"{name}={value}" for name, value in sorted(record.env.items())]
    text = " ".join([*words, *record.argv])
    for name, word in ((record.run_id, "<run>"), (record.release, "<release>")):
        text = text.replace(name, word) if len(name) > 3 else text
    return _RELEASE.sub(r"/\1/<release>", _RUN_FOLDER.sub("/runs/<run>", text))


def op_packages(record: Record) -> str | None:
    """The op packages that the release brought, "none" where it says nothing of any."""
    found = record.origin.get("op_packages")
    return _digest(found)[:8] if found else "none"


def system(record: Record) -> str | None:
    """Operating system and kernel."""
    facts = record.facts
    words = [str(facts.get(name) or "") for name in ("os_id", "os_version", "kernel")]
    return " ".join(word for word in words if word) or None


Named = frozenset[tuple[str, object]]


def governors(record: Record) -> Named | None:
    """Clock and governor."""
    return frozenset(record.conditions.governors.items()) or None


def limits(record: Record) -> Named | None:
    """Clock and how fast it may go, Hz."""
    return frozenset(record.conditions.limits.items()) or None


def power(record: Record) -> Named | None:
    """Supply and what it says."""
    return frozenset(record.conditions.power.items()) or None


def named(found: Named) -> str:
    """`cpu:policy0 performance, ...`."""
    return ", ".join(f"{name} {value}" for name, value in sorted(found, key=str))


def megahertz(found: Named) -> str:
    """`cpu:policy0 2400 MHz, ...`."""
    return ", ".join(
        f"{name} {float(str(hz)) / 1e6:.0f} MHz" for name, hz in sorted(found, key=str)
    )


def throttled(record: Record) -> str | None:
    """Whether the record bears that mark; without any look at clocks nobody knows."""
    if record.marks and any(mark.partition(":")[0] == "throttled" for mark in record.marks):
        return "yes"
    looked = record.conditions
    return "no" if looked.before or looked.during or looked.after else None


# How many tokens the prompt was; another tokenizer is another question.
prompt_tokens = attrgetter("metrics.prompt_tokens")


def _first(records: Sequence[Record]) -> list[Sample]:
    """The samples before each run, where there are any."""
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
    """Conditions that differ by more than a threshold: medians of both sides."""
    found: list[_Found] = []
    for what, read, unit, limit, needed in (
        ("start temperature", _starts, " °C", lambda _: WARMER, True),
        ("load", _loads, "", lambda _: BUSIER, False),
        ("generated tokens", _tokens, "", lambda mid: LONGER * mid, False),
    ):
        sides = [read(side) for side in (a, b)]
        texts = [f"{statistics.median(side):.4g}{unit}" if side else "unknown" for side in sides]
        if not all(sides):
            if needed or any(sides):
                found.append(make(what, *texts, unknown=True))
            continue
        left, right = (statistics.median(values) for values in sides)
        if abs(right - left) > limit(left):
            found.append(make(what, *texts))
    return found
