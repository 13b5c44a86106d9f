"""The conditions of runs, in a line of plain text."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from fleet.engine.measuring.heat import Heat, hottest


def conditions_line(records: Sequence[Mapping[str, Any]]) -> str:
    """`started at 41.3 to 52.0 °C (nspss-0), 61.0 °C at most; governor schedutil; ...`.

    Of the records of one device as plain data; "" where nothing is known.
    """
    found = [record.get("conditions") or {} for record in records]
    parts = [_heat(found), _words("governor", found, "governors"), _words("power", found, "power")]
    costs = [one["cost"] for one in found if one.get("cost") is not None]
    if costs:
        parts.append(f"looks took {max(costs):.2%} of a CPU at most")
    return "; ".join(part for part in parts if part)


def _heat(found: Sequence[Mapping[str, Any]]) -> str:
    starts = [heat for one in found if (heat := _hottest(one.get("before")))]
    if not starts:
        return ""
    looks = [look for one in found for look in (*one.get("during", ()), one.get("after"))]
    most = max((heat.celsius for look in looks if (heat := _hottest(look))), default=None)
    low, high = min(h.celsius for h in starts), max(h.celsius for h in starts)
    span = f"{low:.1f}" if low == high else f"{low:.1f} to {high:.1f}"
    names = ", ".join(sorted({heat.zone for heat in starts}))
    tail = f", {most:.1f} °C at most" if most is not None else ""
    return f"started at {span} °C ({names}){tail}"


def _hottest(look: Mapping[str, Any] | None) -> Heat | None:
    return hottest(look["zones"]) if look else None


def _words(title: str, found: Sequence[Mapping[str, Any]], key: str) -> str:
    """`governor performance`, or `power battery Charging, usb online`."""
    said = {(name, text) for one in found for name, text in (one.get(key) or {}).items()}
    if key == "governors":
        told = sorted({text for name, text in said if name.startswith("cpu:")})
    else:
        told = sorted(f"{name} {text}" for name, text in said)
    return f"{title} {', '.join(told)}" if told else ""
