"""Records as boards, runs and repeats, in their order."""

from __future__ import annotations

import math
import statistics
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property

from fleet.model.record import Record
from fleet.profiles.compare.metrics import value


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
        found = Counter(p.partition(":")[0] for one in self.records for p in one.problems[:1])
        return dict(sorted(found.items()))

    @cached_property
    def boards(self) -> dict[str, list[Record]]:
        """Identity → records, in the order of their names."""
        found: dict[str, list[Record]] = {}
        for one in sorted(self.records, key=lambda r: r.host):
            found.setdefault(one.identity or f"host {one.host}", []).append(one)
        return found

    @cached_property
    def runs(self) -> int:
        """How many runs are in it."""
        return len({one.run_id for one in self.counted})


def group(label: str, records: Iterable[Record]) -> Group:
    """Records as a group: without warm-ups, oldest first."""
    found = [one for one in records if not one.warmup]
    return Group(label, tuple(sorted(found, key=lambda r: (r.started, r.run_id, r.repeat))))


def by_run(records: Sequence[Record], name: str) -> list[list[float]]:
    """Values of one metric: one list a run, one value a repeat, nan where it does not count."""
    runs: dict[str, dict[int, float]] = {}
    for one in records:
        found = value(one, name)
        mine = runs.setdefault(one.run_id, {})
        # A run that was resumed has a repeat twice: the later one that counts stands.
        if one.repeat not in mine or math.isfinite(found):
            mine[one.repeat] = found
    return [_row(one) for one in runs.values()]


def by_board(boards: Iterable[Sequence[Record]], name: str) -> list[list[float]]:
    """The median of each board, as if a board were one run of one repeat."""
    found = []
    for records in boards:
        good = [one for one in (value(r, name) for r in records) if math.isfinite(one)]
        if good:
            found.append([statistics.median(good)])
    return found


def _row(repeats: dict[int, float]) -> list[float]:
    """By number; numbers far beyond the count are taken as an order only."""
    last = max(repeats)
    if last >= 2 * len(repeats) + 8:
        return [repeats[n] for n in sorted(repeats)]
    return [repeats.get(n, math.nan) for n in range(last + 1)]


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
