"""The chart: horizontal bars, one group a scenario, as SVG that follows light and dark."""

from __future__ import annotations

from collections.abc import Sequence
from xml.sax.saxutils import escape

from .stats import Result, Row, ratio
from .table import seconds_of

WIDTH = 860
LEFT = 228  # where the bars begin
LONGEST = 470  # the slowest tool of a group
ROW, HEAD, GAP = 21, 34, 16
_STYLE = """
    text { fill: #24292f; }
    .t { font-weight: 600; font-size: 14px; }
    .n { text-anchor: end; }
    .s { fill: #57606a; font-size: 11.5px; }
    .fleet { fill: #1a7f37; }
    .reference { fill: #57606a; }
    .peer { fill: #afb8c1; }
    .f { font-weight: 600; }
    @media (prefers-color-scheme: dark) {
      text { fill: #e6edf3; }
      .s { fill: #9198a1; }
      .fleet { fill: #3fb950; }
      .reference { fill: #9198a1; }
      .peer { fill: #484f58; }
    }
"""


def chart(results: Sequence[Result], caption: str) -> str:
    """Bars of one group are proportional to the median seconds of the whole process."""
    drawn = [(one, _rows(one)) for one in results if one.chart]
    drawn = [(one, rows) for one, rows in drawn if rows]
    parts: list[str] = []
    top = 8
    for result, rows in drawn:
        parts += _group(result, rows, top)
        top += HEAD + ROW * len(rows) + GAP
    parts.append(f'<text class="s" x="10" y="{top + 8}">{escape(caption)}</text>')
    body = "\n  ".join(parts)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {top + 20}" '
        f'font-family="system-ui, sans-serif" font-size="13" role="img">\n'
        f"  <title>fleet beside its peers: seconds, shorter is better</title>\n"
        f"  <style>{_STYLE}  </style>\n  {body}\n</svg>\n"
    )


def _rows(result: Result) -> list[Row]:
    """Measured rows, quickest first; then those that did not end in time."""
    rows = [row for row in result.rows if row.main and (row.values() or row.note)]
    return sorted(rows, key=lambda row: row.median() or float("inf"))


def _group(result: Result, rows: Sequence[Row], top: int) -> list[str]:
    slowest = max((row.median() or 0.0 for row in rows), default=0.0) or 1.0
    reference = result.row(result.reference)
    parts = [f'<text class="t" x="10" y="{top + 18}">{escape(result.title)}</text>']
    for place, row in enumerate(rows):
        y = top + HEAD + place * ROW
        value = row.median()
        weight = " f" if row.kind == "fleet" else ""
        parts.append(
            f'<text class="n{weight}" x="{LEFT - 8}" y="{y + 12}">{escape(row.name)}</text>'
        )
        if value is None:
            parts.append(f'<text class="s" x="{LEFT}" y="{y + 12}">{escape(row.note)}</text>')
            continue
        width = LONGEST * value / slowest
        parts.append(
            f'<rect class="{row.kind}" x="{LEFT}" y="{y}" width="{width:.2f}" height="15"'
            f' rx="2"><title>{escape(row.name)}: {seconds_of(row)}</title></rect>'
        )
        against = ratio(row, reference) if reference is not None else None
        times = f" · {against:.2f} x" if against is not None and row is not reference else ""
        label = escape(seconds_of(row) + times)
        parts.append(f'<text class="s" x="{LEFT + width + 6:.2f}" y="{y + 12}">{label}</text>')
    return parts
