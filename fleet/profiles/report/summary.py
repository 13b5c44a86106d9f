"""The data of a report, a row for each board, runtime and model of each group, and its summary in
words.
"""

from __future__ import annotations

import math
import statistics
from collections import Counter
from collections.abc import Iterable, Sequence
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


WORDS = 400  # characters of a sentence about nodes


@dataclass(frozen=True)
class Figure:
    """A number of the headline: a metric of one group, over its boards."""

    group: int
    metric: Metric
    middle: float
    low: float
    high: float
    rows: int


def many(count: int, word: str) -> str:
    """Return text such as `1 board` or `3 boards`."""
    return f"{count:,} {word}{'' if count == 1 else 's'}"


def number(value: float) -> str:
    """Return the number with three significant digits, or all digits before the point.

    Examples: 10.0, 183, 4,060.
    """
    size = abs(value)
    digits = 0 if size >= 100 else 1 if size >= 10 else 2 if size >= 1 else 3
    return f"{value:,.{digits}f}"


def figures(report: Report) -> dict[str, list[Figure]]:
    """Return the first four metrics by title, for each group: the median and ends of its rows."""
    by_title: dict[str, list[Figure]] = {}
    for measured in report.metrics[:4]:
        for place in range(len(report.groups)):
            mids = [cell.middle for cell in _cells(report, place, measured)]
            if mids:
                middle = statistics.median(mids)
                figure = Figure(place, measured, middle, min(mids), max(mids), len(mids))
                by_title.setdefault(measured.shown, []).append(figure)
    return by_title


def _cells(report: Report, place: int, metric: Metric) -> list[ReportCell]:
    rows = [row for row in report.rows if row.group == place]
    return [row.cells[metric.name] for row in rows if metric.name in row.cells]


def headline(report: Report) -> list[str]:
    """Return the sentences of the summary, the most important first."""
    whole, counted = len(report.records), sum(record.counts for record in report.records)
    traced = [f"{clean(record.host)}: {clean(record.suite.begins, WORDS)}."
              for record in report.traced if record.suite]  # fmt: skip
    if not whole:
        return traced
    sentences = [
        *traced,
        *verdicts(report),
        f"{many(report.boards, 'board')}, {many(whole, 'run')}; "
        + ("all of them count." if counted == whole else f"{counted:,} of them count."),
    ]
    if counted < whole:
        words = _counts(row.problems for row in report.rows)
        sentences.append(f"{many(whole - counted, 'run')} excluded: {words}.")
    models = sorted({row.model or "unknown model" for row in report.rows})
    if len(models) > 1:
        sentences.append(
            f"The report contains several models ({_some(models)}); do not compare their numbers."
        )
    if report.metrics:
        widest = _widest(report, report.metrics[-1] if len(report.metrics) < 4
                         else report.metrics[3])  # fmt: skip
        if widest:
            sentences.append(widest)
    else:
        sentences.append("No valid run contains a measured value.")
    drifting = [row.board for row in report.rows if any(c.spread and c.spread.drift for c in
                row.cells.values())]  # fmt: skip
    if drifting:
        names = list(dict.fromkeys(drifting))
        sentences.append(
            f"The runs on {_some(names)} drift: their values rise or fall from run to run."
        )
    marks = _counts(row.marks for row in report.rows)
    if marks:
        sentences.append(f"Valid runs with a remark, included in the figures: {marks}.")
    return sentences


def banner(report: Report) -> str:
    """Return the notice of the page about emulated runs; "" if all runs are of hardware."""
    rows = [row for row in report.rows if row.emulated in {"yes", "mixed"}]
    if report.emulated == "yes":
        return (
            "All runs are emulated (lab boards or the HTP emulator), so the numbers are not "
            "those of an NPU."
        )
    if rows:
        return (
            f"{len(rows)} of {many(len(report.rows), 'row')} below contain emulated runs, "
            "whose numbers are not those of an NPU."
        )
    if report.emulated in {"unknown", "mixed"}:
        return "For some of these runs it is unknown whether they ran on hardware or were emulated."
    return ""


def verdicts(report: Report) -> list[str]:
    """Return a sentence for each further group compared with the first.

    The words are those of `profiles compare`.
    """
    sentences = []
    for comparison in report.comparisons:
        parts = [
            clean(summary.metric.shown)
            + " "
            + ", ".join(f"{boards} {word}" for word, boards in summary.moved.items())
            for summary in comparison.overall
            if summary.moved
        ]
        if parts:
            sides = f"{clean(comparison.b.label)} against {clean(comparison.a.label)}"
            sentences.append(f"{sides}, per board: {'; '.join(parts)}.")
    return sentences


def _counts(words: Iterable[dict[str, int]]) -> str:
    """Return text such as `failed 3, cut 1`, the most frequent first."""
    whole = Counter[str]()
    for counts in words:
        whole.update(counts)
    return ", ".join(f"{word} {count}" for word, count in whole.most_common())


def _widest(report: Report, metric: Metric) -> str:
    """Return a sentence about how far apart the boards are, in one metric."""
    latest = max(row.runtime for row in report.rows)
    rows = [r for r in report.rows if metric.name in r.cells and r.runtime == latest]
    several_models = len({row.model for row in rows}) > 1
    if len({row.board for row in rows}) < 2 or len(report.groups) > 1 or several_models:
        return ""
    low = min(rows, key=lambda row: row.cells[metric.name].middle)
    high = max(rows, key=lambda row: row.cells[metric.name].middle)
    ends = [end.cells[metric.name].middle for end in (low, high)]
    if ends[0] <= 0:
        return ""
    several = f" with {latest}" if len({row.runtime for row in report.rows}) > 1 else ""
    return (
        f"Boards differ{several}: {metric.shown} is between {number(ends[0])} ({low.board}) and "
        f"{number(ends[1])} ({high.board}), a difference of {ends[1] / ends[0] - 1:.0%}."
    )


def _some(names: Sequence[str], most: int = 4) -> str:
    if len(names) <= most:
        return ", ".join(names)
    return f"{', '.join(names[:most])} and {len(names) - most} more"


def outside(report: Report) -> list[tuple[ReportRow, str, int]]:
    """Return (row, complete reason, number of runs) of the runs that do not count."""
    reasons = Counter[tuple[int, str]]()
    for place, row in enumerate(report.rows):
        for record in row.records:
            if record.problems:
                reasons[place, clean("; ".join(record.problems))] += 1
    return [(report.rows[place], why, n) for (place, why), n in sorted(reasons.items())]
