"""Vega-Lite specifications as pieces of SVG that take their colours from the page."""

from __future__ import annotations

import hashlib
import importlib
import re
from collections.abc import Mapping
from html import escape
from typing import Any

from fleet.profiles.report.plain import dots

Spec = dict[str, Any]

# A colour of a specification stands for one of the style sheet, so that a picture is drawn once
# and is right in both themes.
INK, MUTED, GRID, PAPER, HEAT = "#010101", "#010102", "#010103", "#010104", "#010105"
GROUPS = ("#020200", "#020201", "#020202", "#020203", "#020204", "#020205")
_NAMES = {INK: "ink", MUTED: "muted", GRID: "grid", PAPER: "card", HEAT: "heat"}
_NAMES |= {colour: f"g{place}" for place, colour in enumerate(GROUPS)}
SHAPES = ("circle", "square", "triangle-up", "diamond", "cross", "triangle-down")
WIDTH = 390

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


def picture(spec: Spec, title: str, text: str) -> str:
    """The SVG element. `title` names it, `text` says for those who cannot see it what it shows.

    Without vl-convert-python only a `distribution` can be drawn, plainly.
    """
    tool = library()
    if tool is None:
        _, points, spans = (layer["data"]["values"] for layer in spec["layer"])
        box, inner = dots(spans, points)
        return _element(box, title, text, inner)
    whole: Mapping[str, Any] = {
        "$schema": "https://vega.github.io/schema/vega-lite/v5.json", "width": WIDTH, **spec,
    }  # fmt: skip
    drawn: str = tool.vegalite_to_svg(whole, vl_version="5.20", config=CONFIG, allowed_base_urls=[])
    inner = drawn[drawn.index(">") + 1 : drawn.rindex("</svg>")]
    own = hashlib.sha256(drawn.encode()).hexdigest()[:8]  # ids are of the whole page
    inner = re.sub(r'(url\(#|id=")(clip\d+)', rf"\g<1>{own}-\g<2>", inner)
    found = re.search(r'viewBox="([^"]*)"', drawn)
    return _element(found[1] if found else "", title, text, _themed(inner))


def _element(box: str, title: str, text: str, inner: str) -> str:
    head = f'<svg role="img" viewBox="{box}" aria-label="{escape(title)}">'
    return f"{head}<title>{escape(title)}</title><desc>{escape(text)}</desc>{inner}</svg>"


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
