"""The result of every reader of profiles, and the parsing of numbers and units."""

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
RATE, RATE_UNIT = "ips", "inf/s"  # inferences per second
PER_SECOND = frozenset({"toks/sec", "tokens/sec", "tok/s", "tokens/s", "t/s"})
MOST_SOURCES = 400  # original numbers that a record keeps; the raw file has all of them
_BOMS = (
    (codecs.BOM_UTF8, "utf-8-sig"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)


@dataclass(frozen=True)
class Profile:
    """The content of one file about one run. `format` names the reader, `runtime` is the build id.

    `problems`, `marks` and `origin` are those of Record. Values that the file does not contain are
    "" or None.
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
    """Return the text of a file: UTF-8, or the encoding of its byte order mark.

    PowerShell writes UTF-16, and programs on Windows end lines with CR and LF. Raises ProfileError
    with the position of the first byte that is not text.
    """
    name = next((name for mark, name in _BOMS if data.startswith(mark)), "utf-8")
    try:
        return data.decode(name).replace("\r\n", "\n")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise ProfileError(
            f"byte {error.start} of the file is not valid {name} text",
            line=line,
            hint="copy the file again in binary mode",
        ) from error


def json_fault(text: str, error: Exception) -> ProfileError:
    """Return the error in JSON text: its line, and whether the file is truncated."""
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
    """Return the number if it is finite and not negative, else None."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return float(value) if 0 <= value < 1e300 else None


def number(text: str) -> float | None:
    """Return the number that a text contains, written with a decimal point; None for other text."""
    if not re.fullmatch(r"[+-]?\d{1,300}(\.\d{0,300})?([eE][+-]?\d{1,3})?", text, re.ASCII):
        return None
    value = float(text)
    return value if math.isfinite(value) else None


def milliseconds(value: float | None, unit: str) -> float | None:
    """Return a time in ms; None if the unit is not a known unit of time."""
    factor = MILLISECONDS.get(unit)
    return value * factor if value is not None and factor is not None else None


def slug(text: str) -> str:
    """Return `number_of_hvx_threads_used` for `Number of HVX threads used`."""
    return re.sub(r"[^a-z0-9]+", "_", text.lower()).strip("_")


def mean(values: Sequence[float]) -> float:
    """Return the mean of at least one value."""
    return sum(values) / len(values)


def middle(values: Sequence[float]) -> float:
    """Return the median of at least one value."""
    ordered, last = sorted(values), len(values) - 1
    return mean(ordered[last // 2 : len(values) // 2 + 1])


def percentile(values: Sequence[float], percent: float) -> float:
    """Return the smallest value that is not below `percent` of all values (nearest rank).

    There must be at least one value.
    """
    ordered = sorted(values)
    return ordered[max(0, math.ceil(percent / 100 * len(ordered)) - 1)]


def spread(name: str, took: Sequence[float]) -> dict[str, Measure]:
    """Return what the mean of several inferences hides, in µs; {} for a single inference.

    These are the numbers of `apart`, and the median and the 90th percentile.
    """
    if len(took) < 2:
        return {}
    values = (("median", middle(took)), ("p90", percentile(took, 90)))
    numbers = {f"{name}_{word}_us": Measure(value, "us") for word, value in values}
    return apart(name, took, "us") | numbers


def apart(name: str, took: Sequence[float], unit: str) -> dict[str, Measure]:
    """Return the first execution, and the mean of the later ones; {} for a single execution.

    The first execution includes the work that is done only once.
    """
    if len(took) < 2:
        return {}
    values = (("first", took[0]), ("later", mean(took[1:])))
    return {f"{name}_{word}_{unit}": Measure(value, unit) for word, value in values}


class Sources:
    """The numbers as the source wrote them, under its names; a second number is `name#2`."""

    def __init__(self) -> None:
        self.numbers: dict[str, Measure] = {}
        self._times: dict[str, int] = {}

    def add(self, name: str, value: float, unit: str) -> None:
        """Add a number, unless there are already MOST_SOURCES numbers."""
        if len(self.numbers) < MOST_SOURCES:
            times = self._times[name] = self._times.get(name, 0) + 1
            self.numbers[f"{name}#{times}" if times > 1 else name] = Measure(value, unit)
