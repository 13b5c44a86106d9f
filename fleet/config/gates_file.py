"""The shape of `cool`, `until`, `sustained` and `sample` under `run:` in a playbook."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from fleet.config.shape import Body
from fleet.config.values import After, Before, Doc, Duration, Pattern, Schema, seconds_of
from fleet.config.yamlpos import describe
from fleet.model.errors import InputError
from fleet.model.gates import (
    AUTO,
    DEFAULT_AT_MOST,
    DEFAULT_COOL_SECONDS,
    DEFAULT_METRIC,
    LEAST_REPEATS,
    CoolSpec,
    UntilSpec,
    parse_celsius,
    parse_percent,
)
from fleet.model.metrics import PRIMARY

# The device's `sleep` can outlive its run by one sampling interval at most.
SHORTEST_SAMPLE, LONGEST_SAMPLE = 0.1, 60.0
_PERCENT: dict[str, Any] = {
    "type": "string",
    "pattern": r"^\s*(?!0{1,2}(\.0+)?\s*%)[0-9]{1,2}(\.[0-9]{1,3})?\s*%\s*$",
}


def _celsius(value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        raise InputError(
            f"the value must be a temperature, not {describe(value)}", hint="write it like 45C"
        )
    return parse_celsius(value)


def _percent(value: object) -> float:
    if not isinstance(value, str):
        raise InputError(
            f"the value must be a percentage, not {describe(value)}", hint="write it like 3%"
        )
    return parse_percent(value)


def _level(value: object) -> float:
    share = _percent(value)
    if share < 0.5:
        raise InputError(
            f"the confidence level {share:.0%} is below 50%", hint="use 50% or more, such as 95%"
        )
    return share


def _at_most(value: int) -> int:
    if value < LEAST_REPEATS:
        raise InputError(
            f"at_most is {value}, but a confidence interval needs at least {LEAST_REPEATS} runs",
            hint=f"write {LEAST_REPEATS} or more",
        )
    return value


Celsius = Annotated[
    float,
    Before(_celsius),
    Schema(
        {
            "anyOf": [
                {"type": "number", "minimum": 1, "maximum": 150},
                {
                    "type": "string",
                    "pattern": r"^\s*(150|1[0-4][0-9]|[1-9][0-9]?)(\.[0-9]{1,2})?\s*°?\s*[Cc]?\s*$",
                },
            ]
        }
    ),
]
Percent = Annotated[float, Before(_percent), Schema(_PERCENT)]
Level = Annotated[
    float,
    Before(_level),
    Schema({"type": "string", "pattern": r"^\s*[5-9][0-9](\.[0-9]{1,3})?\s*%\s*$"}),
]
AtMost = Annotated[int, After(_at_most), Schema({"type": "integer", "minimum": LEAST_REPEATS})]
ZoneName = Annotated[
    str, Pattern(r"[^\x00-\x1f]{1,64}", "thermal zone", "write a name, a glob like cpu*, or `auto`")
]
MetricName = Annotated[
    str, Pattern(r"[a-z][a-z0-9_]{0,40}", "metric", f"write a name like {PRIMARY.name} or ttft_ms")
]


class CoolBody(Body, frozen=True, kw_only=True):
    """The condition for a device to be cool enough for a run."""

    below: Annotated[Celsius, Doc("Wait until the zone is below this temperature: 45C.")]
    zone: Annotated[
        ZoneName,
        Doc(
            "Name or glob of the thermal zones to read; `auto`: those of NPU, CPU and SoC. "
            "Of several zones the hottest counts."
        ),
    ] = AUTO
    timeout: Annotated[
        Duration, Doc("Wait at most this long for the device to cool down: seconds, or 90s, 5m.")
    ] = DEFAULT_COOL_SECONDS
    otherwise: Annotated[
        Literal["fail", "go on"],
        Doc(
            "What to do if the device does not cool down in time, or has no readable "
            "temperature: `fail` (no run), or `go on` (run anyway, and mark the run)."
        ),
    ] = "fail"

    def spec(self) -> CoolSpec:
        """Return the specification for the engine."""
        return CoolSpec(self.below, self.zone, self.timeout, self.otherwise)


class UntilBody(Body, frozen=True, kw_only=True):
    """The width of a metric's confidence interval at which the repetitions stop."""

    narrower: Annotated[
        Percent,
        Doc(
            "Stop when the confidence interval of the metric is narrower than this "
            "share of its median: 3%."
        ),
    ]
    metric: Annotated[
        MetricName,
        Doc(f"Metric whose confidence interval is watched, such as {PRIMARY.name} or ttft_ms."),
    ] = DEFAULT_METRIC
    at_most: Annotated[
        AtMost, Doc("Stop after this many runs, even if the interval is still wide.")
    ] = DEFAULT_AT_MOST
    level: Annotated[Level, Doc("Confidence level of the interval: 95%.")] = 0.95

    def spec(self) -> UntilSpec:
        """Return the specification for the engine."""
        return UntilSpec(self.narrower, self.metric, self.at_most, self.level)


Cool = Celsius | CoolBody
Until = Percent | UntilBody


def _sample(value: object) -> float | None:
    if value is False or value == "off":  # YAML reads a bare `off` as false
        return None
    if value is True:
        raise InputError(
            "'sample' must be a duration or `off`, not true", hint="write it like 1s, or `off`"
        )
    seconds = seconds_of(value)
    if not SHORTEST_SAMPLE <= seconds <= LONGEST_SAMPLE:
        raise InputError(
            f"'sample' is {seconds:g} s; it must be between 100 ms and 1 min",
            hint="write it like 1s, or `off`",
        )
    return seconds


Sampling = Annotated[
    float | None,
    Before(_sample),
    Schema(
        {
            "anyOf": [
                {"type": "number", "minimum": SHORTEST_SAMPLE, "maximum": LONGEST_SAMPLE},
                {"type": "string", "pattern": r"^\s*\d+(\.\d+)?\s*(ms|s|m)?\s*$|^off$"},
                {"const": False},
            ]
        }
    ),
]


def cool_spec(body: CoolBody | float | None) -> CoolSpec | None:
    """Return the specification of `cool:` in either form, a temperature or a mapping."""
    if body is None:
        return None
    return body.spec() if isinstance(body, CoolBody) else CoolSpec(body)


def until_spec(body: UntilBody | float | None) -> UntilSpec | None:
    """Return the specification of `until:` in either form, a percentage or a mapping."""
    if body is None:
        return None
    return body.spec() if isinstance(body, UntilBody) else UntilSpec(body)
