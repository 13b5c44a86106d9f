"""Pictures as SVG: Vega-Lite specifications in the colours of the page, and plain ones."""

from __future__ import annotations

import hashlib
import importlib
import re
from collections.abc import Mapping, Sequence
from functools import cache
from importlib.resources import files
from typing import Any

import jinja2
from markupsafe import Markup

from fleet.profiles.report.summary import clean
from fleet.profiles.report.words import many, number

Spec = dict[str, Any]

# A colour of a specification stands for one of the style sheet, so that a picture is drawn once
# and is right in both themes.
INK, MUTED, GRID, PAPER, HEAT = "#010101", "#010102", "#010103", "#010104", "#010105"
GROUPS = ("#020200", "#020201", "#020202", "#020203", "#020204", "#020205")
_NAMES = {INK: "ink", MUTED: "muted", GRID: "grid", PAPER: "card", HEAT: "heat"}
_NAMES |= {colour: f"g{place}" for place, colour in enumerate(GROUPS)}
SHAPES = ("circle", "square", "triangle-up", "diamond", "cross", "triangle-down")
WIDTH = 390
LABEL, STEP, EDGE = 140, 16, 10  # px, of a picture that is drawn without vl-convert

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
    """Return a picture of `picture.html`."""
    return Markup(getattr(template("picture.html").module, macro)(*values))  # noqa: S704 - escaped


def picture(spec: Spec, title: str, text: str) -> Markup:
    """Return the SVG element with `title` as its name and `text` as its description.

    Without vl-convert-python only a `distribution` can be drawn, plainly.
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
    own = hashlib.sha256(made.encode()).hexdigest()[:8]  # ids are of the whole page
    inner = re.sub(r'(url\(#|id=")(clip\d+)', rf"\g<1>{own}-\g<2>", inner)
    found = re.search(r'viewBox="([^"]*)"', made)
    # vl-convert has escaped the texts.
    return drawn("svg", found[1] if found else "", title, text, Markup(_themed(inner)))  # noqa: S704


def _plain(
    spans: Sequence[Spec], points: Sequence[Spec], title: str, text: str
) -> tuple[object, ...]:
    """Return the view box, the texts and the marks: a band, circles and a line for each row.

    A span has l label, g group, a to b interval, m middle; a point has v value.
    """
    rows = {(span["l"], span["g"]): number for number, span in enumerate(spans)}
    said = [mark[key] for mark in (*spans, *points) for key in "abmv" if mark.get(key) is not None]
    low, high = min(said), max(said)
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
    """Smaller, with the colours of the page; what a mark is called becomes its tooltip."""
    text = _NOISE.sub("", _EMPTY.sub("", text))
    text = _COLOUR.sub(lambda found: f'"var(--{_NAMES[found[1]]})"', text)
    return _LABEL.sub(r"<\1\2\4><title>\3</title></\1>", text)


def library() -> Any:  # noqa: ANN401 - loaded where it is needed
    """vl-convert-python; None where it is not installed."""
    try:
        return importlib.import_module("vl_convert")
    except ImportError:
        return None
