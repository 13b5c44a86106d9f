"""The tables of the page."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape

from fleet.model.record import Record
from fleet.profiles.compare.metrics import Metric
from fleet.profiles.report import words
from fleet.profiles.report.parts import mark
from fleet.profiles.report.summary import Cell, Report, Row, clean

SHOWN = 8  # of a list of words


def boards(report: Report) -> str:
    """One row a board, sortable."""
    several = len(report.groups) > 1
    heads = [("group", "")] * several
    heads += [("board", ""), *[("model", "")] * _models(report), ("QAIRT", "")]
    heads += [("counted", "n"), *((one.shown, "n") for one in report.metrics)]
    heads += [("emulated", ""), ("problems and remarks", ""), ("chip", ""), ("release", "")]
    head = "".join(
        f'<th scope="col" aria-sort="none"{_class(kind)}><button type="button">{escape(name)}'
        "</button></th>"
        for name, kind in heads
    )
    body = "".join(_row(row, report, several=several) for row in report.rows)
    left = "".join(f"{escape(clean(name))} ({escape(why)}); " for name, why in
                   sorted(report.left_out.items())[:SHOWN])  # fmt: skip
    note = f'<p class="note">Not in the report: {left.removesuffix("; ")}.</p>' if left else ""
    return (
        '<h2 id="boards">Boards</h2><p class="quiet">The middle, and below it its 95 % interval: '
        "the median, or the level of runs that drift. Click a heading to sort.</p>"
        f'<div class="wide" role="region" aria-label="Boards" tabindex="0"><table class="sortable">'
        f"<caption>Boards</caption><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"
        f"</div>{note}"
    )


def _models(report: Report) -> bool:
    """True where a column has to say which model it is; one alone is in the title."""
    return len({row.model for row in report.rows}) > 1


def _class(kind: str) -> str:
    return f' class="{kind}"' if kind else ""


def _row(row: Row, report: Report, *, several: bool) -> str:
    whole, good = len(row.records), len(row.counted)
    cells = []
    if several:
        label = clean(report.groups[row.group].label)
        cells.append(f'<td data-v="{row.group}" class="g">{mark(row.group)}{escape(label)}</td>')
    name = escape(row.board)
    cells.append(f'<th scope="row" title="{name}">{name}</th>')
    cells += [f"<td>{escape(one) or 'unknown'}</td>" for one in
              (*[row.model] * _models(report), row.runtime)]  # fmt: skip
    cells.append(f'<td class="n" data-v="{good}">{good}/{whole}</td>')
    cells += [_cell(row.cells.get(one.name), one) for one in report.metrics]
    flag = '<span class="badge">emulated</span>' if row.emulated == "yes" else row.emulated
    cells.append(f'<td data-v="{row.emulated}">{flag}</td>')
    said = [f"{word} {n}" for word, n in {**row.problems, **row.marks}.items()]
    cells.append(f"<td>{escape(', '.join(said))}</td>")
    cells += [f"<td>{escape(one) or 'unknown'}</td>" for one in (row.chip, row.release)]
    return f"<tr>{''.join(cells)}</tr>"


def _cell(cell: Cell | None, metric: Metric) -> str:
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
    head = "".join(f'<th scope="col"><button type="button">{escape(one)}</button></th>'
                   for one in heads).replace("<th ", '<th aria-sort="none" ')  # fmt: skip
    body = "".join(
        f'<tr><th scope="row">{escape(first)}</th>'
        + "".join(f"<td>{escape(one)}</td>" for one in rest)
        + "</tr>"
        for first, *rest in rows
    )
    name = escape(caption)
    return (
        f'<div class="wide wrap" role="region" aria-label="{name}" tabindex="0">'
        f'<table class="sortable"><caption>{name}</caption><thead><tr>{head}</tr></thead>'
        f"<tbody>{body}</tbody></table></div>"
    )


def outside(report: Report) -> str:
    """What does not count, and why."""
    found = words.outside(report)
    if not found:
        return ""
    rows = [(row.board, row.runtime or "unknown", why, str(n)) for row, why, n in found]
    return '<h2 id="outside">What does not count</h2>' + plain(
        ("board", "QAIRT", "why", "runs"), rows, "What does not count"
    )


def around(report: Report) -> str:
    """Conditions, folded away."""
    rows = [(row.board, *_conditions(row.records)) for row in report.rows]
    heads = ("board", "start °C", "most °C", "governor", "power", "load", "cost of looks")
    return (
        '<h2 id="conditions">Conditions and provenance</h2>'
        f"<details><summary>Conditions</summary>{plain(heads, rows, 'Conditions')}</details>"
    )


def _conditions(records: Sequence[Record]) -> tuple[str, ...]:
    found = [one.conditions for one in records]
    starts = [h for one in found if one.before and (h := one.before.hottest) is not None]
    most = [h for one in found for look in one.samples if (h := look.hottest) is not None]
    loads = [one.before.load for one in found if one.before and one.before.load is not None]
    costs = [one.cost for one in found if one.cost is not None]
    governors = {text for one in found for text in one.governors.values()}
    power = {f"{name} {text}" for one in found for name, text in one.power.items()}
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
    some = sorted({clean(one) for one in found if one})
    text = ", ".join(some[:SHOWN])
    return (text + f" and {len(some) - SHOWN} more" * (len(some) > SHOWN)) or "unknown"


def provenance(report: Report) -> str:
    """Where the numbers come from, folded away."""
    rows = []
    for row in report.rows:
        mine = row.records
        system = {" ".join(str(one.facts.get(k) or "") for k in ("os_id", "os_version", "kernel"))
                  .strip() for one in mine}  # fmt: skip
        rows.append((
            row.board, _list(one.identity for one in mine),
            _list(str(one.origin.get("build_id") or "") for one in mine), _list(system),
            _list(one.runner for one in mine), _list(one.prompt_sha256[:12] for one in mine),
            _list(one.run_id for one in mine), _list(one.fleet for one in mine),
            _list(" ".join(one.argv) for one in mine[:1]),
        ))  # fmt: skip
    heads = ("board", "identity", "build id", "system", "runner", "prompt", "runs", "fleet",
             "command of the first run")  # fmt: skip
    return f"<details><summary>Provenance</summary>{plain(heads, rows, 'Provenance')}</details>"
