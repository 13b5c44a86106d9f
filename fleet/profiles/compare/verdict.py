"""From a difference to a word."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from enum import StrEnum
from typing import Any

from fleet.model.gates import LEAST_REPEATS
from fleet.profiles.compare.metrics import Metric
from fleet.profiles.stats import ranks
from fleet.profiles.stats.difference import Difference
from fleet.profiles.stats.families import holm, questions

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
    """One metric on one board. `why` where nothing can be said.

    `p` is corrected for the rows that were asked together, and so is the interval of the
    `difference`: it belongs to the level 1 - CHANCE / `questions`. Where so few runs have none
    of that level (`alone`) it is that of the row by itself.
    """

    board: str
    metric: Metric
    difference: Difference
    verdict: Verdict = Verdict.FEW
    p: float = 1.0
    why: str = ""
    emulated: bool = False
    questions: int = 1
    alone: bool = False

    @property
    def shown(self) -> bool:
        """True where it is surely not 0, however small."""
        return self.verdict in MEASURED and self.p <= CHANCE

    def as_dict(self) -> dict[str, Any]:
        """Plain data; shares, not percent."""
        found = asdict(replace(self.difference, bounds=None))
        return {
            "board": self.board,
            "metric": self.metric.name,
            "unit": self.metric.unit,
            "better": {1: "higher", -1: "lower"}.get(self.metric.better, "unknown"),
            "verdict": str(self.verdict),
            "why": self.why,
            "emulated": self.emulated,
            "p": self.p,
            "questions": self.questions,
            "alone": self.alone,
            "p_alone": found.pop("p"),
            "difference": {k: v for k, v in found.items() if k not in {"why", "least", "bounds"}},
        }


def judge(rows: Sequence[Row], margin: float) -> list[Row]:
    """The verdicts of rows that were asked together. `margin`: a share that does not matter.

    Rows that are not comparable take no part.
    """
    asked = [n for n, one in enumerate(rows) if one.difference.how and not one.why]
    alone = [rows[n].difference.p for n in asked]
    corrected = zip(holm(alone), questions(alone, CHANCE), strict=True)
    judged = {
        n: _judged(replace(rows[n], p=p, questions=among), margin)
        for n, (p, among) in zip(asked, corrected, strict=True)
    }
    found = []
    for n, row in enumerate(rows):
        if n in judged:
            found.append(judged[n])
        elif row.why:
            found.append(replace(row, verdict=Verdict.INCOMPARABLE))
        else:
            found.append(replace(row, verdict=Verdict.FEW, why=row.difference.why))
    return found


def _judged(row: Row, margin: float) -> Row:
    if row.difference.least * row.questions > CHANCE:
        why = (
            f"{row.questions} questions at once take {_runs_for(row.questions)} runs a side, "
            "or ask fewer with --metric"
        )
        return replace(row, verdict=Verdict.FEW, why=why, alone=True)
    one = row.difference.at(1 - CHANCE / row.questions)
    row = replace(row, difference=one)
    if one.low is not None and one.high is not None and max(-one.low, one.high) <= margin:
        return replace(row, verdict=Verdict.SAME)
    if row.p <= CHANCE:
        return replace(row, verdict=direction(row.metric, _sign(one)))
    return replace(row, verdict=Verdict.NONE)


def _runs_for(questions: int) -> int:
    """How many runs a side can answer so many questions at once."""
    count = LEAST_REPEATS
    while ranks.least_rank_sum(count, count) * questions > CHANCE:
        count += 1
    return count


def _sign(one: Difference) -> int:
    if one.mid:
        return 1 if one.mid > 0 else -1
    return 1 if one.above > 0.5 else -1


def direction(metric: Metric, sign: int) -> Verdict:
    """The word for more (1) or less (-1) of a metric."""
    if metric.better == 0:
        return Verdict.HIGHER if sign > 0 else Verdict.LOWER
    return Verdict.FASTER if sign == metric.better else Verdict.SLOWER
