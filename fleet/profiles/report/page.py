"""The page: a single HTML file that loads no other file."""

from __future__ import annotations

import base64
import hashlib
import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, NamedTuple

from markupsafe import Markup

from fleet.model.metrics import PRIMARY, Metric
from fleet.model.record import Record
from fleet.model.suite import SuiteResult
from fleet.model.version import VERSION
from fleet.profiles.compare.conditions import seconds_of
from fleet.profiles.compare.groups import build, short_build
from fleet.profiles.compare.metrics import value
from fleet.profiles.compare.ops import typical
from fleet.profiles.report import summary, tables
from fleet.profiles.report.drawing import (
    GROUPS,
    HEAT,
    INK,
    LABEL,
    MUTED,
    Spec,
    asset,
    colour,
    distribution,
    extent,
    labels,
    library,
    picture,
    shape,
    template,
    thinned,
)
from fleet.profiles.report.summary import Report, clean

# Charts over time: the history of a metric, and speed against heat within one run.

CURVES = 6
LEAST = 5  # runs of a curve
LOOKS = 300  # of a curve
DIRECT = 4  # lines with names
LINES = 60
TRACED = 4  # boards whose nodes are shown
MEDIANS = 1200  # of a chart
NAMED = 300  # of the medians have a tooltip
DAY = 86400.0


def history(report: Report, metric: Metric) -> tuple[Spec, str] | None:
    """Return the chart of medians of runs over time, with a line for each board.

    The text is about what the chart omits. Returns None if no board has two runs.
    """
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
    medians = []
    for run, mine in runs_of(records).items():
        at = next((t for record in mine if (t := seconds_of(record.started)) is not None), None)
        good = [v for record in mine if math.isfinite(v := value(record, name))]
        if at is not None and good:
            medians.append((at, statistics.median(good), run))
    return sorted(medians)


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
    """Return a thin line with the version on top, where each runtime appears for the first time."""
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
    """Speed and heat over one run of one board. `left` is what the chart omits."""

    title: str
    text: str
    spec: Spec
    left: str


def curves(report: Report, metric: Metric) -> tuple[list[Curve], int]:
    """Return, for each board, the run with the largest change of temperature, largest first.

    Also returns the number of boards with such a run.
    """
    runs = dict[tuple[int, str], tuple[float, str, int, list[Record]]]()
    for row, label in zip(report.rows, labels(report), strict=True):
        for mine in runs_of(row.counted).values():
            heats = [heat for _, heat in _heats(mine)]
            if len(mine) < LEAST or len(heats) < LEAST:
                continue
            moved, where = max(heats) - min(heats), (row.group, row.board)
            if where not in runs or moved > runs[where][0]:
                runs[where] = (moved, label, row.group, mine)
    chosen = sorted(runs.values(), key=lambda run: (-run[0], run[1]))[:CURVES]
    return [_curve(metric, *run[1:]) for run in chosen], len(runs)


def runs_of(records: Sequence[Record]) -> dict[str, list[Record]]:
    """Return the records by run id."""
    runs: dict[str, list[Record]] = {}
    for record in records:
        runs.setdefault(record.run_id, []).append(record)
    return runs


def _heats(records: Sequence[Record]) -> list[tuple[float, float]]:
    """Return (seconds since 1970, °C of the hottest zone) of each sample."""
    return sorted(
        (start + look.at, heat)
        for record in records
        if (start := seconds_of(record.started)) is not None
        for look in record.conditions.samples
        if (heat := look.hottest) is not None
    )


def _curve(metric: Metric, label: str, place: int, mine: Sequence[Record]) -> Curve:
    heats = _heats(mine)
    speeds = [(at, value(record, metric.name)) for record in mine
              if (at := seconds_of(record.started)) is not None]  # fmt: skip
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


# The largest operations, as bars.

MOST = 12


def operations(report: Report) -> dict[str, tuple[Spec, str]]:
    """Return the chart and its description, by unit.

    The values are medians of the runs that count, the largest first.
    """
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


