"""Pieces of the page. Every text is escaped here or was drawn as a picture."""

from __future__ import annotations

from html import escape

from fleet.profiles.report.drawing import GROUPS
from fleet.profiles.report.summary import Report, clean
from fleet.profiles.report.words import figures, many, number

_MARKS = (
    '<circle cx="6" cy="6" r="5"/>', '<path d="M1 1h10v10H1z"/>', '<path d="M6 0l6 11H0z"/>',
    '<path d="M6 0l6 6-6 6-6-6z"/>', '<path d="M4 0h4v4h4v4H8v4H4V8H0V4h4z"/>',
    '<path d="M0 1h12L6 12z"/>',
)  # fmt: skip


def mark(place: int) -> str:
    """The colour and shape of a group."""
    n = place % len(GROUPS)
    return f'<svg viewBox="0 0 12 12" aria-hidden="true" fill="var(--g{n})">{_MARKS[n]}</svg>'


def card(title: str, drawn: str, *notes: str) -> str:
    """A picture with its name and what it leaves out."""
    items = "".join(f'<p class="note">{escape(note)}</p>' for note in notes if note)
    return f'<section class="card"><h3>{escape(title)}</h3>{drawn}{items}</section>'


def emulated(report: Report) -> str:
    """The banner; "" where all runs are of hardware."""
    rows = [row for row in report.rows if row.emulated in {"yes", "mixed"}]
    if report.emulated == "yes":
        text = (
            "All runs are emulated (lab boards or the HTP emulator), so the numbers are not "
            "those of an NPU."
        )
    elif rows:
        text = f"{len(rows)} of {many(len(report.rows), 'row')} below contain emulated runs, "
        text += "whose numbers are not those of an NPU."
    elif report.emulated in {"unknown", "mixed"}:
        text = "For some of these runs it is unknown whether they ran on hardware or were emulated."
    else:
        return ""
    return f'<p class="warn" role="note">{escape(text)}</p>'


def tiles(report: Report) -> str:
    """The big numbers, a tile a metric with a line a group."""
    made = dict[str, list[str]]()
    several = len(report.groups) > 1
    for figure in figures(report):
        span = f"{number(figure.low)} to {number(figure.high)}, {figure.rows} rows"
        unit = escape(figure.metric.unit)
        made.setdefault(figure.metric.shown, []).append(
            f'<dd class="g">{mark(figure.group) if several else ""}<span class="big">'
            f'{number(figure.middle)}</span> <span class="unit">{unit}</span></dd>'
            f'<dd class="quiet">{span if figure.rows > 1 else "middle"}</dd>'
        )
    shown = "".join(
        f'<div class="tile"><dt>{escape(name)}</dt>{"".join(lines)}</div>'
        for name, lines in made.items()
    )
    return f'<dl class="tiles">{shown}</dl>' if made else ""


def key(report: Report) -> str:
    """What colours and shapes mean; "" for one group."""
    if len(report.groups) < 2:
        return ""
    items = "".join(
        f"<li>{mark(place)}{escape(clean(group.label))} ({many(len(group.records), 'run')})</li>"
        for place, group in enumerate(report.groups)
    )
    return f'<ul class="key" aria-label="Groups">{items}</ul>'
