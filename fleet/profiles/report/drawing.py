"""Charts as SVG: Vega-Lite specifications in the colours of the page, and plain charts."""

from __future__ import annotations

import hashlib
import importlib
import math
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from functools import cache
from importlib.resources import files
from typing import Any, TypeVar

import jinja2
from markupsafe import Markup

from fleet.model.metrics import Metric
from fleet.profiles.compare.metrics import value
from fleet.profiles.report.summary import Report, ReportRow, clean, many, number

Spec = dict[str, Any]

# A colour of a specification stands for a colour of the style sheet, so that a chart is drawn once
# and is correct in both themes.
INK, MUTED, GRID, PAPER, HEAT = "#010101", "#010102", "#010103", "#010104", "#010105"
GROUPS = ("#020200", "#020201", "#020202", "#020203", "#020204", "#020205")
_NAMES = {INK: "ink", MUTED: "muted", GRID: "grid", PAPER: "card", HEAT: "heat"}
_NAMES |= {colour: f"g{place}" for place, colour in enumerate(GROUPS)}
SHAPES = ("circle", "square", "triangle-up", "diamond", "cross", "triangle-down")
WIDTH = 390
LABEL, STEP, EDGE = 140, 16, 10  # px, of a chart that is drawn without vl-convert

CONFIG: Spec = {
    "background": None,
    "font": "sans-serif",
    "padding": 2,
    "view": {"stroke": None},
    "axis": {
        "domain": False, "ticks": False, "grid": False, "gridColor": GRID, "labelColor": MUTED,
        "labelFontSize": 11, "labelPadding": 6, "labelSeparation": 10,
        "titleColor": MUTED, "titleFontSize": 11,
        "titleFontWeight": "normal", "titlePadding": 6, "labelOverlap": "greedy",
    },
    "axisQuantitative": {"grid": True, "tickCount": 4},
    "text": {"fontSize": 11, "color": INK},
    "aria": True,
}  # fmt: skip

_NOISE = re.compile(
    r' (?:opacity="1"|pointer-events="none"|aria-roledescription="[^"]*"'
    r'|role="graphics-(?:symbol|object)"|aria-hidden="true"|stroke-miterlimit="10")'
)
_EMPTY = re.compile(r'<path class="(?:fore|back)ground"[^>]*/>')
_COLOUR = re.compile(r'"(#0[12]0[12]0\d)"')
_LABEL = re.compile(
    r'<(path|line|rect|text)((?: (?!aria-label)[\w-]+="[^"]*")*) aria-label="([^"]*)"([^>]*?)/>'
)


@cache
def template(name: str) -> jinja2.Template:
    """Return a template of this folder. It escapes each text that is not Markup."""
    loader = jinja2.FunctionLoader(asset)
    made = jinja2.Environment(loader=loader, autoescape=True, undefined=jinja2.StrictUndefined,
                              trim_blocks=True, lstrip_blocks=True)  # fmt: skip
    made.filters.update(clean=clean, number=number, many=many)
    return made.get_template(name)


def asset(name: str) -> str:
    """Return the text of a file of this folder."""
    return files("fleet.profiles.report").joinpath(name).read_text("utf-8").strip()


def drawn(macro: str, *values: object) -> Markup:
    """Return a chart made by a macro of `picture.html`."""
    return Markup(getattr(template("picture.html").module, macro)(*values))  # noqa: S704 - escaped


def picture(spec: Spec, title: str, text: str) -> Markup:
    """Return the SVG element with `title` as its name and `text` as its description.

    Without vl-convert-python only a `distribution` can be drawn, in a plain form.
    """
    tool = library()
    if tool is None:
        _, points, spans = (layer["data"]["values"] for layer in spec["layer"])
        return drawn("svg", *_plain(spans, points, title, text))
    whole: Mapping[str, Any] = {
        "$schema": "https://vega.github.io/schema/vega-lite/v5.json", "width": WIDTH, **spec,
    }  # fmt: skip
    made: str = tool.vegalite_to_svg(whole, vl_version="5.20", config=CONFIG, allowed_base_urls=[])
    inner = made[made.index(">") + 1 : made.rindex("</svg>")]
    own = hashlib.sha256(made.encode()).hexdigest()[:8]  # ids must be unique in the whole page
    inner = re.sub(r'(url\(#|id=")(clip\d+)', rf"\g<1>{own}-\g<2>", inner)
    view_box = re.search(r'viewBox="([^"]*)"', made)
    # vl-convert has escaped the texts.
    return drawn("svg", view_box[1] if view_box else "", title, text, Markup(_themed(inner)))  # noqa: S704


