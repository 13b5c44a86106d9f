"""What is measured, in which unit, and which way is better."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from difflib import get_close_matches

from fleet.model.errors import InputError
from fleet.model.record import Metrics, Record


@dataclass(frozen=True)
class Metric:
    """`better`: 1 where more is better, -1 where less is, 0 where that is not known."""

    name: str
    unit: str
    better: int
    title: str = ""

    @property
    def shown(self) -> str:
        """The name for people: `gen tok/s`."""
        return self.title or f"{self.name} {self.unit}".strip()


KNOWN = {
    metric.name: metric
    for metric in (
        Metric("init_ms", "ms", -1, "init ms"),
        Metric("ttft_ms", "ms", -1, "TTFT ms"),
        Metric("prompt_tps", "tok/s", 1, "prompt tok/s"),
        Metric("decode_tps", "tok/s", 1, "gen tok/s"),
        Metric("decode_ms", "ms", -1, "gen ms"),
        Metric("prompt_tokens", "", 0, "prompt tokens"),
        Metric("generated_tokens", "", 0, "gen tokens"),
    )
}
# A number of these names is a field of Metrics; of all other names it stands under `others`.
FIELDS = frozenset(Metrics.__dataclass_fields__) - {"others", "source"}
# What a comparison asks by itself; decode_ms says the same as decode_tps, tokens are conditions.
USUAL = ("init_ms", "ttft_ms", "prompt_tps", "decode_tps")
_TIMES = {
    *("ns", "us", "µs", "ms", "s", "sec", "seconds", "min"),
    *("microsec", "milliseconds", "cycles"),
}
_RATE = re.compile(r"^.+(/s|/sec|ps)$|^hz$", re.IGNORECASE)
_UNIT_AT_END = re.compile(r"(?:^|_)(ns|us|ms|tps|ips|hz)(?:#\d+)?$")  # of a name: `run_p90_ms`


def direction(unit: str) -> int:
    """Which way is better, by the unit alone: rates up, times and cycles down, else unknown."""
    if unit.lower() in _TIMES:
        return -1
    return 1 if _RATE.match(unit) else 0


def metric(name: str, records: Sequence[Record]) -> Metric:
    """The metric of this name, with the unit that records give it."""
    if name in KNOWN:
        return KNOWN[name]
    units = {r.metrics.others[name].unit for r in records if name in r.metrics.others}
    unit = units.pop() if len(units) == 1 else ""
    return Metric(name, unit, direction(unit))


def better_way(name: str, records: Sequence[Record] = ()) -> int:
    """Return which way a metric is better: 1 up, -1 down, 0 unknown.

    Asks the table and the unit in the records; without a unit the end of the name decides.
    """
    mine = metric(name, records)
    at_end = _UNIT_AT_END.search(name)
    return mine.better or (direction(at_end[1]) if at_end and not mine.unit else 0)


def value(record: Record, name: str) -> float:
    """The number of a record that counts, nan where it has none."""
    if name in FIELDS:
        found = getattr(record.metrics, name)
        return math.nan if found is None else float(found)
    measure = record.metrics.others.get(name)
    return math.nan if measure is None else float(measure.value)


def units(records: Sequence[Record], name: str) -> set[str]:
    """The units in which records give a metric; more than one cannot be compared."""
    if name in FIELDS:
        return {KNOWN[name].unit}
    return {r.metrics.others[name].unit for r in records if name in r.metrics.others}


def present(records: Sequence[Record]) -> list[str]:
    """The metrics that a comparison of these records asks for by itself, in a steady order."""
    usual = [n for n in USUAL if any(math.isfinite(value(r, n)) for r in records)]
    others = {name for r in records if r.counts for name in r.metrics.others}
    return usual + sorted(others - set(usual))


def every(records: Sequence[Record]) -> list[str]:
    """The names of all metrics of these records, in a steady order."""
    mine = [name for name in KNOWN if any(math.isfinite(value(r, name)) for r in records)]
    others = {name for r in records for name in r.metrics.others}
    return mine + sorted(others - set(mine))


def lacking(
    name: str, records: Sequence[Record], what: str, option: Callable[[str], str]
) -> InputError:
    """The error for a metric that no `what` has: which there are, and `option` of the nearest."""
    there = every(records)
    near = get_close_matches(name, there, n=1)
    text = ", ".join(there) or "no metrics"
    whose = f"the {what.replace('run', 'runs', 1)} have"
    return InputError(
        f"no {what} has the metric '{name}'; {whose}: {text}",
        hint=option(near[0] if near else there[0]) if there else "fleet doctor",
    )


def limit_text(name: str, share: float) -> str:
    """A gate as it is typed: `decode_tps<-5%`."""
    return f"{name}{'<' if share < 0 else '>'}{share * 100:+g}%"


def loss_text(name: str, share: float, records: Sequence[Record] = ()) -> str:
    """Return a gate on a loss of this size, as it is typed, for a metric of either direction.

    The share keeps its sign only where the direction of the metric is unknown.
    """
    way = better_way(name, records)
    return limit_text(name, -way * abs(share) if way else share)


def wrong_way(name: str, below: bool, records: Sequence[Record] = ()) -> str:
    """Return why a gate that fails below (or above) a limit can never fail on a loss, or ""."""
    way = better_way(name, records)
    if not way or below == (way > 0):
        return ""
    high, low = ("higher", "rises") if way > 0 else ("lower", "falls")
    return f"a {high} {name} is better, and this gate fails only if {name} {low}"
