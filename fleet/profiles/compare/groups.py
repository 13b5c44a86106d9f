"""Records as boards, runs and repeats, in their order."""

from __future__ import annotations

import math
import statistics
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from operator import attrgetter

from fleet.model.record import Record
from fleet.profiles.compare.metrics import KNOWN, value


@dataclass(frozen=True)
class Group:
    """What one selection found. `label` is what the user wrote; warm-ups are not in it."""

    label: str
    records: tuple[Record, ...]

    @cached_property
    def counted(self) -> tuple[Record, ...]:
        """The records that count."""
        return tuple(one for one in self.records if one.counts)

    @cached_property
    def dropped(self) -> dict[str, int]:
        """Why records do not count, with how many each: the word before the colon."""
        bad = [one.problems[0] for one in self.records if one.problems]
        found = Counter(problem.partition(":")[0] for problem in bad)
        return dict(sorted(found.items()))

    @cached_property
    def boards(self) -> dict[str, list[Record]]:
        """Identity → records, in the order of their names."""
        found: dict[str, list[Record]] = {}
        for one in self.records:
            found.setdefault(one.identity or f"host {one.host}", []).append(one)
        return dict(sorted(found.items(), key=lambda item: item[1][0].host))

    @cached_property
    def runs(self) -> int:
        """How many runs are in it."""
        return len({one.run_id for one in self.counted})


def group(label: str, records: Iterable[Record]) -> Group:
    """Records as a group: without warm-ups, oldest first."""
    found = [one for one in records if not one.warmup]
    return Group(label, tuple(sorted(found, key=attrgetter("started", "run_id", "repeat"))))


def runs_of(records: Iterable[Record]) -> list[list[Record | None]]:
    """Records that count: one list a run, one place a repeat, None where none counts.

    A run that was resumed may have a repeat twice; the later one that counts stands.
    """
    runs: dict[str, dict[int, Record | None]] = {}
    for one in records:
        mine = runs.setdefault(one.run_id, {})
        if one.counts:
            mine[one.repeat] = one
        else:
            mine.setdefault(one.repeat, None)
    return [_row(one) for one in runs.values()]


def values_of(runs: Iterable[Sequence[Record | None]], name: str) -> list[list[float]]:
    """The values of one metric in the places of `runs_of`, nan where there is none."""
    if name in KNOWN:
        read, nan = attrgetter(name), math.nan
        found = [[None if one is None else read(one.metrics) for one in run] for run in runs]
        return [[nan if one is None else one for one in run] for run in found]
    return [[math.nan if one is None else value(one, name) for one in run] for run in runs]


def by_run(records: Sequence[Record], name: str) -> list[list[float]]:
    """Values of one metric: one list a run, one value a repeat, nan where it does not count."""
    return values_of(runs_of(records), name)


def by_board(runs: Iterable[Sequence[Record | None]], name: str) -> list[list[float]]:
    """The median of each board, as if a board were one run of one repeat."""
    boards: dict[str, list[float]] = {}
    for run in runs:
        for one in run:
            if one is not None and math.isfinite(found := value(one, name)):
                boards.setdefault(one.identity or one.host, []).append(found)
    return [[statistics.median(found)] for found in boards.values()]


def _row(repeats: dict[int, Record | None]) -> list[Record | None]:
    """By number; numbers far beyond the count are taken as an order only."""
    last = max(repeats)
    if last >= 2 * len(repeats) + 8:
        return [repeats[n] for n in sorted(repeats)]
    return [repeats.get(n) for n in range(last + 1)]


def chip(record: Record) -> str:
    """Name of the chip, "" where it is not known."""
    soc = record.facts.get("soc")
    return str(soc.get("chip") or "") if isinstance(soc, dict) else ""


def build(record: Record) -> str:
    """Build id of the runtime, "" where it is not known."""
    return str(record.origin.get("build_id") or "")


def short_build(text: str) -> str:
    """`2.51.0.260929`, as the folders of an SDK are named."""
    version, _, stamp = text.rpartition(".")
    return f"{version}.{stamp[:6]}" if version else stamp
