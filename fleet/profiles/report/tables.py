"""The tables of the page."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from html import escape

from fleet.model.metrics import Metric
from fleet.model.record import Record
from fleet.model.suite import SuiteResult
from fleet.profiles.compare.groups import build
from fleet.profiles.compare.seen import system
from fleet.profiles.compare.verdict import MetricRow, Verdict
from fleet.profiles.compare.writing import COLUMNS, HEADS, finding, narrow
from fleet.profiles.report import words
from fleet.profiles.report.parts import mark
from fleet.profiles.report.summary import Report, ReportCell, ReportRow, clean

SHOWN = 8  # of a list of words
NODES = 25
WIDE, HALF = 148, 70  # px: of a drawn interval, and from its middle to an end


class Markup(str):
    """A cell that is HTML of ours already."""

    __slots__ = ()


def boards(report: Report) -> str:
    """One row a board, sortable. What all rows share stands once, above them."""
    several = len(report.groups) > 1
    alike = _alike(report)
    heads = [("group", "")] * several
    heads += [("board", ""), *((name, "") for name in _BEFORE if name not in alike)]
    heads += [("counted", "n"), *((metric.shown, "n") for metric in report.metrics)]
    heads += [(name, "") for name in _AFTER if name not in alike]
    head = "".join(
        f'<th scope="col" aria-sort="none"{_class(kind)}><button type="button">{escape(name)}'
        "</button></th>"
        for name, kind in heads
    )
    body = "".join(_row(row, report, alike) for row in report.rows)
    left = "".join(f"{escape(clean(name))} ({escape(why)}); " for name, why in
                   sorted(report.left_out.items())[:SHOWN])  # fmt: skip
    note = f'<p class="note">Not in the report: {left.removesuffix("; ")}.</p>' if left else ""
    shared = "; ".join(f"{name} {text}" for name, text in alike.items() if text)
    same = f" All rows: {escape(shared)}." if shared else ""
    return (
        '<h2 id="boards">Boards</h2><p class="quiet">Each cell shows the median (for runs '
        f"that drift: the level), and below it the 95 % interval.{same} Click a heading to "
        'sort.</p><div class="wide" role="region" aria-label="Boards" tabindex="0"><table '
        f'class="sortable"><caption>Boards</caption><thead><tr>{head}</tr></thead><tbody>{body}'
        f"</tbody></table></div>{note}"
    )


_BEFORE, _AFTER = ("model", "QAIRT"), ("emulated", "problems and remarks", "chip", "release")


def _words(row: ReportRow) -> dict[str, str]:
    """The texts of a row, by the heading of their column."""
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
    """Columns that would say the same in each row, with what they say; empty ones too."""
    rows = [_words(row) for row in report.rows]
    found = {name: {row[name] for row in rows} for name in (*_BEFORE, *_AFTER)}
    return {
        name: next(iter(texts))
        for name, texts in found.items()
        if texts == {""} or (len(rows) > 1 and len(texts) == 1)
    }


def _class(kind: str) -> str:
    return f' class="{kind}"' if kind else ""


def _row(row: ReportRow, report: Report, alike: Mapping[str, str]) -> str:
    whole, good = len(row.records), len(row.counted)
    said, cells = _words(row), []
    if len(report.groups) > 1:
        label = clean(report.groups[row.group].label)
        cells.append(f'<td data-v="{row.group}" class="g">{mark(row.group)}{escape(label)}</td>')
    name = escape(row.board)
    cells.append(f'<th scope="row" title="{name}">{name}</th>')
    cells += [f"<td>{escape(said[name])}</td>" for name in _BEFORE if name not in alike]
    cells.append(f'<td class="n" data-v="{good}">{good}/{whole}</td>')
    cells += [_cell(row.cells.get(metric.name), metric) for metric in report.metrics]
    for name in _AFTER:
        text = escape(said[name])
        if name == "emulated" and text == "yes":
            text = '<span class="badge">emulated</span>'
        if name not in alike:
            cells.append(f'<td data-v="{escape(said[name])}">{text}</td>')
    return f"<tr>{''.join(cells)}</tr>"


def _cell(cell: ReportCell | None, metric: Metric) -> str:
    if cell is None:
        return '<td class="n" data-v="">-</td>'
    spread = cell.spread
    if spread is None:
        under = "no interval"
    else:
        under = f"{words.number(spread.low)} to {words.number(spread.high)}"
        if spread.drift:
            under += f"<br>drifts {spread.drift:+.0%}"
    return (
        f'<td class="n" data-v="{cell.middle!r}" title="{escape(metric.shown)}, {cell.count} runs">'
        f'{words.number(cell.middle)}<span class="range">{under}</span></td>'
    )


def plain(heads: Sequence[str], rows: Iterable[Sequence[str]], caption: str) -> str:
    """A table of texts."""
    head = "".join(f'<th scope="col"><button type="button">{escape(title)}</button></th>'
                   for title in heads).replace("<th ", '<th aria-sort="none" ')  # fmt: skip
    body = "".join(
        f'<tr><th scope="row">{escape(first)}</th>'
        + "".join(f"<td>{text if isinstance(text, Markup) else escape(text)}</td>" for text in rest)
        + "</tr>"
        for first, *rest in rows
    )
    name = escape(caption)
    return (
        f'<div class="wide wrap" role="region" aria-label="{name}" tabindex="0">'
        f'<table class="sortable"><caption>{name}</caption><thead><tr>{head}</tr></thead>'
        f"<tbody>{body}</tbody></table></div>"
    )


def nodes(result: SuiteResult, host: str) -> str:
    """The nodes around the first wrong one, or those that differ most by themselves."""
    heads = ("node", "#", "operator", "shape", "encoding", "before, dB", "after, dB", "alone, dB",
             "fault")  # fmt: skip
    found = []
    for place in result.telling(NODES):
        row = result.nodes[place]
        decibels = (row.before_db, row.after_db, row.own_db)
        found.append((
            clean(row.node), str(place + 1), clean(row.kind), " x ".join(map(str, row.shape)),
            clean(row.encoding),
            *("unknown" if number is None else f"{number:.1f}" for number in decibels),
            clean(row.fault),
        ))  # fmt: skip
    return plain(heads, found, f"{len(found)} of {len(result.nodes)} nodes of {host}")


def verdicts(report: Report) -> str:
    """The rows of `profiles compare`, for each further group against the first, and what differs.

    Intervals are drawn on one scale, whose ends are named. Where no row is comparable there is no
    table, only why.
    """
    rows = [(made, comparison) for comparison in report.comparisons for made in comparison.rows]
    if not rows:
        return ""
    caption = f"Against {clean(report.groups[0].label)}"
    listed = _differs(report)
    if all(made.verdict is Verdict.INCOMPARABLE for made, _ in rows):
        return (
            f'<h2 id="verdicts">{escape(caption)}</h2><p>The groups are not comparable, so no '
            f"differences are shown. These conditions differ:</p>{listed}"
        )
    judged = [made.difference for made, _ in rows if made.verdict is not Verdict.INCOMPARABLE]
    ends = [end for change in judged for end in (change.low, change.high)]
    reach = max((abs(end) for end in ends if end is not None), default=0.0) or 0.01
    found, notes = [], list[str]()
    for comparison in report.comparisons:
        narrowed, below = narrow(comparison)
        notes += below
        for made, texts in zip(comparison.rows, narrowed, strict=True):
            row = [clean(text) for text in texts]
            label = clean(comparison.b.label)
            found.append((row[0], label, *row[1:6], _drawn(made, reach), *row[6:]))
    drawn = f"-{reach:.1%} to +{reach:.1%}"
    heads = (COLUMNS[0], "group", *COLUMNS[1:6], drawn, *COLUMNS[6:])
    # One group and one answer in all rows would take the room of the figures.
    dropped = {
        n
        for n, head in enumerate(heads)
        if head in {"group", "emulated"} and len({row[n] for row in found}) == 1
    }
    kept = [n for n in range(len(heads)) if n not in dropped]
    table = plain([heads[n] for n in kept], [[row[n] for n in kept] for row in found], caption)
    said = "".join(f'<p class="note">{escape(clean(text))}</p>' for text in dict.fromkeys(notes))
    return f'<h2 id="verdicts">{escape(caption)}</h2>{table}{said}{listed}'


def _differs(report: Report) -> str:
    """The conditions that differ between the first group and each other, as a list."""
    texts = [
        f"{HEADS[item.weight]}: {clean(finding(item))}"
        for comparison in report.comparisons
        for item in comparison.findings
    ]
    items = "".join(f"<li>{escape(text)}</li>" for text in dict.fromkeys(texts))
    return f'<ul class="quiet">{items}</ul>'


def _drawn(row: MetricRow, reach: float) -> Markup:
    """The change and its interval about 0."""
    change = row.difference
    if row.verdict is Verdict.INCOMPARABLE:
        return Markup("-")
    if change.mid is None or change.low is None or change.high is None:
        return Markup("-")
    low, mid, high = (
        round(WIDE / 2 + HALF * max(-1.0, min(1.0, share / reach)), 1)
        for share in (change.low, change.mid, change.high)
    )
    return Markup(
        f'<svg viewBox="0 0 {WIDE} 16" width="{WIDE}" height="16" aria-hidden="true" '
        f'stroke="currentColor"><path stroke-opacity=".35" d="M{WIDE / 2:g} 0V16"/>'
        f'<path stroke-width="2" d="M{low:g} 8H{high:g}"/>'
        f'<circle cx="{mid:g}" cy="8" r="3.5" fill="currentColor"/></svg>'
    )


def measured_with(report: Report) -> str:
    """Chip, prompt and power state of all runs, in one line."""
    found = [row for row in report.rows if row.counted]
    around = [_conditions(row.records) for row in found]
    prompts = {record.prompt_sha256[:12] for row in found for record in row.counted}
    parts = {
        "chip": _list(row.chip for row in found),
        "prompt": _list(prompts),
        "start °C": _list(said[0] for said in around),
        "governor": _list(said[2] for said in around),
        "power": _list(said[3] for said in around),
    }
    text = "; ".join(f"{what} {said}" for what, said in parts.items())
    return f'<p class="quiet">Measured with: {escape(text)}.</p>'


def outside(report: Report) -> str:
    """What does not count, and why."""
    found = words.outside(report)
    if not found:
        return ""
    rows = [(row.board, row.runtime or "unknown", why, str(n)) for row, why, n in found]
    return '<h2 id="outside">Runs that do not count</h2>' + plain(
        ("board", "QAIRT", "why", "runs"), rows, "Runs that do not count"
    )


def around(report: Report) -> str:
    """Conditions, folded away."""
    rows = [(row.board, *_conditions(row.records)) for row in report.rows]
    heads = ("board", "start °C", "most °C", "governor", "power", "load", "CPU use of sampling")
    return (
        '<h2 id="conditions">Conditions and provenance</h2>'
        f"<details><summary>Conditions</summary>{plain(heads, rows, 'Conditions')}</details>"
    )


def _conditions(records: Sequence[Record]) -> tuple[str, ...]:
    found = [record.conditions for record in records]
    first = [conditions.before for conditions in found if conditions.before]
    starts = [heat for sample in first if (heat := sample.hottest) is not None]
    samples = [sample for conditions in found for sample in conditions.samples]
    most = [heat for sample in samples if (heat := sample.hottest) is not None]
    loads = [sample.load for sample in first if sample.load is not None]
    costs = [conditions.cost for conditions in found if conditions.cost is not None]
    governors = {text for conditions in found for text in conditions.governors.values()}
    power = {f"{name} {text}" for conditions in found for name, text in conditions.power.items()}
    return (
        _span(starts), f"{max(most):.1f}" if most else "unknown", _list(governors), _list(power),
        _span(loads, 2), f"{max(costs):.2%}" if costs else "unknown",
    )  # fmt: skip


def _span(values: Sequence[float], digits: int = 1) -> str:
    if not values:
        return "unknown"
    low, high = f"{min(values):.{digits}f}", f"{max(values):.{digits}f}"
    return low if low == high else f"{low} to {high}"


def _list(found: Iterable[str]) -> str:
    """Words, or `unknown`."""
    some = sorted({clean(text) for text in found if text})
    text = ", ".join(some[:SHOWN])
    return (text + f" and {len(some) - SHOWN} more" * (len(some) > SHOWN)) or "unknown"


def provenance(report: Report) -> str:
    """Where the numbers come from, folded away."""
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
    heads = ("board", *columns, "command of the first run")
    return f"<details><summary>Provenance</summary>{plain(heads, rows, 'Provenance')}</details>"
