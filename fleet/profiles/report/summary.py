"""What a report tells, as data: one row a board, runtime and model of each group."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from fleet.model.record import Record
from fleet.model.text import harmless
from fleet.profiles.compare.groups import Group, build, by_run, chip, short_build
from fleet.profiles.compare.metrics import Metric, metric, present, units, value
from fleet.profiles.stats.difference import difference
from fleet.profiles.stats.interval import Interval

METRICS = 6  # that are drawn and have a column
LONG = 80  # characters of a name


@dataclass(frozen=True)
class Cell:
    """One metric of a row: its middle and the interval of that, as a comparison has them.

    The middle is the median of runs or repeats; where they drift, their level. The interval is
    None where so few have none. `count`: how many records have a value.
    """

    middle: float
    spread: Interval | None
    count: int


@dataclass(frozen=True)
class Row:
    """One board with one runtime and one release of a model, in one group (its place, from 0)."""

    group: int
    board: str
    chip: str
    runtime: str
    model: str
    release: str
    records: tuple[Record, ...]
    cells: dict[str, Cell]

    @cached_property
    def counted(self) -> tuple[Record, ...]:
        """The runs that count, oldest first."""
        return tuple(one for one in self.records if one.counts)

    @cached_property
    def emulated(self) -> str:
        """yes, no, mixed or unknown."""
        said = {one.emulated for one in self.records}
        return _ANSWERS[said.pop()] if len(said) == 1 else "mixed"

    @cached_property
    def problems(self) -> dict[str, int]:
        """Why runs do not count, with how many each."""
        return _words([one.problems for one in self.records])

    @cached_property
    def marks(self) -> dict[str, int]:
        """Remarks on runs that count, with how many each."""
        return _words([one.marks for one in self.counted])


@dataclass(frozen=True)
class Report:
    """Groups, what was measured of them, rows. `left_out`: metrics that are not shown, and why."""

    groups: tuple[Group, ...]
    metrics: tuple[Metric, ...]
    rows: tuple[Row, ...]
    left_out: dict[str, str]

    @cached_property
    def records(self) -> tuple[Record, ...]:
        """All runs of all groups, warm-ups left out."""
        return tuple(one for group in self.groups for one in group.records)

    @cached_property
    def boards(self) -> int:
        """How many boards; one that is in two groups is one."""
        return len({one.identity or f"host {one.host}" for one in self.records})

    @cached_property
    def emulated(self) -> str:
        """yes, no, mixed or unknown, over all runs."""
        said = {row.emulated for row in self.rows}
        return said.pop() if len(said) == 1 else "mixed"


_ANSWERS = {True: "yes", False: "no", None: "unknown"}


def clean(text: str) -> str:
    """Text of a device: one line without controls, cut where it is too long."""
    found = " ".join(harmless(text).split())
    return found if len(found) <= LONG else f"{found[: LONG - 1]}…"


def _words(found: Sequence[Sequence[str]]) -> dict[str, int]:
    words = Counter(clean(text.partition(":")[0]) for texts in found for text in texts)
    return dict(sorted(words.items()))


def gather(groups: Sequence[Group]) -> Report:
    """The report of groups, each with at least one record."""
    records = [one for group in groups for one in group.records]
    wanted, left_out = _metrics(records)
    names = _names(records)
    rows = [row for place, one in enumerate(groups) for row in _rows(place, one, wanted, names)]
    return Report(tuple(groups), tuple(wanted), tuple(rows), left_out)


def _metrics(records: Sequence[Record]) -> tuple[list[Metric], dict[str, str]]:
    found, left_out = list[Metric](), dict[str, str]()
    counted = [one for one in records if one.counts]
    for name in present(counted):
        if len(units(counted, name)) > 1:
            left_out[name] = "runs give it in several units"
        elif len(found) == METRICS:
            left_out[name] = f"a report shows {METRICS} metrics"
        elif any(math.isfinite(value(one, name)) for one in counted):
            one = metric(name, counted)
            found.append(Metric(name, clean(one.unit), one.better, clean(one.shown)))
    return found, left_out


def _names(records: Sequence[Record]) -> dict[str, str]:
    """Identity → what the board is called; two boards of one name bear a piece of the identity."""
    hosts: dict[str, set[str]] = {}
    latest: dict[str, str] = {}
    for one in sorted(records, key=lambda r: r.started):
        latest[_key(one)] = clean(one.host) or "unknown device"
    for key, host in latest.items():
        hosts.setdefault(host, set()).add(key)
    return {
        key: host if len(hosts[host]) == 1 else f"{host} ({clean(key)[-6:]})"
        for key, host in latest.items()
    }


def _key(one: Record) -> str:
    return one.identity or f"host {one.host}"


def _rows(place: int, group: Group, metrics: Sequence[Metric], names: dict[str, str]) -> list[Row]:
    found: dict[tuple[str, ...], list[Record]] = {}
    for one in group.records:
        key = (names[_key(one)], clean(one.name), build(one), one.release)
        found.setdefault(key, []).append(one)
    rows = []
    for (board, model, runtime, release), mine in sorted(found.items()):
        cells = {one.name: cell for one in metrics if (cell := _cell(mine, one.name))}
        told = next((name for one in reversed(mine) if (name := chip(one))), "")
        rows.append(
            Row(place, board, clean(told), clean(short_build(runtime)), model,
                clean(release)[:12], tuple(mine), cells)
        )  # fmt: skip
    return rows


def _cell(records: Sequence[Record], name: str) -> Cell | None:
    values = [value(one, name) for one in records if one.counts]
    found = [one for one in values if math.isfinite(one)]
    alone = difference(by_run(records, name), [])
    if alone.mid_a is None:
        return None
    return Cell(alone.mid_a, alone.a, len(found))
