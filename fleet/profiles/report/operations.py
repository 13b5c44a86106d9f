"The largest operations, in as bars."

from __future__ import annotations

from fleet.profiles.compare.ops import typical
from fleet.profiles.report.distributions import LABEL, colour, extent
from fleet.profiles.report.drawing import INK, Spec
from fleet.profiles.report.summary import Report, clean

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
