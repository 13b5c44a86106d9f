"""What a report tells, as data: one row a board, runtime and model of each group."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from fleet.model.metrics import Metric
from fleet.model.record import Record
from fleet.model.text import harmless
from fleet.profiles.compare.comparing import Comparison, compare
from fleet.profiles.compare.groups import RecordGroup, build, by_run, chip, short_build
from fleet.profiles.compare.metrics import metric, present, units, value
from fleet.profiles.stats.difference import difference
from fleet.profiles.stats.interval import Interval

METRICS = 6  # that are drawn and have a column
LONG = 80  # characters of a name


@dataclass(frozen=True)
class ReportCell:
    """One metric of a row: its middle and the interval of that, as a comparison has them.

    The middle is the median of runs or repeats; where they drift, their level. The interval is
    None where so few have none. `count`: how many records have a value.
    """

    middle: float
    spread: Interval | None
    count: int


@dataclass(frozen=True)
class ReportRow:
    """One board with one runtime and one release of a model, in one group (its place, from 0)."""

    group: int
    board: str
    chip: str
    runtime: str
    model: str
    release: str
    records: tuple[Record, ...]
    cells: dict[str, ReportCell]

    @cached_property
    def counted(self) -> tuple[Record, ...]:
        """The runs that count, oldest first."""
        return tuple(record for record in self.records if record.counts)

    @cached_property
    def emulated(self) -> str:
        """yes, no, mixed or unknown."""
        return _alike({_ANSWERS[record.emulated] for record in self.records})

    @cached_property
    def problems(self) -> dict[str, int]:
        """Why runs do not count, with how many each."""
        return _words([record.problems for record in self.records])

    @cached_property
    def marks(self) -> dict[str, int]:
        """Remarks on runs that count, with how many each."""
        return _words([record.marks for record in self.counted])


@dataclass(frozen=True)
class Report:
    """Groups, what was measured of them, rows. `left_out`: metrics that are not shown, and why.

    `comparisons`: each further group against the first, by the engine of `profiles compare`.
    """

    groups: tuple[RecordGroup, ...]
    metrics: tuple[Metric, ...]
    rows: tuple[ReportRow, ...]
    left_out: dict[str, str]
    comparisons: tuple[Comparison, ...] = ()

    @cached_property
    def records(self) -> tuple[Record, ...]:
        """All runs of all groups, warm-ups left out."""
        return tuple(record for group in self.groups for record in group.records)

    @cached_property
    def traced(self) -> tuple[Record, ...]:
        """The latest runs of each board whose network was compared node by node."""
        found = {record.identity or record.host: record for group in self.groups
                 for record in group.suites if record.suite and record.suite.nodes}  # fmt: skip
        return tuple(found.values())

    @cached_property
    def boards(self) -> int:
        """How many boards; one that is in two groups is one."""
        return len({record.identity or f"host {record.host}" for record in self.records})

    @cached_property
    def emulated(self) -> str:
        """yes, no, mixed or unknown, over all runs."""
        traced = {_ANSWERS[record.emulated] for record in self.traced}
        return _alike({row.emulated for row in self.rows} | traced)


_ANSWERS = {True: "yes", False: "no", None: "unknown"}


def _alike(answers: set[str]) -> str:
    return answers.pop() if len(answers) == 1 else "mixed"


def clean(text: str, most: int = LONG) -> str:
    """Text of a device: one line without controls, cut where it is too long."""
    found = " ".join(harmless(text).split())
    return found if len(found) <= most else f"{found[: most - 1]}…"


def _words(found: Sequence[Sequence[str]]) -> dict[str, int]:
    words = Counter(clean(text.partition(":")[0]) for texts in found for text in texts)
    return dict(sorted(words.items()))


def gather(groups: Sequence[RecordGroup]) -> Report:
    """The report of groups, each with at least one record."""
    records = [record for group in groups for record in group.records]
    wanted, left_out = _metrics(records)
    names = _names(records)
    rows = [row for place, group in enumerate(groups) for row in _rows(place, group, wanted, names)]
    asked = [measured.name for measured in wanted]
    first, *others = groups
    comparisons = [compare(first, other, asked) for other in others if asked]
    return Report(tuple(groups), tuple(wanted), tuple(rows), left_out, tuple(comparisons))


def _metrics(records: Sequence[Record]) -> tuple[list[Metric], dict[str, str]]:
    found, left_out = list[Metric](), dict[str, str]()
    counted = [record for record in records if record.counts]
    for name in present(counted):
        if len(units(counted, name)) > 1:
            left_out[name] = "the runs use several units"
        elif len(found) == METRICS:
            left_out[name] = f"a report shows at most {METRICS} metrics"
        elif any(math.isfinite(value(record, name)) for record in counted):
            measured = metric(name, counted)
            found.append(Metric(name, clean(measured.unit), measured.better, clean(measured.shown)))
    return found, left_out


def _names(records: Sequence[Record]) -> dict[str, str]:
    """Identity → what the board is called; two boards of one name bear a piece of the identity."""
    hosts: dict[str, set[str]] = {}
    latest: dict[str, str] = {}
    for record in sorted(records, key=lambda r: r.started):
        latest[_key(record)] = clean(record.host) or "unknown device"
    for key, host in latest.items():
        hosts.setdefault(host, set()).add(key)
    return {
        key: host if len(hosts[host]) == 1 else f"{host} ({clean(key)[-6:]})"
        for key, host in latest.items()
    }


def _key(record: Record) -> str:
    return record.identity or f"host {record.host}"


def _rows(
    place: int, group: RecordGroup, metrics: Sequence[Metric], names: dict[str, str]
) -> list[ReportRow]:
    found: dict[tuple[str, ...], list[Record]] = {}
    for record in group.records:
        key = (names[_key(record)], clean(record.name), build(record), record.release)
        found.setdefault(key, []).append(record)
    rows = []
    for (board, model, runtime, release), mine in sorted(found.items()):
        cells = {metric.name: cell for metric in metrics if (cell := _cell(mine, metric.name))}
        known_chip = next((name for record in reversed(mine) if (name := chip(record))), "")
        rows.append(
            ReportRow(place, board, clean(known_chip), clean(short_build(runtime)), model,
                clean(release)[:12], tuple(mine), cells)
        )  # fmt: skip
    return rows


def _cell(records: Sequence[Record], name: str) -> ReportCell | None:
    values = [value(record, name) for record in records if record.counts]
    found = [number for number in values if math.isfinite(number)]
    alone = difference(by_run(records, name), [])
    if alone.mid_a is None:
        return None
    return ReportCell(alone.mid_a, alone.a, len(found))
