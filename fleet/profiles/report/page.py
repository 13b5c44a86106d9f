"""The page: one HTML file that loads nothing."""

from __future__ import annotations

import base64
import hashlib
import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from html import escape
from importlib.resources import files

from fleet.model.metrics import PRIMARY, Metric
from fleet.model.record import Record
from fleet.model.suite import SuiteResult
from fleet.model.version import VERSION
from fleet.profiles.compare.groups import build, short_build
from fleet.profiles.compare.metrics import value
from fleet.profiles.compare.ops import typical
from fleet.profiles.report import parts, tables
from fleet.profiles.report.distributions import (
    LABEL,
    colour,
    distribution,
    extent,
    labels,
    shape,
    thinned,
)
from fleet.profiles.report.drawing import GROUPS, HEAT, INK, MUTED, Spec, library, picture
from fleet.profiles.report.summary import Report, clean
from fleet.profiles.report.words import WORDS, headline, many

# What changes with time: the history of a metric, and speed against heat within one run.

CURVES = 6
LEAST = 5  # runs of a curve
LOOKS = 300  # of a curve
DIRECT = 4  # lines that bear their names
LINES = 60
TRACED = 4  # boards whose nodes are shown
MEDIANS = 1200  # of a picture
NAMED = 300  # of them bear a tooltip
DAY = 86400.0


def when(text: str) -> float | None:
    """Seconds since 1970 of a time as records write it; None where it is none."""
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        return None
    return (found if found.tzinfo else found.replace(tzinfo=UTC)).timestamp()


