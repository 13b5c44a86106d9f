"""The numbers of a record that are shown first, whichever program measured them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from fleet.model.metrics import KNOWN, LATENCY, METRICS, NETWORK, PRIMARY, PROMPT, RATE, names_of

_TO_MS = {"us": 0.001}
_NAMES = {
    kind: {name: _TO_MS.get(KNOWN[name].unit, 1.0) for name in names_of(kind)} for kind in NETWORK
}
MIDDLES = _NAMES[LATENCY]  # name of the metric → its factor to ms; the first that a run has is used
MEANS = frozenset(metric.name for metric in KNOWN.values() if metric.mean)


def latency(others: Mapping[str, Mapping[str, Any]]) -> dict[str, tuple[str, float]]:
    """Return latency and p90 in ms and the rate in inferences per second, as far as measured.

    Each value comes with the name of its metric in `others` of a record's plain data. Returns {} if
    no latency was measured.
    """
    numbers = {}
    for key, names in _NAMES.items():
        name = next((name for name in names if name in others), None)
        if name is not None:
            numbers[key] = name, float(others[name]["value"]) * names[name]
    return numbers if LATENCY in numbers else {}


@dataclass(frozen=True)
class Rate:
    """The speed of a model: `10.0 tok/s`."""

    value: float
    unit: str
    digits: int = 2
    PLAIN: ClassVar[str] = ""

    def __str__(self) -> str:
        return f"{self.value:.{self.digits}f} {self.unit}"


def shown_numbers(record: Mapping[str, Any]) -> dict[str, float]:
    """Return the numbers that a table may show of a record, given as plain data."""
    metrics = record["metrics"]
    tabled = {m.name: metrics[m.name] for m in METRICS if m.tabled and m.about}
    numbers = {name: value for name, value in tabled.items() if value is not None}
    return numbers | {key: value for key, (_, value) in latency(metrics["others"]).items()}


def median_of(records: Sequence[Mapping[str, Any]], key: str) -> float | None:
    """Return the median of a number over the records that count; None if no record has it."""
    import statistics  # noqa: PLC0415 - fractions and decimal, for records only

    counted = [shown_numbers(record) for record in records if record["counts"]]
    values = [numbers[key] for numbers in counted if key in numbers]
    return statistics.median(values) if values else None


def rate_of(records: Sequence[Mapping[str, Any]]) -> Rate | None:
    """Return the median rate of generation; else that of inference, else that of the prompt."""
    prompt = KNOWN[PROMPT.rate]
    for key, metric, unit in (
        (PRIMARY.name, PRIMARY, PRIMARY.unit),
        (RATE, NETWORK[RATE], NETWORK[RATE].unit),
        (prompt.name, prompt, prompt.title),
    ):
        value = median_of(records, key)
        if value is not None and round(value, metric.digits):
            return Rate(value, unit, metric.digits)
    return None
