"""The numbers of a record that are shown first, whichever program measured them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

# Name of the number → ms. The first that a run has is the one: qnn-net-run's own clock comes last.
MIDDLES = {
    "run_ms": 1.0,  # runner ort: the median
    "run_mean_ms": 1.0,  # qnn_executor_runner: the mean, there is nothing else
    "execute_median_us": 0.001,
    "execute_us": 0.001,
    "netrun_execute_us": 0.001,
}
MEANS = frozenset({"run_mean_ms", "netrun_execute_us"})  # no single inferences behind them
_P90 = {"run_p90_ms": 1.0, "execute_p90_us": 0.001}
_RATE = {"ips": 1.0}
KEYS = ("median", "p90", "rate")


def latency(others: Mapping[str, Mapping[str, Any]]) -> dict[str, tuple[str, float]]:
    """`median` and `p90` in ms, `rate` in inferences a second: the name of the number in
    `others` of a record's plain data, and its value. What is not there is not told.
    """
    found = {}
    for key, names in zip(KEYS, (MIDDLES, _P90, _RATE), strict=True):
        name = next((name for name in names if name in others), None)
        if name is not None:
            found[key] = name, float(others[name]["value"]) * names[name]
    return found if "median" in found else {}


@dataclass(frozen=True)
class Rate:
    """How fast a model was: `10.0 tok/s`."""

    value: float
    unit: str
    digits: int = 2

    def __str__(self) -> str:
        return f"{self.value:.{self.digits}f} {self.unit}"


# The first of these that a record has is its rate.
_RATES = (
    ("decode_tps", "tok/s", 2),
    ("rate", "inf/s", 1),
    ("prompt_tps", "prompt tok/s", 2),
)
_SHOWN = ("init_ms", "ttft_ms", "prompt_tps", "decode_tps", "generated_tokens")


def shown_numbers(record: Mapping[str, Any]) -> dict[str, float]:
    """Return what a table may show of a record, given as plain data."""
    metrics = record["metrics"]
    found = {key: metrics[key] for key in _SHOWN if metrics[key] is not None}
    return found | {key: value for key, (_, value) in latency(metrics["others"]).items()}


def median_of(records: Sequence[Mapping[str, Any]], key: str) -> float | None:
    """Return the median of a number over the records that count; None if none has it."""
    import statistics  # noqa: PLC0415 - fractions and decimal, for records only

    counted = [shown_numbers(record) for record in records if record["counts"]]
    values = [found[key] for found in counted if key in found]
    return statistics.median(values) if values else None


def rate_of(records: Sequence[Mapping[str, Any]]) -> Rate | None:
    """Return the median rate of generation, else of inference, else of the prompt."""
    for key, unit, digits in _RATES:
        value = median_of(records, key)
        if value is not None and round(value, digits):
            return Rate(value, unit, digits)
    return None
