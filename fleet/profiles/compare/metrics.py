"""The metrics of records: their units, and which way is better."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from difflib import get_close_matches

from fleet.model.errors import InputError
from fleet.model.metrics import COMPARED, FIELDS, KNOWN, Metric, direction, limit_text
from fleet.model.record import Record

_UNIT_AT_END = re.compile(r"(?:^|_)(ns|us|ms|tps|ips|hz)(?:#\d+)?$")  # of a name: `run_p90_ms`


def metric(name: str, records: Sequence[Record]) -> Metric:
    """Return the metric of this name, with the unit that the records give it."""
    known = KNOWN.get(name)
    if known and name in FIELDS:
        return known
    units = {r.metrics.others[name].unit for r in records if name in r.metrics.others}
    if known and (not units or len(units) > 1):
        return known
    unit = units.pop() if len(units) == 1 else ""
    return replace(known, unit=unit) if known else Metric(name, unit, direction(unit))


def better_way(name: str, records: Sequence[Record] = ()) -> int:
    """Return which way a metric is better: 1 up, -1 down, 0 unknown.

    The table and the unit in the records decide; without a unit, the end of the name decides.
    """
    mine = metric(name, records)
    at_end = _UNIT_AT_END.search(name)
    return mine.better or (direction(at_end[1]) if at_end and not mine.unit else 0)


def value(record: Record, name: str) -> float:
    """Return a metric of a record that counts, nan if the record does not have it."""
    if name in FIELDS:
        number = getattr(record.metrics, name)
        return math.nan if number is None else float(number)
    measure = record.metrics.others.get(name)
    return math.nan if measure is None else float(measure.value)


def units(records: Sequence[Record], name: str) -> set[str]:
    """Return the units in which the records give a metric; several units cannot be compared."""
    if name in FIELDS:
        return {KNOWN[name].unit}
    return {r.metrics.others[name].unit for r in records if name in r.metrics.others}


def present(records: Sequence[Record]) -> list[str]:
    """Return the metrics that a comparison of these records uses by default, in a stable order."""
    usual = [n for n in COMPARED if any(math.isfinite(value(r, n)) for r in records)]
    others = {name for r in records if r.counts for name in r.metrics.others}
    return usual + sorted(others - set(usual))


def every(records: Sequence[Record]) -> list[str]:
    """Return the names of all metrics of these records, in a stable order."""
    mine = [name for name in KNOWN if any(math.isfinite(value(r, name)) for r in records)]
    others = {name for r in records for name in r.metrics.others}
    return mine + sorted(others - set(mine))


def lacking(
    name: str, records: Sequence[Record], what: str, option: Callable[[str], str]
) -> InputError:
    """Return the error for a metric that no `what` has.

    The message lists the metrics that exist; the hint is `option` of the nearest name.
    """
    there = every(records)
    near = get_close_matches(name, there, n=1)
    text = ", ".join(there) or "no metrics"
    whose = f"the {what.replace('run', 'runs', 1)} have"
    return InputError(
        f"no {what} has the metric '{name}'; {whose}: {text}",
        hint=option(near[0] if near else there[0]) if there else "fleet doctor",
    )


def loss_text(name: str, share: float, records: Sequence[Record] = ()) -> str:
    """Return a gate on a loss of this size, as it is typed, for a metric of either direction.

    The share keeps its sign only where the direction of the metric is unknown.
    """
    way = better_way(name, records)
    return limit_text(name, -way * abs(share) if way else share)


def wrong_way(name: str, below: bool, records: Sequence[Record] = ()) -> str:
    """Return why a gate can never fail on a loss, or "" if it can or the better way is unknown.

    With `below`, the gate fails below its limit, otherwise above.
    """
    way = better_way(name, records)
    if not way or below == (way > 0):
        return ""
    high, low = ("higher", "rises") if way > 0 else ("lower", "falls")
    return f"a {high} {name} is better, and this gate fails only if {name} {low}"