def page(report: Report, title: str = "") -> str:
    """Return the complete file; without the extra `report`, charts have only points and
    intervals.
    """
    style, script = asset("page.css").replace("DARK", _DARK_RULES, 1), asset("page.js")
    charts = library() is not None
    names = [clean(group.label) or "all runs" for group in report.groups]
    policy = (
        f"default-src 'none'; style-src {_hash(style)}; script-src {_hash(script)}; "
        "base-uri 'none'; form-action 'none'"
    )
    return template("page.html").render(
        policy=Markup(policy), style=Markup(style), script=Markup(script),  # noqa: S704 - ours
        title=clean(title) or _title(report), chosen=_span(report) + " and ".join(names),
        report=report, banner=summary.banner(report), headline=summary.headline(report),
        tiles=summary.figures(report), verdicts=tables.verdicts(report), nodes=_nodes(report),
        measured_with=tables.measured_with(report), boards=tables.boards(report), drawn=charts,
        distributions=_distributions(report), drift=_DRIFT if _drifts(report) else "",
        **(_heat(report) if charts else {"heat": (), "heat_few": ""}),
        operations=_operations(report) if charts else (),
        history=_history(report) if charts else (),
        outside=tables.outside(report), folded=(tables.around(report), tables.provenance(report)),
        version=VERSION, now=datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
    )  # fmt: skip


_DRIFT = " For runs that drift, the band shows the level over all runs."


def _hash(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


def _title(report: Report) -> str:
    models = [row.model for row in report.rows] or [clean(each.name) for each in report.traced]
    models = list(dict.fromkeys(model or "unknown model" for model in models))
    what = ", ".join(models[:3]) + (f" and {len(models) - 3} more" if len(models) > 3 else "")
    return f"{what} on {summary.many(report.boards or len(report.traced), 'board')}"


def _span(report: Report) -> str:
    """Return the days of the runs, as the beginning of a line."""
    days = sorted({record.started[:10] for record in report.records if record.started})
    return f"{' to '.join(dict.fromkeys((days[0], days[-1])))}, " if days else ""


class Card(NamedTuple):
    """A chart with its name and its notes."""

    title: str
    drawn: str
    notes: tuple[str, ...]


def nodes(result: SuiteResult) -> Spec:
    """Return the chart of the error of each node: of the network up to the node, and of the
    node.
    """
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


def _nodes(report: Report) -> dict[str, Any]:
    boards = []
    for record in report.traced[:TRACED]:
        if record.suite is None:
            continue
        host, text = clean(record.host), clean(record.suite.begins, summary.WORDS)
        name = f"Nodes of {host}"
        shown = picture(nodes(record.suite), name, text) if library() else ""
        boards.append((Card(name, shown, (text,)), tables.nodes(record.suite, host)))
    few = f" Shown are {TRACED} of {summary.many(len(report.traced), 'board')}."
    return {"boards": boards, "few": few * (len(report.traced) > TRACED)}


def _distributions(report: Report) -> list[Card]:
    cards = []
    for metric in report.metrics:
        spec, left = distribution(report, metric)
        text = f"{metric.shown}: each run that counts is a point; each row has its median."
        shown = picture(spec, metric.shown, f"{text} The table has the numbers.")
        better = {1: ", more is better", -1: ", less is better"}.get(metric.better, "")
        cards.append(Card(metric.shown + better, shown, (left,)))
    return cards


def _drifts(report: Report) -> bool:
    return any(c.spread and c.spread.drift for row in report.rows for c in row.cells.values())


def _heat(report: Report) -> dict[str, Any]:
    named = {metric.name: metric for metric in report.metrics}
    metric = named.get(PRIMARY.name) or next(iter(report.metrics), None)
    shown, whole = curves(report, metric) if metric else ([], 0)
    few = f" Shown are the {len(shown)} of {whole} boards with the largest change of temperature."
    cards = [Card(c.title, picture(c.spec, c.title, c.text), (c.text, c.left)) for c in shown]
    return {"heat": cards, "heat_few": few * (whole > len(shown))}


def _operations(report: Report) -> list[Card]:
    return [
        Card(f"Largest operations, {unit or 'no unit'}", picture(spec, "Operations", text), (text,))
        for unit, (spec, text) in operations(report).items()
    ]


def _history(report: Report) -> list[Card]:
    cards = []
    for metric in report.metrics:
        if chart := history(report, metric):
            spec, left = chart
            text = f"{metric.shown} over time: the median of each run, one line per board."
            cards.append(Card(metric.shown, picture(spec, metric.shown, text), (left,)))
    return cards
