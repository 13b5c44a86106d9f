"""Every run as a point, the interval of the middle behind it, one picture a metric."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from typing import Any, TypeVar

from fleet.model.metrics import Metric
from fleet.profiles.compare.metrics import value
from fleet.profiles.report.drawing import GROUPS, INK, SHAPES, Spec
from fleet.profiles.report.summary import Report, ReportRow, clean

BUDGET = 4000  # points of all distributions of a page: what keeps it under 2 MB
LEAST = 8
ROWS = 100  # of a picture
LABEL = 140  # px
_Point = TypeVar("_Point")


def labels(report: Report) -> list[str]:
    """What each row is called: the board, and what tells it from other rows of its group."""
    found = []
    for row in report.rows:
        place = row.group, row.board
        alike = [other for other in report.rows if (other.group, other.board) == place]
        parts = [row.board]
        if len({other.model for other in report.rows}) > 1:
            parts.append(row.model or "unknown model")
        if len({other.runtime for other in alike}) > 1:
            parts.append(_release(row.runtime, alike))
        if Counter((other.model, other.runtime) for other in alike)[row.model, row.runtime] > 1:
            parts.append(row.release[:8] or "unknown release")
        found.append(" · ".join(parts))
    return found


def _release(runtime: str, alike: Sequence[ReportRow]) -> str:
    """`2.51.0`, with its date where another one of the board begins so too."""
    brief = ".".join(runtime.split(".")[:3])
    others = {row.runtime for row in alike} - {runtime}
    clash = any(other.startswith(f"{brief}.") for other in others)
    return (runtime if clash else brief) or "unknown runtime"


def extent(names: Sequence[str]) -> int:
    """Room for labels, px: the fonts of browsers are wider than the one that it is drawn with."""
    return min(LABEL, 7 * max(map(len, names), default=0)) + 6


def distribution(report: Report, metric: Metric) -> tuple[Spec, str]:
    """The picture of one metric, and what it leaves out ("" for nothing)."""
    named = [
        (row, label)
        for row, label in zip(report.rows, labels(report), strict=True)
        if metric.name in row.cells
    ]
    drawn = named[:ROWS]
    most = share_of(len(drawn), len(report.metrics))
    points, spans, whole = list[Spec](), list[Spec](), 0
    for row, label in drawn:
        some = _points(row, label, metric, most)
        whole += row.cells[metric.name].count
        points += some
        spans.append(_span(row, label, metric))
    left = []
    if len(drawn) < len(named):
        left.append(f"the chart shows {len(drawn)} of {len(named)} rows; the table shows all rows")
    if len(points) < whole:
        left.append(
            f"the chart shows {len(points)} of {whole} runs: the lowest, the highest and evenly "
            "spaced runs of each row; medians and intervals use all runs"
        )
    order = list(dict.fromkeys(label for _, label in drawn))
    return _spec(report, points, spans, order), "; ".join(left)


def _points(row: ReportRow, label: str, metric: Metric, most: int) -> list[Spec]:
    found = [(value(record, metric.name), record) for record in row.counted]
    found = [pair for pair in found if math.isfinite(pair[0])]
    found.sort(key=lambda pair: pair[0])
    return [
        {
            "l": label, "g": str(row.group), "v": number,
            "f": "hollow" if record.emulated else "full",
            "t": f"{label}: {number:.4g} {metric.unit}, {clean(record.run_id)} "
                 f"run {record.repeat + 1}",
        }
        for number, record in thinned(found, most)
    ]  # fmt: skip


def _span(row: ReportRow, label: str, metric: Metric) -> Spec:
    cell = row.cells[metric.name]
    spread = cell.spread
    ends = (spread.low, spread.high) if spread else (None, None)
    text = f"{label}: median {cell.middle:.4g} {metric.unit} of {cell.count} runs"
    if spread:
        text += f", {spread.level:.0%} interval {spread.low:.4g} to {spread.high:.4g}"
    return {"l": label, "g": str(row.group), "m": cell.middle, "a": ends[0], "b": ends[1],
            "t": text}  # fmt: skip


def colour(report: Report) -> Spec:
    """The encoding of groups by colour."""
    return _by_group(report, GROUPS)


def shape(report: Report) -> Spec:
    """The encoding of groups by shape: colour alone is not for everybody."""
    return _by_group(report, SHAPES)


def _by_group(report: Report, marks: Sequence[str]) -> Spec:
    places = range(len(report.groups))
    scale = {"domain": [str(n) for n in places], "range": [marks[n % len(marks)] for n in places]}
    return {"field": "g", "type": "nominal", "legend": None, "scale": scale}


def _spec(
    report: Report, points: Sequence[Spec], spans: Sequence[Spec], order: Sequence[str]
) -> Spec:
    several = len(report.groups) > 1
    step = (14 if several else 22) if len(order) <= 12 else (11 if several else 16)
    y: dict[str, Any] = {"field": "l", "type": "nominal", "sort": list(order), "title": None,
                         "axis": {"labelLimit": LABEL - 12, "labelOverlap": False,
                                  "minExtent": extent(order)}}  # fmt: skip
    base: dict[str, Any] = {"y": y, "description": {"field": "t"}}
    if several:
        base["yOffset"] = {"field": "g", "sort": [str(n) for n in range(len(report.groups))]}
    x = {"type": "quantitative", "scale": {"zero": False, "nice": True}, "title": None}
    ink = colour(report)
    return {
        "height": {"step": step, "for": "offset" if several else "position"},
        "autosize": {"type": "fit-x", "contains": "padding"},
        "layer": [
            {
                "data": {"values": [span for span in spans if span["a"] is not None]},
                "mark": {"type": "rule", "strokeWidth": step - 5, "opacity": 0.22, "aria": False},
                "encoding": {**base, "x": {**x, "field": "a"}, "x2": {"field": "b"}, "color": ink},
            },
            {
                "data": {"values": list(points)},
                "mark": {"type": "point", "size": 18, "strokeWidth": 1.2, "opacity": 0.75},
                "encoding": {
                    **base, "x": {**x, "field": "v"}, "color": ink, "shape": shape(report),
                    "fill": {**ink, "condition": {"test": "datum.f == 'hollow'", "value": None}},
                },
            },
            {
                "data": {"values": list(spans)},
                "mark": {"type": "tick", "thickness": 2, "size": step - 5, "color": INK},
                "encoding": {**base, "x": {**x, "field": "m"}},
            },
        ],
    }  # fmt: skip


def thinned(ordered: Sequence[_Point], most: int) -> list[_Point]:
    """At most so many of the values in their order: the ends, and evenly spaced ranks between."""
    most = max(most, 2)
    if len(ordered) <= most:
        return list(ordered)
    step = (len(ordered) - 1) / (most - 1)
    return [ordered[round(place * step)] for place in range(most)]


def share_of(rows: int, charts: int) -> int:
    """How many points each row of each chart may have."""
    return max(LEAST, BUDGET // max(1, rows * charts))
