"""From a difference to a word."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from enum import StrEnum
from typing import Any

from fleet.profiles.compare.metrics import Metric
from fleet.profiles.stats.difference import Difference
from fleet.profiles.stats.families import holm

# One false alarm in twenty, less what the choice between two ways to compare costs.
CHANCE = 0.049


class Verdict(StrEnum):
    """What can be said of B against A."""

    FASTER = "faster"
    SLOWER = "slower"
    HIGHER = "higher"  # where nobody knows which way is better
    LOWER = "lower"
    SAME = "same"  # within the margin, surely
    NONE = "no difference shown"
    FEW = "too few runs"
    INCOMPARABLE = "not comparable"


MEASURED = {Verdict.FASTER, Verdict.SLOWER, Verdict.HIGHER, Verdict.LOWER, Verdict.SAME,
            Verdict.NONE}  # fmt: skip


@dataclass(frozen=True)
class Row:
    """One metric on one board. `p` is corrected for all rows; `why` where nothing can be said."""

    board: str
    metric: Metric
    difference: Difference
    verdict: Verdict = Verdict.FEW
    p: float = 1.0
    why: str = ""
    emulated: bool = False

    @property
    def shown(self) -> bool:
        """True where it is surely not 0, however small."""
        return self.verdict in MEASURED and self.p <= CHANCE

    def as_dict(self) -> dict[str, Any]:
        """Plain data; shares, not percent."""
        found = asdict(self.difference)
        return {
            "board": self.board,
            "metric": self.metric.name,
            "unit": self.metric.unit,
            "better": {1: "higher", -1: "lower"}.get(self.metric.better, "unknown"),
            "verdict": str(self.verdict),
            "why": self.why,
            "emulated": self.emulated,
            "p": self.p,
            "p_alone": found.pop("p"),
            "difference": {k: v for k, v in found.items() if k not in {"why", "least"}},
        }


def judge(
    rows: Sequence[Row],
    margin: float,
    correct: Callable[[Sequence[float]], list[float]] = holm,
) -> list[Row]:
    """The verdicts of rows that were asked together. `margin`: a share that does not matter.

    Rows that are not comparable take no part.
    """
    asked = [n for n, one in enumerate(rows) if one.difference.how and not one.why]
    corrected = dict(zip(asked, correct([rows[n].difference.p for n in asked]), strict=True))
    found = []
    for n, row in enumerate(rows):
        if n in corrected:
            found.append(_judged(row, corrected[n], len(asked), margin))
        elif row.why:
            found.append(replace(row, verdict=Verdict.INCOMPARABLE))
        else:
            found.append(replace(row, verdict=Verdict.FEW, why=row.difference.why))
    return found


def _judged(row: Row, p: float, asked: int, margin: float) -> Row:
    one = row.difference
    row = replace(row, p=p)
    if one.low is not None and one.high is not None and max(-one.low, one.high) <= margin:
        return replace(row, verdict=Verdict.SAME)
    if p <= CHANCE:
        return replace(row, verdict=direction(row.metric, _sign(one)))
    if one.p <= CHANCE and one.least * asked > CHANCE:
        why = f"{asked} questions at once take more repeats, or ask one with --metric"
        return replace(row, verdict=Verdict.FEW, why=why)
    return replace(row, verdict=Verdict.NONE)


def _sign(one: Difference) -> int:
    if one.mid:
        return 1 if one.mid > 0 else -1
    return 1 if one.above > 0.5 else -1


def direction(metric: Metric, sign: int) -> Verdict:
    """The word for more (1) or less (-1) of a metric."""
    if metric.better == 0:
        return Verdict.HIGHER if sign > 0 else Verdict.LOWER
    return Verdict.FASTER if sign == metric.better else Verdict.SLOWER
