"""What one inference of a network takes, whichever program measured it."""

from __future__ import annotations

from collections.abc import Mapping
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
