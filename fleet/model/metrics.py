"""The metrics that fleet knows: the one list for tables, gates, the database and docs.

A runner may also report numbers with any other name; those are shown with their unit.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

MORE, LESS, UNKNOWN = 1, -1, 0
# the meaning of a number for one inference of a network
LATENCY, P90, RATE = "latency", "p90", "rate"
PERPLEXITY = "perplexity"  # exp of the mean negative natural logarithm of a token's probability
_TIMES = {
    *("ns", "us", "µs", "ms", "s", "sec", "seconds", "min"),
    *("microsec", "milliseconds", "cycles"),
}
_RATE = re.compile(r"^.+(/s|/sec|ps)$|^hz$", re.IGNORECASE)


@dataclass(frozen=True)
class Metric:
    """A number that a run measures.

    `better` is MORE, LESS or UNKNOWN. `title` is the title of its column; `head` is a shorter one
    for the table of a run, which shows the number with `digits` decimals. `about` describes a field
    of `metrics` in a record; a metric without it is stored under `others`. `compared` metrics are
    in each comparison, `tabled` ones in the table of a run, `listed` ones in the list of records.
    `network` is its meaning for one inference (LATENCY, P90, RATE), `mean` marks a mean. `formats`
    are the profile formats that contain it.
    """

    name: str
    unit: str = ""
    better: int = UNKNOWN
    title: str = ""
    about: str = ""
    head: str = ""
    digits: int = 1
    compared: bool = False
    tabled: bool = False
    listed: bool = False
    network: str = ""
    mean: bool = False
    formats: tuple[str, ...] = ()

    @property
    def shown(self) -> str:
        """The name for people: `gen tok/s`."""
        return self.title or f"{self.name} {self.unit}".strip()

    @property
    def column(self) -> str:
        """The title of its column in the table of a run."""
        return self.head or self.shown


# in the order of columns
METRICS = (
    Metric("init_ms", "ms", LESS, "init ms", "Load of the model in milliseconds.",
           compared=True, tabled=True, formats=("genie", "llama_cpp", "executorch", "scripted")),
    Metric("ttft_ms", "ms", LESS, "TTFT ms", "Time to the first token in milliseconds.",
           compared=True, tabled=True, listed=True,
           formats=("genie", "geniex", "executorch", "scripted")),
    Metric("prompt_tps", "tok/s", MORE, "prompt tok/s", "Rate of the prompt in tokens per second.",
           digits=2, compared=True, tabled=True,
           formats=("genie", "geniex", "llama_cpp", "executorch", "mllm", "scripted")),
    Metric("decode_tps", "tok/s", MORE, "gen tok/s", "Rate of generation in tokens per second.",
           digits=2, compared=True, tabled=True, listed=True,
           formats=("genie", "geniex", "llama_cpp", "executorch", "mllm", "scripted")),
    # same information as the rate, so that no comparison needs both
    Metric("decode_ms", "ms", LESS, "gen ms", "Time of generation in milliseconds.",
           formats=("genie", "geniex", "llama_cpp", "executorch", "scripted")),
    Metric("prompt_tokens", title="prompt tokens", about="Tokens of the prompt.", digits=0,
           formats=("genie", "geniex", "llama_cpp", "executorch", "scripted")),
    Metric("generated_tokens", title="gen tokens", about="Tokens that were generated.",
           head="tokens", digits=0, tabled=True,
           formats=("genie", "geniex", "llama_cpp", "executorch", "scripted")),
    # the first of these that a run has is its latency; the clock of qnn-net-run comes last
    Metric("run_ms", "ms", LESS, network=LATENCY, formats=("ort",)),
    Metric("run_mean_ms", "ms", LESS, network=LATENCY, mean=True, formats=("executorch",)),
    Metric("execute_median_us", "us", LESS, network=LATENCY, formats=("qnn",)),
    Metric("execute_us", "us", LESS, network=LATENCY, formats=("qnn",)),
    Metric("netrun_execute_us", "us", LESS, network=LATENCY, mean=True, formats=("qnn",)),
    Metric("run_p90_ms", "ms", LESS, network=P90, formats=("ort",)),
    Metric("execute_p90_us", "us", LESS, network=P90, formats=("qnn",)),
    Metric(PERPLEXITY, better=LESS, title="perplexity", digits=3, formats=("llama_cpp",)),
    Metric("ips", "inf/s", MORE, network=RATE, formats=("ort", "executorch", "qnn")),
)  # fmt: skip
KNOWN = {metric.name: metric for metric in METRICS}
FIELDS = tuple(metric.name for metric in METRICS if metric.about)  # of `metrics` in a record
COMPARED = tuple(metric.name for metric in METRICS if metric.compared)
PRIMARY = KNOWN["decode_tps"]  # the metric of a comparison if none is named
# Metrics of one inference that no field has, in the units of tables.
NETWORK = {
    LATENCY: Metric("latency_ms", "ms", LESS, "latency ms", digits=2),
    P90: Metric("p90_ms", "ms", LESS, "p90 ms", digits=2),
    RATE: Metric("rate", "inf/s", MORE, "inf/s"),
}


def names_of(network: str) -> tuple[str, ...]:
    """Return the metrics with this meaning for one inference, the best first."""
    return tuple(metric.name for metric in METRICS if metric.network == network)


HEADLINES = (PRIMARY.name, *names_of(LATENCY))  # the number of a run, if only one is shown


@dataclass(frozen=True)
class Phase:
    """A part of a generation; tokens, rate and time are names of metrics."""

    tokens: str
    rate: str
    time: str


PROMPT = Phase("prompt_tokens", "prompt_tps", "prompt_ms")
ANSWER = Phase("generated_tokens", PRIMARY.name, "decode_ms")


def direction(unit: str) -> int:
    """Return which direction is better, from the unit: rates up, times and cycles down."""
    if unit.lower() in _TIMES:
        return LESS
    return MORE if _RATE.match(unit) else UNKNOWN


def limit_text(name: str, share: float) -> str:
    """Return a gate as the user types it: `ttft_ms>+5%`."""
    return f"{name}{'<' if share < 0 else '>'}{share * 100:+g}%"


LOSS = limit_text(PRIMARY.name, -0.05)  # the gate of examples
TIME_LOSS = limit_text("ttft_ms", 0.1)


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
