"""`--fail-if`: what must not be. A gate that could not be judged has not passed."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from fleet.model.errors import InputError
from fleet.model.gates import LEAST_REPEATS
from fleet.profiles.compare.comparing import Comparison
from fleet.profiles.compare.verdict import MEASURED, Row, Verdict

EXAMPLES = 'decode_tps<-5%, ttft_ms>+20ms, ttft_ms>200ms, slower, "decode_tps slower"'
_NAME = re.compile(r"[A-Za-z_][\w.\-/]*")
_NUMBER = re.compile(r"([+-]?)(\d+(?:\.\d+)?)\s*(%|[A-Za-zµ][A-Za-zµ/]*)?")
_WORDS = {str(one): one for one in (Verdict.FASTER, Verdict.SLOWER, Verdict.HIGHER, Verdict.LOWER)}
# To the unit of the metric: milliseconds.
_SCALE = {("s", "ms"): 1e3, ("us", "ms"): 1e-3, ("ms", "us"): 1e3, ("s", "us"): 1e6}


@dataclass(frozen=True)
class Gate:
    """One of `--fail-if`. `limit` is a share (`%`), a change in `unit`, or a level of B.

    `word` instead of a limit: a verdict. `metric` "" asks every metric.
    """

    text: str
    metric: str = ""
    below: bool = False
    limit: float = 0.0
    unit: str = ""
    change: bool = False
    word: Verdict | None = None


class Outcome(StrEnum):
    """What became of a gate on one board."""

    PASSED = "passed"
    TRIPPED = "tripped"
    UNJUDGED = "could not be judged"


@dataclass(frozen=True)
class Judged:
    """One gate on one board; `text` says why, with numbers."""

    gate: Gate
    board: str
    metric: str
    outcome: Outcome
    text: str

    def as_dict(self) -> dict[str, Any]:
        """Plain data."""
        return {"gate": self.gate.text, "board": self.board, "metric": self.metric,
                "outcome": str(self.outcome), "text": self.text}  # fmt: skip


def parse(text: str) -> Gate:
    """Read one gate. Raises InputError that names the column and shows an example.

    `METRIC < or > LIMIT`: a percent or a signed number is a change of B against A, a number
    without a sign a level of B. Or a verdict, with or without a metric before it.
    """
    words = text.split()
    if words and words[-1] in _WORDS and len(words) <= 2:
        name = words[0] if len(words) == 2 else ""
        if name and not _NAME.fullmatch(name):
            raise _wrong(text, 0, "here a metric is expected")
        return Gate(text, name, word=_WORDS[words[-1]])
    at = len(text) - len(text.lstrip())
    name_found = _NAME.match(text, at)
    if not name_found:
        raise _wrong(text, at, "here a metric or a verdict is expected")
    at = _after(text, name_found.end())
    if at >= len(text) or text[at] not in "<>":
        raise _wrong(text, at, "here < or > is expected")
    start = _after(text, at + 1)
    number = _NUMBER.match(text, start)
    if not number:
        raise _wrong(text, start, "here a number is expected, -5% or 200ms")
    if number.end() != len(text.rstrip()):
        raise _wrong(text, number.end(), "here the gate should end")
    sign, digits, unit = number[1], number[2], number[3] or ""
    if unit == "%" and not sign:
        raise _wrong(text, start, f"a percent is a change: +{digits}% or -{digits}%")
    limit = float(digits) * (-1 if sign == "-" else 1) / (100 if unit == "%" else 1)
    return Gate(text, name_found[0], text[at] == "<", limit, unit, bool(sign))


def _after(text: str, at: int) -> int:
    while at < len(text) and text[at] == " ":
        at += 1
    return at


def _wrong(text: str, at: int, why: str) -> InputError:
    return InputError(f"--fail-if {text!r}, column {at + 1}: {why}", hint=f"as in: {EXAMPLES}")


def named(gates: Sequence[Gate], metrics: Sequence[str]) -> set[str]:
    """The metrics whose change these gates ask; a gate without a metric asks all of them."""
    asked = {one.metric for one in gates if one.word is not None or one.change}
    return set(metrics) if "" in asked else asked


def judge_gates(gates: Sequence[Gate], comparison: Comparison, refused: str = "") -> list[Judged]:
    """Every gate on every board that it asks. No board at all: it could not be judged.

    `refused`: why none may be judged.
    """
    if refused:
        return [Judged(one, "", one.metric, Outcome.UNJUDGED, refused) for one in gates]
    found = []
    for gate in gates:
        rows = [one for one in comparison.rows if gate.metric in {"", one.metric.name}]
        if not rows:
            text = "nothing was measured that it asks for"
            found.append(Judged(gate, "", gate.metric, Outcome.UNJUDGED, text))
        found += [
            Judged(gate, host, gate.metric, Outcome.UNJUDGED, "in A, but not in B")
            for host in comparison.missing
        ]
        for row in rows:
            outcome, text = _judge(gate, row)
            found.append(Judged(gate, row.board, row.metric.name, outcome, text))
    return found


def _judge(gate: Gate, row: Row) -> tuple[Outcome, str]:
    level = gate.word is None and not gate.change
    if level:
        return _level(gate, row)
    one = row.difference
    said = f"{row.verdict}: {row.why}" if row.why else str(row.verdict)
    if one.low is not None:
        said = f"{percent(one.mid)} ({interval(row)}), {said}"
    if row.verdict not in MEASURED:
        return Outcome.UNJUDGED, said
    if gate.word is not None:
        return (Outcome.TRIPPED if row.verdict is gate.word else Outcome.PASSED), said
    return _limit(gate, row, said)


def _limit(gate: Gate, row: Row, said: str) -> tuple[Outcome, str]:
    """The whole interval within the limit has passed; what may be beyond it has not.

    A change that must not be trips where it is one for sure, and its middle beyond the limit;
    one that must be (`decode_tps<+5%`) where the whole interval says that it is not.
    """
    limit, one = _share(gate, row), row.difference
    if limit is None or one.low is None or one.mid is None or one.high is None:
        return Outcome.UNJUDGED, _mismatch(gate, row)
    near, far = (one.high, one.low) if gate.below else (one.low, one.high)
    if not _beyond(gate, far, limit):
        return Outcome.PASSED, said
    sure = max(limit, 0.0) if gate.below else min(limit, 0.0)
    told = row.shown or sure == limit != 0.0  # what has to be is missing where nothing changed, too
    if told and _beyond(gate, one.mid, limit) and _beyond(gate, near, sure):
        return Outcome.TRIPPED, said
    return Outcome.UNJUDGED, f"{said}; it may be beyond the limit or not"


def _level(gate: Gate, row: Row) -> tuple[Outcome, str]:
    """B by itself; what A is does not matter."""
    scale, one = _scale(gate, row), row.difference.b
    if scale is None:
        return Outcome.UNJUDGED, _mismatch(gate, row)
    if one is None:
        return Outcome.UNJUDGED, f"the runs of B give no interval: {LEAST_REPEATS} do"
    said = f"{one.mid:.4g} {row.metric.unit} ({one.low:.4g} to {one.high:.4g})"
    ends = [_beyond(gate, end, gate.limit * scale) for end in (one.low, one.high)]
    if all(ends):
        return Outcome.TRIPPED, said
    return (Outcome.UNJUDGED if any(ends) else Outcome.PASSED), said


def _beyond(gate: Gate, value: float, limit: float) -> bool:
    return value < limit if gate.below else value > limit


def _share(gate: Gate, row: Row) -> float | None:
    """The limit as a share of A."""
    if gate.unit == "%":
        return gate.limit
    scale, base = _scale(gate, row), row.difference.mid_a
    return gate.limit * scale / abs(base) if scale is not None and base else None


def _scale(gate: Gate, row: Row) -> float | None:
    if gate.unit in {"", row.metric.unit}:
        return 1.0
    return _SCALE.get((gate.unit, row.metric.unit))


def _mismatch(gate: Gate, row: Row) -> str:
    return f"{gate.text!r} does not fit a metric in {row.metric.unit or 'no unit'}"


def interval(row: Row) -> str:
    """`-7.0 % to -4.5 %`; `alone` where it is not corrected for the questions beside it."""
    one = row.difference
    return f"{percent(one.low)} to {percent(one.high)}" + (" alone" if row.alone else "")


def percent(share: float | None) -> str:
    """`-5.2 %`; `?` where it is not known."""
    return "?" if share is None else f"{round(share * 100, 1) + 0.0:+.1f} %"
