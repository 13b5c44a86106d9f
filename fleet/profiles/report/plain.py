"""Points and intervals as plain SVG: what a report draws without the extra `report`."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from html import escape
from typing import Any

Row = Mapping[str, Any]  # of `distribution`: l label, g group, v value, a to b interval, m middle
LABEL, WIDTH, STEP, EDGE = 140, 390, 16, 10  # px


def dots(spans: list[Row], points: list[Row]) -> tuple[str, str]:
    """The view box, and the marks: a band, circles and a line a row; below them the scale."""
    rows = {(span["l"], span["g"]): number for number, span in enumerate(spans)}
    said = [mark[key] for mark in (*spans, *points) for key in "abmv" if mark.get(key) is not None]
    low, high = min(said), max(said)
    room = WIDTH - LABEL - EDGE

    def place(number: float) -> float:
        return round(LABEL + room * ((number - low) / (high - low) if high > low else 0.5), 1)

    def line(mark: Row) -> int:
        return STEP * rows[mark["l"], mark["g"]] + STEP // 2

    end = STEP * len(rows)
    marks = [*_bands(spans, place, line), *_circles(points, place, line)]
    for at, anchor in ((low, "start"), (high, "end")) if high > low else ((low, "middle"),):
        marks.append(_text(place(at), end + 12, anchor, f"{at:.4g}"))
    return f"0 0 {WIDTH} {end + EDGE * 2}", "".join(marks)


def _bands(
    spans: list[Row], place: Callable[[float], float], line: Callable[[Row], int]
) -> Iterator[str]:
    for span in spans:
        y, label = line(span), span["l"]
        brief = label if len(label) <= 20 else f"{label[:9]}…{label[-10:]}"
        yield _text(LABEL - 8, y + 4, "end", brief)
        if span["a"] is not None:
            left, right = place(span["a"]), place(span["b"])
            yield (
                f'<rect x="{left}" y="{y - 6}" width="{round(right - left, 1)}" height="12" '
                f'fill="var(--g{span["g"]})" opacity="0.22"/>'
            )
        yield (
            f'<path d="M{place(span["m"])},{y - 6}v12" stroke="var(--ink)" stroke-width="2">'
            f"<title>{escape(span['t'])}</title></path>"
        )


def _circles(
    points: list[Row], place: Callable[[float], float], line: Callable[[Row], int]
) -> Iterator[str]:
    for point in points:
        colour = f"var(--g{point['g']})"
        fill = colour if point["f"] == "full" else "none"
        yield (
            f'<circle cx="{place(point["v"])}" cy="{line(point)}" r="2.4" fill="{fill}" '
            f'stroke="{colour}"><title>{escape(point["t"])}</title></circle>'
        )


def _text(x: float, y: float, anchor: str, text: str) -> str:
    return (
        f'<text x="{x}" y="{y}" text-anchor="{anchor}" font-size="11" fill="var(--muted)">'
        f"{escape(text)}</text>"
    )