def history(report: Report, metric: Metric) -> tuple[Spec, str] | None:
    """Medians of runs over time, one line a board; None where no board has two runs."""
    values, builds = list[Spec](), dict[str, float]()
    names = labels(report)
    lines = dict[tuple[int, str], int]()
    for row, label in zip(report.rows, names, strict=True):
        for at, middle, run in _by_run(row.counted, metric.name):
            where = (row.group, row.board)
            lines[where] = lines.get(where, 0) + 1
            builds[row.runtime] = min(at, builds.get(row.runtime, at))
            values.append({
                "at": at * 1000, "v": middle, "g": str(row.group), "l": row.board,
                "k": f"{row.group} {row.board} {row.model}",
                "t": f"{label}: {middle:.4g} {metric.unit}, {clean(run)}",
            })  # fmt: skip
    if max(lines.values(), default=0) < 2:
        return None
    kept = set(list(lines)[:LINES])
    left = [f"the chart shows {len(kept)} of {len(lines)} boards; the table shows all boards"] * (
        len(kept) < len(lines)
    )
    values = [point for point in values if (int(point["g"]), point["l"]) in kept]
    drawn = _thinned(values, max(2, MEDIANS // len(kept)))
    if len(drawn) < len(values):
        left.append(
            f"the chart shows {len(drawn)} of {len(values)} medians, evenly spaced, with the "
            "first and the last"
        )
    return _history_spec(report, drawn, builds, len(kept)), "; ".join(left)


def _thinned(values: Sequence[Spec], most: int) -> list[Spec]:
    lines: dict[str, list[Spec]] = {}
    for point in sorted(values, key=lambda point: float(point["at"])):
        lines.setdefault(point["k"], []).append(point)
    return [point for line in lines.values() for point in thinned(line, most)]


def _by_run(records: Sequence[Record], name: str) -> list[tuple[float, float, str]]:
    found = []
    for run, mine in runs_of(records).items():
        at = next((t for record in mine if (t := when(record.started)) is not None), None)
        good = [v for record in mine if math.isfinite(v := value(record, name))]
        if at is not None and good:
            found.append((at, statistics.median(good), run))
    return sorted(found)


def _history_spec(
    report: Report, values: Sequence[Spec], builds: dict[str, float], lines: int
) -> Spec:
    moments = [point["at"] for point in values]
    days = (max(moments) - min(moments)) / 1000 / DAY
    x = {"field": "at", "type": "temporal", "title": "UTC" if days < 2 else None,
         "scale": {"type": "utc"}, "axis": {"format": "%H:%M" if days < 2 else "%d %b",
                                            "grid": False, "tickCount": 4}}  # fmt: skip
    y = {"field": "v", "type": "quantitative", "title": None, "scale": {"zero": False}}
    many = lines > DIRECT
    about = {"x": x, "y": y, "color": colour(report)}
    layer: list[Spec] = _versions(builds, x) if len(builds) > 1 else []
    layer.append({
        "data": {"values": list(values)},
        "mark": {"type": "line", "aria": False, "strokeWidth": 1 if many else 1.6,
                 "opacity": 0.35 if many else 1},
        "encoding": {**about, "detail": {"field": "k"}},
    })  # fmt: skip
    layer.append({
        "data": {"values": list(values)},
        "mark": {"type": "point", "filled": True, "size": 12 if many else 28, "opacity": 0.8,
                 "aria": len(values) <= NAMED},
        "encoding": {**about, "shape": shape(report), "description": {"field": "t"}},
    })  # fmt: skip
    if not many:
        last = {point["k"]: point for point in sorted(values, key=lambda point: float(point["at"]))}
        layer.append({
            "data": {"values": list(last.values())},
            "mark": {"type": "text", "align": "left", "dx": 6, "limit": 90, "aria": False},
            "encoding": {"x": x, "y": y, "text": {"field": "l"}, "color": colour(report)},
        })  # fmt: skip
    return {"height": 190, "autosize": {"type": "fit-x", "contains": "padding"}, "layer": layer}


def _versions(builds: dict[str, float], x: Spec) -> list[Spec]:
    """Where a runtime was seen first: a quiet line with its number on top."""
    data = {"values": [{"at": at * 1000, "n": _number(name)} for name, at in builds.items()]}
    return [
        {"data": data,
         "mark": {"type": "rule", "aria": False, "color": MUTED, "strokeDash": [2, 3]},
         "encoding": {"x": x}},
        {"data": data,
         "mark": {"type": "text", "aria": False, "color": MUTED, "align": "left", "baseline": "top",
                  "dx": 3, "dy": -12, "fontSize": 10},
         "encoding": {"x": x, "y": {"value": 0}, "text": {"field": "n"}}},
    ]  # fmt: skip


def _number(runtime: str) -> str:
    return ".".join(runtime.split(".")[:2]) if runtime else "unknown"


@dataclass(frozen=True)
class Curve:
    """Speed and heat over one run of one board. `left`: what the picture leaves out."""

    title: str
    text: str
    spec: Spec
    left: str


def curves(report: Report, metric: Metric) -> tuple[list[Curve], int]:
    """Of each board the run whose heat moved most, the largest first; how many boards had one."""
    found = dict[tuple[int, str], tuple[float, str, int, list[Record]]]()
    for row, label in zip(report.rows, labels(report), strict=True):
        for mine in runs_of(row.counted).values():
            heats = [heat for _, heat in _heats(mine)]
            if len(mine) < LEAST or len(heats) < LEAST:
                continue
            moved, where = max(heats) - min(heats), (row.group, row.board)
            if where not in found or moved > found[where][0]:
                found[where] = (moved, label, row.group, mine)
    chosen = sorted(found.values(), key=lambda run: (-run[0], run[1]))[:CURVES]
    return [_curve(metric, *run[1:]) for run in chosen], len(found)


def runs_of(records: Sequence[Record]) -> dict[str, list[Record]]:
    """Run id → its records."""
    runs: dict[str, list[Record]] = {}
    for record in records:
        runs.setdefault(record.run_id, []).append(record)
    return runs


def _heats(records: Sequence[Record]) -> list[tuple[float, float]]:
    """(seconds since 1970, °C of the hottest zone)."""
    return sorted(
        (start + look.at, heat)
        for record in records
        if (start := when(record.started)) is not None
        for look in record.conditions.samples
        if (heat := look.hottest) is not None
    )


def _curve(metric: Metric, label: str, place: int, mine: Sequence[Record]) -> Curve:
    heats = _heats(mine)
    speeds = [(at, value(record, metric.name)) for record in mine
              if (at := when(record.started)) is not None]  # fmt: skip
    speeds = [pair for pair in speeds if math.isfinite(pair[1])]
    began = min(at for at, _ in (*heats, *speeds))
    looks, shown = thinned(heats, LOOKS), thinned(speeds, LOOKS)
    left = ""
    if len(looks) < len(heats) or len(shown) < len(speeds):
        left = f"{len(shown)} of {len(speeds)} runs and {len(looks)} of {len(heats)} samples"
    low, high = min(h for _, h in heats), max(h for _, h in heats)
    text = f"{len(speeds)} runs, hottest zone {low:.0f} to {high:.0f} °C"
    run, build_id = clean(mine[0].run_id), clean(short_build(build(mine[0])))
    x = {"field": "x", "type": "quantitative", "scale": {"nice": False},
         "axis": {"grid": False}}  # fmt: skip
    panels = [
        _panel(metric.shown, GROUPS[place % len(GROUPS)], 100,
               [{"x": (at - began) / 60, "v": v} for at, v in shown],
               {**x, "title": None, "axis": {"grid": False, "labels": False}}),
        _panel("°C", HEAT, 70, [{"x": (at - began) / 60, "v": v} for at, v in looks],
               {**x, "title": "minutes since the run began"}),
    ]  # fmt: skip
    spec: Spec = {"vconcat": panels, "spacing": 14, "resolve": {"scale": {"x": "shared"}}}
    return Curve(label, f"{text}. {run}, {build_id or 'unknown runtime'}.", spec, left)


def _panel(title: str, ink: str, height: int, values: Sequence[Spec], x: Spec) -> Spec:
    y = {"field": "v", "type": "quantitative", "title": None, "scale": {"zero": False},
         "axis": {"tickCount": 3, "minExtent": 30, "maxExtent": 30}}  # fmt: skip
    return {
        "width": 340, "height": height, "data": {"values": list(values)},
        "title": {"text": title, "anchor": "start", "fontSize": 11, "fontWeight": "normal",
                  "color": INK, "offset": 4},
        "encoding": {"x": x, "y": y},
        "layer": [
            {"mark": {"type": "line", "strokeWidth": 1.4, "color": ink, "aria": False}},
            {"mark": {"type": "point", "filled": True, "size": 10, "color": ink, "aria": False}},
        ],
    }  # fmt: skip


# The largest operations, in as bars.

MOST = 12


def operations(report: Report) -> dict[str, tuple[Spec, str]]:
    """Unit → the picture, and what it says: medians of the runs that count, the largest first."""
    groups = [typical(group.counted) for group in report.groups]
    units = sorted({unit for group in groups for unit in group})
    return {
        clean(unit): _picture(report, clean(unit), [group.get(unit, []) for group in groups])
        for unit in units
    }


def _picture(
    report: Report, unit: str, groups: list[list[tuple[str, str, float]]]
) -> tuple[Spec, str]:
    largest: dict[str, float] = {}
    for group in groups:
        for name, _, middle in group:
            largest[name] = max(middle, largest.get(name, 0.0))
    top = sorted(largest, key=lambda name: (-largest[name], name))[:MOST]
    values, elsewhere = list[Spec](), set[str]()
    for place, group in enumerate(groups):
        total = sum(middle for _, _, middle in group)
        for name, where, middle in group:
            if name not in top:
                continue
            if where not in {"", "npu"}:
                elsewhere.add(f"{clean(name)} on {clean(where)}")
            share = middle / total if total else 0.0
            words = f"{share:.0%}" + (f" on {clean(where)}" if where not in {"", "npu"} else "")
            values.append({
                "n": f"{top.index(name) + 1:02} {clean(name)}", "g": str(place), "v": middle,
                "s": words, "t": f"{clean(name)}: {middle:.6g} {unit}, {words} of all",
            })  # fmt: skip
    text = f"The {len(top)} of {len(largest)} largest operations, in {unit or 'no unit'}"
    if elsewhere:
        text += f"; not on the NPU: {', '.join(sorted(elsewhere))}"
    return _spec(report, values, unit), f"{text}."


def _spec(report: Report, values: list[Spec], unit: str) -> Spec:
    several = len(report.groups) > 1
    y: Spec = {"field": "n", "type": "nominal", "sort": "ascending", "title": None,
               "axis": {"labelLimit": LABEL - 12, "labelOverlap": False,
                        "minExtent": extent([str(bar["n"])[3:] for bar in values]),
                        "labelExpr": "substring(datum.label, 3)"}}  # fmt: skip
    base: Spec = {"y": y}
    if several:
        base["yOffset"] = {"field": "g"}
    x = {"field": "v", "type": "quantitative", "title": unit or None,
         "axis": {"tickCount": 3, "format": "~s"}, "scale": {"zero": True}}  # fmt: skip
    return {
        "data": {"values": values},
        "height": {"step": 13 if several else 22, "for": "offset" if several else "position"},
        "autosize": {"type": "fit-x", "contains": "padding"},
        "encoding": base,
        "layer": [
            {"mark": {"type": "bar", "height": {"band": 0.72}, "cornerRadiusEnd": 2},
             "encoding": {"x": x, "color": colour(report), "description": {"field": "t"}}},
            {"mark": {"type": "text", "align": "left", "dx": 4, "fontSize": 10, "color": INK,
                      "aria": False},
             "encoding": {"x": x, "text": {"field": "s"}}},
        ],
    }  # fmt: skip


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
    models = [row.model for row in report.rows] or [clean(each.name) for each in report.traced]
    models = list(dict.fromkeys(model or "unknown model" for model in models))
    what = ", ".join(models[:3]) + (f" and {len(models) - 3} more" if len(models) > 3 else "")
    return f"{what} on {many(report.boards or len(report.traced), 'board')}"


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
        _nodes(report),
        *([tables.measured_with(report), tables.boards(report)] if report.rows else []),
        _distributions(report),
        *([_heat(report), _operations(report), _history(report)] if library() else [_LACKS]),
        tables.outside(report),
        tables.around(report),
        tables.provenance(report),
    ]


def nodes(result: SuiteResult) -> Spec:
    """The error of each node over its place: of the whole network up to there, and its own."""
    values = [
        {"x": place + 1, "v": number, "k": kind, "t": f"{clean(row.node)}: {number:.1f} dB, {kind}"}
        for place, row in enumerate(result.nodes)
        for kind, number in (("all up to here", row.after_db), ("this node alone", row.own_db))
        if number is not None
    ]
    x = {"field": "x", "type": "quantitative", "title": "node, in the order of the network",
         "axis": {"grid": False, "tickMinStep": 1},
         "scale": {"domain": [1, max(2, len(result.nodes))]}}  # fmt: skip
    y = {"field": "v", "type": "quantitative", "title": "SQNR in dB"}
    kinds = ["all up to here", "this node alone"]
    colour = {"field": "k", "type": "nominal", "title": None,
              "scale": {"domain": kinds, "range": [GROUPS[0], GROUPS[1]]},
              "legend": {"orient": "top", "labelColor": INK}}  # fmt: skip
    about: Spec = {"x": x, "y": y, "color": colour}
    layer: list[Spec] = [
        {"mark": {"type": "line", "strokeWidth": 1.4, "aria": False}, "encoding": about},
        {"mark": {"type": "point", "filled": True, "size": 22},
         "encoding": {**about, "description": {"field": "t"}}},
    ]  # fmt: skip
    if result.first_wrong is not None:
        layer.insert(0, {"data": {"values": [{"x": result.first_wrong + 1}]},
                         "mark": {"type": "rule", "color": HEAT, "strokeWidth": 2, "aria": False},
                         "encoding": {"x": x}})  # fmt: skip
    return {"height": 190, "autosize": {"type": "fit-x", "contains": "padding"},
            "data": {"values": values}, "layer": layer}  # fmt: skip


def _nodes(report: Report) -> str:
    drawn = []
    for record in report.traced[:TRACED]:
        if record.suite is None:
            continue
        host = clean(record.host)
        text = clean(record.suite.begins, WORDS)
        shown = picture(nodes(record.suite), f"Nodes of {host}", text) if library() else ""
        drawn.append(parts.card(f"Nodes of {host}", shown, text) + tables.nodes(record.suite, host))
    if not drawn:
        return ""
    few = f" Shown are {TRACED} of {many(len(report.traced), 'board')}."
    return (
        '<h2 id="nodes">Where the network begins to differ</h2><p class="quiet">Each node on the '
        "device against the reference. A node is wrong if its output differs from what its own "
        "inputs give; 200 dB is equal; a red line marks the first wrong node."
        f"{few * (len(report.traced) > TRACED)}</p>{''.join(drawn)}"
    )


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
