"""The gates of `--fail-if`. A gate that could not be judged has not passed."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import ClassVar

from fleet.model.errors import InputError
from fleet.model.gates import LEAST_REPEATS
from fleet.model.metrics import LOSS, PRIMARY
from fleet.model.record import Record
from fleet.profiles.compare.comparing import Comparison
from fleet.profiles.compare.metrics import loss_text, wrong_way
from fleet.profiles.compare.verdict import MEASURED, MetricRow, Verdict

EXAMPLES = f'{LOSS}, ttft_ms>+20ms, ttft_ms>200ms, slower, "{PRIMARY.name} slower"'
_NAME = re.compile(r"[A-Za-z_][\w.\-/]*")
_NUMBER = re.compile(r"([+-]?)(\d+(?:\.\d+)?)\s*(%|[A-Za-zµ][A-Za-zµ/]*)?")
_WORDS = {v.value: v for v in (Verdict.FASTER, Verdict.SLOWER, Verdict.HIGHER, Verdict.LOWER)}
# Factors from the unit of a gate to the unit of the metric.
_SCALE = {("s", "ms"): 1e3, ("us", "ms"): 1e-3, ("ms", "us"): 1e3, ("s", "us"): 1e6}


@dataclass(frozen=True)
class Gate:
    """A gate of `--fail-if`.

    `limit` is a share (`%`), a change in `unit`, or a level of B. `word` is a verdict and replaces
    the limit. An empty `metric` stands for every metric.
    """

    text: str
    metric: str = ""
    below: bool = False
    limit: float = 0.0
    unit: str = ""
    change: bool = False
    word: Verdict | None = None


class GateOutcome(StrEnum):
    """The outcome of a gate on one board."""

    PASSED = "passed"
    TRIPPED = "tripped"
    UNJUDGED = "undecided"


@dataclass(frozen=True)
class JudgedGate:
    """The outcome of a gate on one board; `text` is the reason, with numbers."""

    gate: Gate
    board: str
    metric: str
    outcome: GateOutcome
    text: str
    PLAIN: ClassVar[str] = "gate=gate.text board metric outcome text"


def parse(text: str, option: str = "--fail-if", examples: str = EXAMPLES) -> Gate:
    """Parse one gate. Raises InputError that names the option and the column, and shows examples.

    The form is `METRIC < or > LIMIT`. A percentage or a signed number is a change of B against A; a
    number without a sign is a level of B. The other form is a verdict, optionally after a metric.
    """

    def wrong(at: int, why: str) -> InputError:
        return InputError(
            f"{option} {text!r}, column {at + 1}: {why}", hint=f"write it like {examples}"
        )

    words = text.split()
    if words and words[-1] in _WORDS and len(words) <= 2:
        name = words[0] if len(words) == 2 else ""
        if name and not _NAME.fullmatch(name):
            raise wrong(0, "the name of a metric is expected at this column")
        return Gate(text, name, word=_WORDS[words[-1]])
    at = len(text) - len(text.lstrip())
    name_match = _NAME.match(text, at)
    if not name_match:
        raise wrong(at, "the name of a metric or a verdict is expected at this column")
    at = _after(text, name_match.end())
    if at >= len(text) or text[at] not in "<>":
        raise wrong(at, "< or > is expected at this column")
    start = _after(text, at + 1)
    number = _NUMBER.match(text, start)
    if not number:
        raise wrong(start, "a number such as -5% or 200ms is expected at this column")
    if number.end() != len(text.rstrip()):
        raise wrong(number.end(), "unexpected text after the end of the condition")
    sign, digits, unit = number[1], number[2], number[3] or ""
    if unit == "%" and not sign:
        raise wrong(start, f"a percentage needs a sign: +{digits}% or -{digits}%")
    limit = float(digits) * (-1 if sign == "-" else 1) / (100 if unit == "%" else 1)
    return Gate(text, name_match[0], text[at] == "<", limit, unit, bool(sign))


def refuse_wrong_way(gate: Gate, records: Sequence[Record] = (), option: str = "--fail-if") -> None:
    """Raise InputError for a limit that only an improvement can exceed.

    Such a gate passes every loss.
    """
    if gate.word is not None:
        return
    why = wrong_way(gate.metric, gate.below, records)
    if not why:
        return
    sign, other = ("<", ">") if gate.below else (">", "<")
    right = gate.text.replace(sign, other, 1)
    if gate.change and gate.unit == "%":
        right = loss_text(gate.metric, gate.limit, records)
    raise InputError(
        f"{option} {gate.text!r} has the wrong direction, so it passes every loss: {why}",
        hint=f"{option} '{right}' (fails if {gate.metric} gets worse)",
    )


def _after(text: str, at: int) -> int:
    while at < len(text) and text[at] == " ":
        at += 1
    return at


def named(gates: Sequence[Gate], metrics: Sequence[str]) -> set[str]:
    """Return the metrics whose change the gates judge; a gate without a metric names all."""
    names = {gate.metric for gate in gates if gate.word is not None or gate.change}
    return set(metrics) if "" in names else names


def judge_gates(
    gates: Sequence[Gate], comparison: Comparison, refused: str = ""
) -> list[JudgedGate]:
    """Judge every gate on every board that it names. A gate without a board is undecided.

    `refused` is the reason why no gate may be judged, or "".
    """
    if refused:
        return [JudgedGate(gate, "", gate.metric, GateOutcome.UNJUDGED, refused) for gate in gates]
    outcomes = []
    for gate in gates:
        rows = [row for row in comparison.rows if gate.metric in {"", row.metric.name}]
        if not rows:
            text = "the metric was not measured"
            outcomes.append(JudgedGate(gate, "", gate.metric, GateOutcome.UNJUDGED, text))
        outcomes += [
            JudgedGate(
                gate,
                host,
                gate.metric,
                GateOutcome.UNJUDGED,
                "the metric was measured in A, but not in B",
            )
            for host in comparison.missing
        ]
        for row in rows:
            outcome, text = _judge(gate, row)
            outcomes.append(JudgedGate(gate, row.board, row.metric.name, outcome, text))
    return outcomes


def _judge(gate: Gate, row: MetricRow) -> tuple[GateOutcome, str]:
    level = gate.word is None and not gate.change
    if level:
        return _level(gate, row)
    change = row.difference
    text = row.verdict_text
    if change.low is not None:
        text = f"{percent(change.mid)} ({interval(row)}), {text}"
    if row.verdict not in MEASURED:
        comparable = row.verdict is not Verdict.INCOMPARABLE
        return GateOutcome.UNJUDGED, f"{text}; {row.needed(math.inf)}" if comparable else text
    if gate.word is not None:
        return (GateOutcome.TRIPPED if row.verdict is gate.word else GateOutcome.PASSED), text
    return _limit(gate, row, text)


def _limit(gate: Gate, row: MetricRow, text: str) -> tuple[GateOutcome, str]:
    """Judge a limit on a change. The gate passes if the whole interval keeps the limit.

    A gate on an unwanted change trips if the change is certain and its middle is beyond the limit.
    A gate on a required change (a rate with `<+5%`) trips if the whole interval shows that the
    change is missing.
    """
    limit, change = _share(gate, row), row.difference
    if limit is None or change.low is None or change.mid is None or change.high is None:
        return GateOutcome.UNJUDGED, _mismatch(gate, row)
    near, far = (change.high, change.low) if gate.below else (change.low, change.high)
    if not _beyond(gate, far, limit):
        return GateOutcome.PASSED, text
    sure = max(limit, 0.0) if gate.below else min(limit, 0.0)
    # A required change is also missing if nothing changed.
    decided = row.shown or sure == limit != 0.0
    if decided and _beyond(gate, change.mid, limit) and _beyond(gate, near, sure):
        return GateOutcome.TRIPPED, text
    return GateOutcome.UNJUDGED, (
        f"{text}; undecided, because the interval includes the limit; {row.needed(limit)}"
    )


def _level(gate: Gate, row: MetricRow) -> tuple[GateOutcome, str]:
    """Judge a limit on B alone; return the outcome and a text with the value of B."""
    scale, bounds = _scale(gate, row), row.difference.b
    if scale is None:
        return GateOutcome.UNJUDGED, _mismatch(gate, row)
    if bounds is None:
        return GateOutcome.UNJUDGED, (
            f"B has too few runs for an interval: run B at least {LEAST_REPEATS} times"
        )
    text = f"{bounds.mid:.4g} {row.metric.unit} ({bounds.low:.4g} to {bounds.high:.4g})"
    ends = [_beyond(gate, end, gate.limit * scale) for end in (bounds.low, bounds.high)]
    if all(ends):
        return GateOutcome.TRIPPED, text
    return (GateOutcome.UNJUDGED if any(ends) else GateOutcome.PASSED), text


def _beyond(gate: Gate, value: float, limit: float) -> bool:
    return value < limit if gate.below else value > limit


def _share(gate: Gate, row: MetricRow) -> float | None:
    """Return the limit as a share of A, None if the units differ or A has no value."""
    if gate.unit == "%":
        return gate.limit
    scale, base = _scale(gate, row), row.difference.mid_a
    return gate.limit * scale / abs(base) if scale is not None and base else None


def _scale(gate: Gate, row: MetricRow) -> float | None:
    if gate.unit in {"", row.metric.unit}:
        return 1.0
    return _SCALE.get((gate.unit, row.metric.unit))


def _mismatch(gate: Gate, row: MetricRow) -> str:
    return f"{gate.text!r} does not have the unit of the metric: {row.metric.unit or 'no unit'}"


def interval(row: MetricRow) -> str:
    """Return text such as `-7.0 % to -4.5 %`.

    The word `alone` follows if the interval is not corrected for the other questions.
    """
    change = row.difference
    return f"{percent(change.low)} to {percent(change.high)}" + (" alone" if row.alone else "")


def percent(share: float | None) -> str:
    """Return text such as `-5.2 %`, or `?` if the share is unknown."""
    return "?" if share is None else f"{round(share * 100, 1) + 0.0:+.1f} %"
