"""Groups of records by board, run and repeat, in their order."""

from __future__ import annotations

import math
import re
import statistics
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from operator import attrgetter
from typing import ClassVar

from fleet.model.metrics import FIELDS
from fleet.model.record import Record
from fleet.profiles.compare.metrics import value

_OF_A_SIDE = re.compile(r"ab-.*-[AB]")


@dataclass(frozen=True)
class RecordGroup:
    """The records of one selection, without warm-ups.

    `label` is the text that the user wrote. `suites` are the records of answers to a suite, which
    have no times.
    """

    label: str
    records: tuple[Record, ...]
    suites: tuple[Record, ...] = ()
    PLAIN: ClassVar[str] = "selection=label runs **counts dropped"

    @property
    def counts(self) -> dict[str, object]:
        """The numbers of boards, records and counting records, and the set of `emulated` values."""
        return {
            "boards": len(self.boards),
            "records": len(self.records),
            "counted": len(self.counted),
            "emulated": {record.emulated for record in self.records},
        }

    @cached_property
    def counted(self) -> tuple[Record, ...]:
        """The records that count."""
        return tuple(record for record in self.records if record.counts)

    @cached_property
    def dropped(self) -> dict[str, int]:
        """The reasons why records do not count (the word before the colon), with their counts."""
        bad = [record.problems[0] for record in self.records if record.problems]
        reasons = Counter(problem.partition(":")[0] for problem in bad)
        return dict(sorted(reasons.items()))

    @cached_property
    def boards(self) -> dict[str, list[Record]]:
        """The records by board identity, ordered by the names of the boards."""
        boards: dict[str, list[Record]] = {}
        for record in self.records:
            boards.setdefault(record.identity or f"host {record.host}", []).append(record)
        return dict(sorted(boards.items(), key=lambda item: item[1][0].host))

    @cached_property
    def runs(self) -> int:
        """The number of runs in the group."""
        return len({record.run_id for record in self.counted})


def group(label: str, records: Iterable[Record]) -> RecordGroup:
    """Return the records as a group: without warm-ups, oldest first."""
    kept = [record for record in records if not record.warmup]
    kept.sort(key=attrgetter("started", "run_id", "repeat"))
    timed = tuple(record for record in kept if record.suite is None)
    return RecordGroup(label, timed, tuple(record for record in kept if record.suite))


def sides_of(records: Iterable[Record]) -> dict[str, list[Record]]:
    """Group records by the side of `fleet ab` that measured them, as its tag; "" for the others."""
    sides: dict[str, list[Record]] = {}
    for record in records:
        side = next((tag for tag in record.tags if _OF_A_SIDE.fullmatch(tag)), "")
        sides.setdefault(side, []).append(record)
    return dict(sorted(sides.items()))


def apart(whole: RecordGroup) -> list[RecordGroup]:
    """Split a group into the sides of `fleet ab` in it: A and B are never pooled."""
    sides = sides_of(whole.records)
    if len(sides) < 2:
        return [whole]
    return [group(f"tag:{side}" if side else whole.label, mine) for side, mine in sides.items()]


def runs_of(records: Iterable[Record], *, by_boot: bool = False) -> list[list[Record | None]]:
    """Return the records by run: a list for each run, an item for each repeat.

    An item is None if no record of that repeat counts. A resumed run may have a repeat twice; the
    later record that counts is used. With `by_boot` all runs of a boot share one list.
    """
    runs: dict[str, dict[int, Record | None]] = {}
    boots: dict[str, list[Record | None]] = {}
    places: dict[str, str] = {}
    for record in records:
        mine = runs.setdefault(record.run_id, {})
        places.setdefault(record.run_id, record.conditions.boot_id if by_boot else record.run_id)
        if record.counts:
            mine[record.repeat] = record
        else:
            mine.setdefault(record.repeat, None)
    for run_id, repeats in runs.items():
        boots.setdefault(places[run_id], []).extend(_row(repeats))
    return list(boots.values())


def values_of(runs: Iterable[Sequence[Record | None]], name: str) -> list[list[float]]:
    """Return the values of one metric in the layout of `runs_of`, nan if there is no value."""
    if name in FIELDS:
        read, nan = attrgetter(name), math.nan
        rows = [[None if r is None else read(r.metrics) for r in run] for run in runs]
        return [[nan if number is None else number for number in run] for run in rows]
    return [[math.nan if record is None else value(record, name) for record in run] for run in runs]


def by_run(records: Sequence[Record], name: str) -> list[list[float]]:
    """Return the values of one metric: a list for each run, a value for each repeat.

    The value of a repeat that does not count is nan.
    """
    return values_of(runs_of(records), name)


def by_board(runs: Iterable[Sequence[Record | None]], name: str) -> list[list[float]]:
    """Return the median of each board, in the form of one run with one repeat."""
    boards: dict[str, list[float]] = {}
    for run in runs:
        for record in run:
            if record is not None and math.isfinite(number := value(record, name)):
                boards.setdefault(record.identity or record.host, []).append(number)
    return [[statistics.median(number)] for number in boards.values()]


def _row(repeats: dict[int, Record | None]) -> list[Record | None]:
    """Return the repeats as a list indexed by number; a missing number is None.

    Numbers far beyond the number of repeats only give the order.
    """
    last = max(repeats)
    if last >= 2 * len(repeats) + 8:
        return [repeats[n] for n in sorted(repeats)]
    return [repeats.get(n) for n in range(last + 1)]


def chip(record: Record) -> str:
    """Return the name of the chip, "" if it is unknown."""
    soc = record.facts.get("soc")
    return str(soc.get("chip") or "") if isinstance(soc, dict) else ""


def build(record: Record) -> str:
    """Return the build id of the runtime, "" if it is unknown."""
    return str(record.origin.get("build_id") or "")


def short_build(text: str) -> str:
    """Return text such as `2.51.0.260929`, which is how the folders of an SDK are named."""
    version, _, stamp = text.rpartition(".")
    return f"{version}.{stamp[:6]}" if version else stamp
