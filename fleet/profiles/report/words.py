"""The summary in words, and the runs that do not count."""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from fleet.model.metrics import Metric
from fleet.profiles.report.summary import Report, ReportCell, ReportRow, clean

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
    for metric in report.metrics[:4]:
        for place in range(len(report.groups)):
            mids = [cell.middle for cell in _cells(report, place, metric)]
            if mids:
                middle = statistics.median(mids)
                figure = Figure(place, metric, middle, min(mids), max(mids), len(mids))
                by_title.setdefault(metric.shown, []).append(figure)
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
