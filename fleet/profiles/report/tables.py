"""The tables of the page, as texts; `page.html` draws them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

from fleet.model.record import Record
from fleet.model.suite import SuiteResult
from fleet.profiles.compare.conditions import system
from fleet.profiles.compare.groups import build
from fleet.profiles.compare.verdict import MetricRow, Verdict
from fleet.profiles.compare.writing import COLUMNS, HEADS, finding, narrow
from fleet.profiles.report import summary
from fleet.profiles.report.drawing import drawn
from fleet.profiles.report.summary import Report, ReportRow, clean

SHOWN = 8  # of a list of words
NODES = 25
MIDDLE, HALF = 74, 70  # px: the middle of a drawn interval, and the distance from there to an end


class Table(NamedTuple):
    """A table of texts and of Markup; the first column names the row."""

    caption: str
    heads: Sequence[str]
    rows: Sequence[Sequence[str]]


def boards(report: Report) -> dict[str, Any]:
    """Return a row for each board. Texts that all rows share are in `shared`, above the rows."""
    several, alike = len(report.groups) > 1, _alike(report)
    before, after = ([name for name in names if name not in alike] for names in (_BEFORE, _AFTER))
    metrics = [metric.shown for metric in report.metrics]
    rows = []
    for row in report.rows:
        texts = _words(row)
        rows.append(
            (row, [texts[name] for name in before], [(name, texts[name]) for name in after])
        )
    left = [f"{clean(name)} ({why})" for name, why in sorted(report.left_out.items())[:SHOWN]]
    return {
        "several": several,
        "heads": [*["group"] * several, "board", *before, "counted", *metrics, *after],
        "numeric": {"counted", *metrics},
        "rows": rows,
        "shared": "; ".join(f"{name} {text}" for name, text in alike.items() if text),
        "left": f"Not in the report: {'; '.join(left)}." if left else "",
    }


_BEFORE, _AFTER = ("model", "QAIRT"), ("emulated", "problems and remarks", "chip", "release")


def _words(row: ReportRow) -> dict[str, str]:
    """Return the texts of a row, by the heading of their column."""
    remarks = [f"{word} {n}" for word, n in {**row.problems, **row.marks}.items()]
    return {
        "model": row.model or "unknown",
        "QAIRT": row.runtime or "unknown",
        "emulated": row.emulated,
        "problems and remarks": ", ".join(remarks),
        "chip": row.chip or "unknown",
        "release": row.release or "unknown",
    }


def _alike(report: Report) -> dict[str, str]:
    """Return the columns that have the same text in each row, with that text; empty ones too."""
    rows = [_words(row) for row in report.rows]
    columns = {name: {row[name] for row in rows} for name in (*_BEFORE, *_AFTER)}
    return {
        name: next(iter(texts))
        for name, texts in columns.items()
        if texts == {""} or (len(rows) > 1 and len(texts) == 1)
    }


def nodes(result: SuiteResult, host: str) -> Table:
    """Return the nodes around the first wrong node, or the nodes that differ most on their own."""
    heads = ("node", "#", "operator", "shape", "encoding", "before, dB", "after, dB", "alone, dB",
             "fault")  # fmt: skip
    rows = []
    for place in result.telling(NODES):
        row = result.nodes[place]
        decibels = (row.before_db, row.after_db, row.own_db)
        rows.append((
            clean(row.node), str(place + 1), clean(row.kind), " x ".join(map(str, row.shape)),
            clean(row.encoding),
            *("unknown" if number is None else f"{number:.1f}" for number in decibels),
            clean(row.fault),
        ))  # fmt: skip
    return Table(f"{len(rows)} of {len(result.nodes)} nodes of {host}", heads, rows)


def verdicts(report: Report) -> dict[str, Any] | None:
    """Return the rows of `profiles compare`, for each further group against the first.

    Intervals are drawn on one scale, and its ends are named. If no row is comparable there is no
    table; `differs` has the conditions that differ. Returns None without a second group.
    """
    rows = [made for comparison in report.comparisons for made in comparison.rows]
    if not rows:
        return None
    caption = f"Against {clean(report.groups[0].label)}"
    differs = dict.fromkeys(
        f"{HEADS[item.weight]}: {clean(finding(item))}"
        for comparison in report.comparisons
        for item in comparison.findings
    )
    judged = [made.difference for made in rows if made.verdict is not Verdict.INCOMPARABLE]
    if not judged:
        return {"caption": caption, "table": None, "notes": (), "differs": differs}
    ends = [end for change in judged for end in (change.low, change.high)]
    reach = max((abs(end) for end in ends if end is not None), default=0.0) or 0.01
    cells, notes = [], list[str]()
    for comparison in report.comparisons:
        narrowed, below = narrow(comparison)
        notes += map(clean, below)
        for made, texts in zip(comparison.rows, narrowed, strict=True):
            row = [clean(text) for text in texts]
            label = clean(comparison.b.label)
            cells.append((row[0], label, *row[1:6], _drawn(made, reach), *row[6:]))
    scale = f"-{reach:.1%} to +{reach:.1%}"
    heads = (COLUMNS[0], "group", *COLUMNS[1:6], scale, *COLUMNS[6:])
    # A column with the same group or answer in all rows would take the room of the figures.
    kept = [
        n
        for n, head in enumerate(heads)
        if head not in {"group", "emulated"} or len({row[n] for row in cells}) > 1
    ]
    table = Table(caption, [heads[n] for n in kept], [[row[n] for n in kept] for row in cells])
    return {"caption": caption, "table": table, "notes": dict.fromkeys(notes), "differs": differs}


def _drawn(row: MetricRow, reach: float) -> str:
    """Return the change and its interval about 0, as a picture; `-` without an interval."""
    change = row.difference
    shares = (change.low, change.mid, change.high)
    if row.verdict is Verdict.INCOMPARABLE or None in shares:
        return "-"
    return drawn("interval", *(
        f"{round(MIDDLE + HALF * max(-1.0, min(1.0, share / reach)), 1):g}"
        for share in shares if share is not None
    ))  # fmt: skip


def measured_with(report: Report) -> str:
    """Return the chip, the prompt and the power state of all runs, in one line."""
    rows = [row for row in report.rows if row.counted]
    around = [_conditions(row.records) for row in rows]
    prompts = {record.prompt_sha256[:12] for row in rows for record in row.counted}
    parts = {
        "chip": _list(row.chip for row in rows),
        "prompt": _list(prompts),
        "start °C": _list(conditions[0] for conditions in around),
        "governor": _list(conditions[2] for conditions in around),
        "power": _list(conditions[3] for conditions in around),
    }
    return "; ".join(f"{what} {text}" for what, text in parts.items())


def outside(report: Report) -> Table:
    """Return the runs that do not count, with the reasons."""
    rows = [
        (row.board, row.runtime or "unknown", why, str(n))
        for row, why, n in summary.outside(report)
    ]
    return Table("Runs that do not count", ("board", "QAIRT", "why", "runs"), rows)


def around(report: Report) -> Table:
    """Return the conditions of the runs of each board."""
    rows = [(row.board, *_conditions(row.records)) for row in report.rows]
    heads = ("board", "start °C", "most °C", "governor", "power", "load", "CPU use of sampling")
    return Table("Conditions", heads, rows)


def _conditions(records: Sequence[Record]) -> tuple[str, ...]:
    measured = [record.conditions for record in records]
    first = [conditions.before for conditions in measured if conditions.before]
    starts = [heat for sample in first if (heat := sample.hottest) is not None]
    samples = [sample for conditions in measured for sample in conditions.samples]
    most = [heat for sample in samples if (heat := sample.hottest) is not None]
    loads = [sample.load for sample in first if sample.load is not None]
    costs = [conditions.cost for conditions in measured if conditions.cost is not None]
    governors = {text for conditions in measured for text in conditions.governors.values()}
    power = {f"{name} {text}" for conditions in measured for name, text in conditions.power.items()}
    return (
        _span(starts), f"{max(most):.1f}" if most else "unknown", _list(governors), _list(power),
        _span(loads, 2), f"{max(costs):.2%}" if costs else "unknown",
    )  # fmt: skip


def _span(values: Sequence[float], digits: int = 1) -> str:
    if not values:
        return "unknown"
    low, high = f"{min(values):.{digits}f}", f"{max(values):.{digits}f}"
    return low if low == high else f"{low} to {high}"


def _list(texts: Iterable[str]) -> str:
    """Return the words as a list, or `unknown`."""
    some = sorted({clean(text) for text in texts if text})
    text = ", ".join(some[:SHOWN])
    return (text + f" and {len(some) - SHOWN} more" * (len(some) > SHOWN)) or "unknown"


def provenance(report: Report) -> Table:
    """Return the origin of the numbers."""
    columns: dict[str, Callable[[Record], str]] = {
        "identity": lambda record: record.identity,
        "build id": build,
        "system": lambda record: system(record) or "",
        "runner": lambda record: record.runner,
        "prompt": lambda record: record.prompt_sha256[:12],
        "runs": lambda record: record.run_id,
        "fleet": lambda record: record.fleet,
    }
    rows = [
        (row.board, *(_list(map(read, row.records)) for read in columns.values()),
         _list(" ".join(record.argv) for record in row.records[:1]))
        for row in report.rows
    ]  # fmt: skip
    return Table("Provenance", ("board", *columns, "command of the first run"), rows)
