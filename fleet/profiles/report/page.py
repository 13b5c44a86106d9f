"""The page: one HTML file that loads nothing."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Sequence
from datetime import UTC, datetime
from html import escape
from importlib.resources import files

from fleet.model.metrics import PRIMARY
from fleet.model.version import VERSION
from fleet.profiles.report import parts, tables
from fleet.profiles.report.distributions import distribution
from fleet.profiles.report.drawing import library, picture
from fleet.profiles.report.operations import operations
from fleet.profiles.report.summary import Report, clean
from fleet.profiles.report.times import curves, history
from fleet.profiles.report.words import headline, many

_DARK = (
    "--paper:#101317;--card:#181c21;--ink:#e8ebee;--muted:#9aa4b0;--grid:#272d34;--line:#2b3138;"
    "--accent:#6cb4ff;--warn-ink:#ffd79a;--warn:#3a2a10;--warn-line:#d08a24;--heat:#ff9562;"
    "--g0:#5cb3f5;--g1:#ff9a4d;--g2:#35c79c;--g3:#e58fc6;--g4:#cdbb3c;--g5:#a9b1bb;"
    "color-scheme:dark"
)
_DARK_RULES = (
    f"@media(prefers-color-scheme:dark){{:root:not([data-theme=light]){{{_DARK}}}}}\n"
    f":root[data-theme=dark]{{{_DARK}}}"
)


_LACKS = (
    '<p class="quiet">Charts of heat, operations and history need the extra `report`; '
    "<code>fleet profiles report</code> prints the command that installs it.</p>"
)


def page(report: Report, title: str = "") -> str:
    """The whole file; without the extra `report` with points and intervals as its only pictures."""
    style = _asset("page.css").replace("DARK", _DARK_RULES, 1)
    script = _asset("page.js")
    policy = (
        f"default-src 'none'; style-src {_hash(style)}; script-src {_hash(script)}; "
        "base-uri 'none'; form-action 'none'"
    )
    name = clean(title) or _title(report)
    body = "\n".join((_head(report, name), "<main>", *_sections(report), "</main>", _foot()))
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">\n'
        '<meta name="viewport" content="width=device-width,initial-scale=1">\n'
        '<meta name="referrer" content="no-referrer">\n'
        f"<title>{escape(name)}</title>\n<style>{style}</style></head>\n<body>\n{body}\n"
        f"<script>{script}</script>\n</body></html>\n"
    )


def _asset(name: str) -> str:
    return files("fleet.profiles.report").joinpath(name).read_text("utf-8").strip()


def _hash(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


def _title(report: Report) -> str:
    models = list(dict.fromkeys(row.model or "unknown model" for row in report.rows))
    what = ", ".join(models[:3]) + (f" and {len(models) - 3} more" if len(models) > 3 else "")
    return f"{what} on {many(report.boards, 'board')}"


def _head(report: Report, name: str) -> str:
    times = sorted(record.started[:10] for record in report.records if record.started)
    span = f"{times[0]} to {times[-1]}, " if times and times[0] != times[-1] else ""
    span = span or (f"{times[0]}, " if times else "")
    chosen = " and ".join(clean(group.label) or "all runs" for group in report.groups)
    return (
        f'<header><div><h1>{escape(name)}</h1><p class="quiet">{escape(span)}'
        f"{escape(chosen)}</p></div>"
        '<button type="button" class="theme" hidden>Dark</button></header>'
    )


def _sections(report: Report) -> list[str]:
    items = "".join(f"<li>{escape(sentence)}</li>" for sentence in headline(report))
    return [
        parts.emulated(report),
        f'<ul class="lead">{items}</ul>',
        parts.key(report),
        parts.tiles(report),
        tables.verdicts(report),
        tables.measured_with(report),
        tables.boards(report),
        _distributions(report),
        *([_heat(report), _operations(report), _history(report)] if library() else [_LACKS]),
        tables.outside(report),
        tables.around(report),
        tables.provenance(report),
    ]


def _cards(cards: Sequence[str]) -> str:
    return f'<div class="cards">{"".join(cards)}</div>'


def _distributions(report: Report) -> str:
    cards = []
    for metric in report.metrics:
        spec, left = distribution(report, metric)
        text = f"{metric.shown}: each run that counts is a point; each row has its median."
        drawn = picture(spec, metric.shown, f"{text} The table has the numbers.")
        cards.append(parts.card(metric.shown + _better(metric.better), drawn, left))
    if not cards:
        return ""
    return (
        '<h2 id="distributions">Every run</h2><p class="quiet">Each point is a run that '
        "counts; hollow points are emulated runs. The line is the median, the band its 95 % "
        "interval. A row with fewer than five runs has no "
        f"band.{_drift(report)}</p>{_cards(cards)}"
    )


def _drift(report: Report) -> str:
    if not any(c.spread and c.spread.drift for row in report.rows for c in row.cells.values()):
        return ""
    return " For runs that drift, the band shows the level over all runs."


def _better(way: int) -> str:
    return {1: ", more is better", -1: ", less is better"}.get(way, "")


def _heat(report: Report) -> str:
    named = {metric.name: metric for metric in report.metrics}
    metric = named.get(PRIMARY.name) or next(iter(report.metrics), None)
    found, whole = curves(report, metric) if metric else ([], 0)
    if not found:
        return ""
    cards = [parts.card(c.title, picture(c.spec, c.title, c.text), c.text, c.left) for c in found]
    few = (
        f" Shown are the {len(found)} of {whole} boards with the largest change of temperature."
    ) * (whole > len(found))
    return (
        '<h2 id="heat">Speed and temperature</h2><p class="quiet">Each run on one board in '
        f"time order, with the temperature of the hottest thermal zone.{few}</p>{_cards(cards)}"
    )


def _operations(report: Report) -> str:
    cards = [
        parts.card(
            f"Largest operations, {unit or 'no unit'}", picture(spec, "Operations", text), text
        )
        for unit, (spec, text) in operations(report).items()
    ]
    return f'<h2 id="operations">Operations</h2>{_cards(cards)}' if cards else ""


def _history(report: Report) -> str:
    cards = []
    for metric in report.metrics:
        found = history(report, metric)
        if found:
            spec, left = found
            text = f"{metric.shown} over time: the median of each run, one line per board."
            cards.append(parts.card(metric.shown, picture(spec, metric.shown, text), left))
    if not cards:
        return ""
    return (
        '<h2 id="history">History</h2><p class="quiet">A point is the median of one run on '
        "one board, a line is a board. A dotted line marks the first run with a new "
        f"runtime.</p>{_cards(cards)}"
    )


def _foot() -> str:
    now = datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC")
    return (
        f"<footer>Made by fleet {escape(VERSION)} on {now}. Warm-up runs are not shown. To test "
        "whether a difference is significant: <code>fleet profiles compare A "
        "B</code>.</footer>"
    )
