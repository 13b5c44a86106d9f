"""Tables: markdown that also reads well in a terminal."""

from __future__ import annotations

from .stats import SECONDS, UNKNOWN, Result, Row, Verdict, ratio

_UNITS = {"x": " x", "s": " s", "bytes": " bytes", "": "", "%": " %"}


def number(value: float | None, digits: int = 2) -> str:
    return "" if value is None else f"{value:.{digits}f}"


def table(result: Result) -> str:
    """One row a tool, quickest first; then those that gave nothing."""
    headings = ["tool", "median s", "min..max", f"x {result.reference}", "inner s", "client CPU s"]
    headings += [heading for _, heading in result.columns]
    lines = [f"| {' | '.join(headings)} |", "|" + "---|" * len(headings)]
    reference = result.row(result.reference)
    rows = sorted(result.rows, key=lambda row: row.median() or float("inf"))
    lines += [_line(row, reference, result, len(headings)) for row in rows]
    return "\n".join(lines)


def _line(row: Row, reference: Row | None, result: Result, width: int) -> str:
    values = row.values()
    if not values:
        return f"| {row.name} | {row.note or UNKNOWN} |" + " |" * (width - 2)
    against = ratio(row, reference) if reference is not None else None
    name = f"**{row.name}**" if row.kind == "fleet" else row.name
    cells = [
        f"{name} ({row.note})" if row.note else name,
        number(row.median()),
        f"{min(values):.2f}..{max(values):.2f}",
        number(against),
        number(row.median("inner"), 3),
        number(row.median("cpu")),
        *(_figure(row.median(field)) for field, _ in result.columns),
    ]
    return f"| {' | '.join(cells)} |"


def _figure(value: float | None) -> str:
    if value is None:
        return ""
    return f"{value:.0f}" if value == int(value) else f"{value:.3f}"


def verdicts(result: Result) -> str:
    """One row a bar."""
    lines = ["| bar | measured | against | |", "|---|---|---|---|"]
    lines += [
        f"| {one.text} | {measured(one)} | {one.against} | {one.word} |" for one in result.verdicts
    ]
    return "\n".join(lines)


def measured(one: Verdict) -> str:
    """The figure of a bar with its unit."""
    if one.value is None:
        return "-"
    digits = 0 if one.unit in {"bytes", "%"} else 3 if one.unit == "s" else 2
    return f"{one.value:.{digits}f}{_UNITS.get(one.unit, ' ' + one.unit)}"


def section(result: Result) -> str:
    """A scenario as markdown."""
    parts = [f"## {result.title}", rounds(result.rounds), table(result)]
    if result.bars:
        parts.append(verdicts(result))
    if result.notes:
        parts.append("\n".join(f"- {note}" for note in result.notes))
    if result.missing:
        lacking = (f"{name} ({how})" for name, how in sorted(result.missing.items()))
        parts.append(f"Missing here: {'; '.join(lacking)}.")
    return "\n\n".join(parts)


def rounds(count: int) -> str:
    """`Medians of 5 rounds.`"""
    return f"Medians of {count} rounds." if count > 1 else "One round."


def seconds_of(row: Row) -> str:
    """`2.31 s`, or why there is none."""
    value = row.median(SECONDS)
    return f"{value:.2f} s" if value is not None else row.note or UNKNOWN
