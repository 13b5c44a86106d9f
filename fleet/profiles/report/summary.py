"""The data of a report: a row for each board, runtime and model of each group."""

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

METRICS = 6  # with a chart and a column
LONG = 80  # characters of a name


@dataclass(frozen=True)
class ReportCell:
    """A metric of a row: its middle and the interval of the middle, as in a comparison.

    The middle is the median of runs or repeats; if they drift, it is their level. The interval is
    None if there are too few values. `count` is the number of records with a value.
    """

    middle: float
    spread: Interval | None
    count: int


@dataclass(frozen=True)
class ReportRow:
    """A board with a runtime and a release of a model, in one group.

    `group` is the index of the group, from 0.
    """

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
        """The word yes, no, mixed or unknown."""
        return _alike({_ANSWERS[record.emulated] for record in self.records})

    @cached_property
    def problems(self) -> dict[str, int]:
        """The reasons why runs do not count, with their numbers of runs."""
        return _words([record.problems for record in self.records])

    @cached_property
    def marks(self) -> dict[str, int]:
        """The remarks on runs that count, with their numbers of runs."""
        return _words([record.marks for record in self.counted])


@dataclass(frozen=True)
class Report:
    """The groups, their metrics and their rows.

    `left_out` has the metrics that are not shown, with the reasons. `comparisons` has each further
    group compared with the first group, as `profiles compare` does it.
    """

    groups: tuple[RecordGroup, ...]
    metrics: tuple[Metric, ...]
    rows: tuple[ReportRow, ...]
    left_out: dict[str, str]
    comparisons: tuple[Comparison, ...] = ()

    @cached_property
    def records(self) -> tuple[Record, ...]:
        """The runs of all groups, without warm-ups."""
        return tuple(record for group in self.groups for record in group.records)

    @cached_property
    def traced(self) -> tuple[Record, ...]:
        """The latest run of each board whose network was compared node by node."""
        latest = {record.identity or record.host: record for group in self.groups
                 for record in group.suites if record.suite and record.suite.nodes}  # fmt: skip
        return tuple(latest.values())

    @cached_property
    def boards(self) -> int:
        """The number of boards; a board that is in two groups counts once."""
        return len({record.identity or f"host {record.host}" for record in self.records})

    @cached_property
    def emulated(self) -> str:
        """The word yes, no, mixed or unknown, over all runs."""
        traced = {_ANSWERS[record.emulated] for record in self.traced}
        return _alike({row.emulated for row in self.rows} | traced)


_ANSWERS = {True: "yes", False: "no", None: "unknown"}


def _alike(answers: set[str]) -> str:
    return answers.pop() if len(answers) == 1 else "mixed"


def clean(text: str, most: int = LONG) -> str:
    """Return a text of a device as one line without control characters, shortened if too long."""
    line = " ".join(harmless(text).split())
    return line if len(line) <= most else f"{line[: most - 1]}…"


def _words(lists: Sequence[Sequence[str]]) -> dict[str, int]:
    words = Counter(clean(text.partition(":")[0]) for texts in lists for text in texts)
    return dict(sorted(words.items()))


def gather(groups: Sequence[RecordGroup]) -> Report:
    """Return the report of groups that have at least one record each."""
    records = [record for group in groups for record in group.records]
    wanted, left_out = _metrics(records)
    names = _names(records)
    rows = [row for place, group in enumerate(groups) for row in _rows(place, group, wanted, names)]
    metric_names = [measured.name for measured in wanted]
    first, *others = groups
    comparisons = [compare(first, other, metric_names) for other in others if metric_names]
    return Report(tuple(groups), tuple(wanted), tuple(rows), left_out, tuple(comparisons))


def _metrics(records: Sequence[Record]) -> tuple[list[Metric], dict[str, str]]:
    shown, left_out = list[Metric](), dict[str, str]()
    counted = [record for record in records if record.counts]
    for name in present(counted):
        if len(units(counted, name)) > 1:
            left_out[name] = "the runs use several units"
        elif len(shown) == METRICS:
            left_out[name] = f"a report shows at most {METRICS} metrics"
        elif any(math.isfinite(value(record, name)) for record in counted):
            measured = metric(name, counted)
            shown.append(Metric(name, clean(measured.unit), measured.better, clean(measured.shown)))
    return shown, left_out


def _names(records: Sequence[Record]) -> dict[str, str]:
    """Return the name of each board by identity.

    Boards with the same name also have the end of their identity.
    """
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
    records: dict[tuple[str, ...], list[Record]] = {}
    for record in group.records:
        key = (names[_key(record)], clean(record.name), build(record), record.release)
        records.setdefault(key, []).append(record)
    rows = []
    for (board, model, runtime, release), mine in sorted(records.items()):
        cells = {metric.name: cell for metric in metrics if (cell := _cell(mine, metric.name))}
        known_chip = next((name for record in reversed(mine) if (name := chip(record))), "")
        rows.append(
            ReportRow(place, board, clean(known_chip), clean(short_build(runtime)), model,
                clean(release)[:12], tuple(mine), cells)
        )  # fmt: skip
    return rows


def _cell(records: Sequence[Record], name: str) -> ReportCell | None:
    values = [value(record, name) for record in records if record.counts]
    finite = [number for number in values if math.isfinite(number)]
    alone = difference(by_run(records, name), [])
    if alone.mid_a is None:
        return None
    return ReportCell(alone.mid_a, alone.a, len(finite))