def _plain(
    spans: Sequence[Spec], points: Sequence[Spec], title: str, text: str
) -> tuple[object, ...]:
    """Return the view box, the texts and the marks: a band, circles and a line for each row.

    A span has l label, g group, a to b interval, m middle; a point has v value.
    """
    rows = {(span["l"], span["g"]): number for number, span in enumerate(spans)}
    numbers = [
        mark[key] for mark in (*spans, *points) for key in "abmv" if mark.get(key) is not None
    ]
    low, high = min(numbers), max(numbers)
    room, bottom = WIDTH - LABEL - EDGE, STEP * len(rows)

    def place(value: float) -> float:
        return round(LABEL + room * ((value - low) / (high - low) if high > low else 0.5), 1)

    def placed(mark: Spec) -> Spec:
        label, at = mark["l"], {k: place(mark[k]) for k in "abmv" if mark.get(k) is not None}
        brief = label if len(label) <= 20 else f"{label[:9]}…{label[-10:]}"
        return {**mark, **at, "brief": brief, "y": STEP * rows[label, mark["g"]] + STEP // 2}

    ends = ((low, "start"), (high, "end")) if high > low else ((low, "middle"),)
    ticks = [(place(at), anchor, f"{at:.4g}") for at, anchor in ends]
    marks = drawn("dots", [*map(placed, spans)], [*map(placed, points)], ticks, LABEL, bottom)
    return f"0 0 {WIDTH} {bottom + EDGE * 2}", title, text, marks


def _themed(text: str) -> str:
    """Return the SVG without noise, with the colours of the page; labels of marks become
    tooltips.
    """
    text = _NOISE.sub("", _EMPTY.sub("", text))
    text = _COLOUR.sub(lambda match: f'"var(--{_NAMES[match[1]]})"', text)
    return _LABEL.sub(r"<\1\2\4><title>\3</title></\1>", text)


def library() -> Any:  # noqa: ANN401 - loaded where it is needed
    """Return the module of vl-convert-python; None if it is not installed."""
    try:
        return importlib.import_module("vl_convert")
    except ImportError:
        return None


BUDGET = 4000  # points of all distributions of a page; keeps the page below 2 MB
LEAST = 8
ROWS = 100  # of a chart
_Point = TypeVar("_Point")


def labels(report: Report) -> list[str]:
    """Return the label of each row: the board, and words that distinguish it within its group."""
    texts = []
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
        texts.append(" · ".join(parts))
    return texts


def _release(runtime: str, alike: Sequence[ReportRow]) -> str:
    """Return a version such as `2.51.0`, with its date if another version of the board begins
    alike.
    """
    brief = ".".join(runtime.split(".")[:3])
    others = {row.runtime for row in alike} - {runtime}
    clash = any(other.startswith(f"{brief}.") for other in others)
    return (runtime if clash else brief) or "unknown runtime"


def extent(names: Sequence[str]) -> int:
    """Return the room for labels in px.

    The fonts of browsers are wider than the font that is used for drawing.
    """
    return min(LABEL, 7 * max(map(len, names), default=0)) + 6


def distribution(report: Report, metric: Metric) -> tuple[Spec, str]:
    """Return the chart of a metric, and a text about what the chart omits ("" for nothing)."""
    named = [
        (row, label)
        for row, label in zip(report.rows, labels(report), strict=True)
        if metric.name in row.cells
    ]
    shown = named[:ROWS]
    most = share_of(len(shown), len(report.metrics))
    points, spans, whole = list[Spec](), list[Spec](), 0
    for row, label in shown:
        some = _points(row, label, metric, most)
        whole += row.cells[metric.name].count
        points += some
        spans.append(_span(row, label, metric))
    left = []
    if len(shown) < len(named):
        left.append(f"the chart shows {len(shown)} of {len(named)} rows; the table shows all rows")
    if len(points) < whole:
        left.append(
            f"the chart shows {len(points)} of {whole} runs: the lowest, the highest and evenly "
            "spaced runs of each row; medians and intervals use all runs"
        )
    order = list(dict.fromkeys(label for _, label in shown))
    return _spec(report, points, spans, order), "; ".join(left)


def _points(row: ReportRow, label: str, metric: Metric, most: int) -> list[Spec]:
    pairs = [(value(record, metric.name), record) for record in row.counted]
    pairs = [pair for pair in pairs if math.isfinite(pair[0])]
    pairs.sort(key=lambda pair: pair[0])
    return [
        {
            "l": label, "g": str(row.group), "v": speed,
            "f": "hollow" if record.emulated else "full",
            "t": f"{label}: {speed:.4g} {metric.unit}, {clean(record.run_id)} "
                 f"run {record.repeat + 1}",
        }
        for speed, record in thinned(pairs, most)
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
    """Return the encoding of groups by colour."""
    return _by_group(report, GROUPS)


def shape(report: Report) -> Spec:
    """Return the encoding of groups by shape, because not everybody can see the colours."""
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
    """Return at most `most` of the ordered values: the ends, and evenly spaced ranks between."""
    most = max(most, 2)
    if len(ordered) <= most:
        return list(ordered)
    step = (len(ordered) - 1) / (most - 1)
    return [ordered[round(place * step)] for place in range(most)]


def share_of(rows: int, charts: int) -> int:
    """Return how many points each row of each chart may have."""
    return max(LEAST, BUDGET // max(1, rows * charts))
