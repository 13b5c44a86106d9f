"""What every reader of a profile gives, and how numbers and units are read."""

from __future__ import annotations

import codecs
import json
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from fleet.model.errors import ProfileError, reason
from fleet.model.metrics import KNOWN, Phase
from fleet.model.record import Measure, Metrics, Op

_MICRO = ("us", "µs", "μs", "microsec")
_MILLISECONDS = {"ms": 1.0, "s": 1000.0, "sec": 1000.0, "ns": 0.000001}
MILLISECONDS = dict.fromkeys(_MICRO, 0.001) | _MILLISECONDS
UNPROVEN = "unreadable: the output of {tool} does not say where the model ran"
RATE, RATE_UNIT = "ips", "inf/s"  # inferences a second
PER_SECOND = frozenset({"toks/sec", "tokens/sec", "tok/s", "tokens/s", "t/s"})
MOST_SOURCES = 400  # numbers as written that a record keeps; the raw file has all
_BOMS = (
    (codecs.BOM_UTF8, "utf-8-sig"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)


@dataclass(frozen=True)
class Profile:
    """What one file says of one run. `format` names the reader, `runtime` is the build id.

    `problems`, `marks` and `origin` are as of Record. What the file does not tell is "" or None.
    """

    format: str
    metrics: Metrics = field(default_factory=Metrics)
    ops: tuple[Op, ...] = ()
    runner: str = ""
    runtime: str = ""
    text: str = ""
    problems: tuple[str, ...] = ()
    marks: tuple[str, ...] = ()
    origin: Mapping[str, Any] = field(default_factory=dict)


def measured(
    phase: Phase, tokens: float | None = None, rate: float | None = None, ms: float | None = None
) -> dict[str, Measure]:
    """Return the metrics of a part of a generation, as far as they are known."""
    values = ((phase.tokens, tokens), (phase.rate, rate), (phase.time, ms))
    units = ("", KNOWN[phase.rate].unit, "ms")
    return {
        name: Measure(value, unit)
        for (name, value), unit in zip(values, units, strict=True)
        if value is not None
    }


def decoded(data: bytes) -> str:
    """The text of a file: UTF-8, or what its byte order mark says (PowerShell writes UTF-16).

    Raises ProfileError with the place of the first byte that is no text.
    """
    name = next((name for mark, name in _BOMS if data.startswith(mark)), "utf-8")
    try:
        return data.decode(name)
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise ProfileError(
            f"byte {error.start} of the file is not valid {name} text",
            line=line,
            hint="copy the file again in binary mode",
        ) from error


def json_fault(text: str, error: Exception) -> ProfileError:
    """What is wrong with JSON: the place, and whether the file was cut off."""
    if not isinstance(error, json.JSONDecodeError):
        return ProfileError(
            f"is not JSON that fleet can read: {reason(error)}",
            hint="copy or export the file again",
        )
    rest = text[error.pos :].strip()
    cut = error.msg.startswith("Unterminated") or (len(rest) < 6 and not rest.endswith(("}", "]")))
    return ProfileError(
        f"is not valid JSON: {('it is truncated' if cut else error.msg)}",
        line=error.lineno,
        hint="copy the file from the device again"
        if cut
        else (
            "if the numbers have a decimal comma, write the file again with LC_ALL=C; if not, "
            "copy the file again"
        ),
    )


def finite(value: object) -> float | None:
    """A number that is not negative and not endless, else None."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return float(value) if 0 <= value < 1e300 else None


def number(text: str) -> float | None:
    """The number that a text is, written with a point; None for anything else."""
    if not re.fullmatch(r"[+-]?\d{1,300}(\.\d{0,300})?([eE][+-]?\d{1,3})?", text, re.ASCII):
        return None
    found = float(text)
    return found if math.isfinite(found) else None


def milliseconds(value: float | None, unit: str) -> float | None:
    """ms of a time; None where the unit is no time that is known."""
    factor = MILLISECONDS.get(unit)
    return value * factor if value is not None and factor is not None else None


def slug(text: str) -> str:
    """`Number of HVX threads used` → `number_of_hvx_threads_used`."""
    return re.sub(r"[^a-z0-9]+", "_", text.lower()).strip("_")


def mean(values: Sequence[float]) -> float:
    """The mean of at least one value."""
    return sum(values) / len(values)


def middle(values: Sequence[float]) -> float:
    """The median of at least one value."""
    ordered, last = sorted(values), len(values) - 1
    return mean(ordered[last // 2 : len(values) // 2 + 1])


def percentile(values: Sequence[float], percent: float) -> float:
    """The smallest value that is not below `percent` of all (nearest rank); of one at least."""
    ordered = sorted(values)
    return ordered[max(0, math.ceil(percent / 100 * len(ordered)) - 1)]


def spread(name: str, took: Sequence[float]) -> dict[str, Measure]:
    """What the mean of several inferences hides, in µs: as `apart`, and the median and the 90th
    percentile. {} of a single one.
    """
    if len(took) < 2:
        return {}
    values = (("median", middle(took)), ("p90", percentile(took, 90)))
    found = {f"{name}_{word}_us": Measure(value, "us") for word, value in values}
    return apart(name, took, "us") | found


def apart(name: str, took: Sequence[float], unit: str) -> dict[str, Measure]:
    """The first execution, which pays for what is made ready once, and the mean of the later
    ones. {} of a single one.
    """
    if len(took) < 2:
        return {}
    values = (("first", took[0]), ("later", mean(took[1:])))
    return {f"{name}_{word}_{unit}": Measure(value, unit) for word, value in values}


class Sources:
    """Numbers as they are written, under the names of the source; the second is `name#2`."""

    def __init__(self) -> None:
        self.found: dict[str, Measure] = {}
        self._times: dict[str, int] = {}

    def add(self, name: str, value: float, unit: str) -> None:
        """One number; beyond MOST_SOURCES none is kept."""
        if len(self.found) < MOST_SOURCES:
            times = self._times[name] = self._times.get(name, 0) + 1
            self.found[f"{name}#{times}" if times > 1 else name] = Measure(value, unit)
