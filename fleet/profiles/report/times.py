"""What changes with time: the history of a metric, and speed against heat within one run."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from fleet.model.metrics import Metric
from fleet.model.record import Record
from fleet.profiles.compare.groups import build, short_build
from fleet.profiles.compare.metrics import value
from fleet.profiles.report.distributions import colour, labels, shape, thinned
from fleet.profiles.report.drawing import GROUPS, HEAT, INK, MUTED, Spec
from fleet.profiles.report.summary import Report, clean

CURVES = 6
LEAST = 5  # runs of a curve
LOOKS = 300  # of a curve
DIRECT = 4  # lines that bear their names
LINES = 60
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
