"""The verdict on a difference."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import ClassVar

from fleet.model.gates import LEAST_REPEATS
from fleet.model.metrics import Metric
from fleet.profiles.stats import ranks
from fleet.profiles.stats.difference import Difference, holm, questions

# A false alarm in twenty comparisons, less the cost of choosing between two ways to compare.
CHANCE = 0.049
GATED = 0.75  # the share of CHANCE for the metrics of gates, if there are other rows
TOUCH = 1e-9  # the end of an interval that reaches 0 but excludes it
MOST_RUNS = 40  # for each side: the most that `fleet ab` measures


class Verdict(StrEnum):
    """The verdict on B compared with A."""

    FASTER = "faster"
    SLOWER = "slower"
    HIGHER = "higher"  # if it is unknown which way is better
    LOWER = "lower"
    SAME = "same"  # certainly within the margin
    NONE = "no difference found"
    DIFFERS = "differs"  # among repeats of fewer runs than a verdict needs
    FEW = "too few runs"
    INCOMPARABLE = "not comparable"


MEASURED = {Verdict.FASTER, Verdict.SLOWER, Verdict.HIGHER, Verdict.LOWER, Verdict.SAME,
            Verdict.NONE}  # fmt: skip


@dataclass(frozen=True)
class MetricRow:
    """A metric on one board. `why` is the reason if there is no verdict.

    `p` is corrected for the rows that are judged together (Holm; `questions` is the number that was
    left). These rows have `part` of CHANCE. The interval of `difference` holds together with the
    intervals of all those rows, and it excludes 0 if `p` does. If so few runs have no interval of
    that level, the interval is the one of this row alone and `alone` is True.

    `seconds` is the duration of a run. `runs` are the numbers of runs of A and B; a run may have
    several repeats.
    """

    board: str
    metric: Metric
    difference: Difference
    verdict: Verdict = Verdict.FEW
    p: float = 1.0
    why: str = ""
    emulated: bool = False
    questions: int = 1
    part: float = 1.0
    alone: bool = False
    seconds: float | None = None
    runs: tuple[int, int] = (1, 1)
    PLAIN: ClassVar[
        str
    ] = """board metric=metric.name unit=metric.unit better verdict why emulated p
        questions alone p_alone=difference.p difference"""

    @property
    def better(self) -> str:
        """The direction of the metric that is better."""
        return {1: "higher", -1: "lower"}.get(self.metric.better, "unknown")

    @property
    def verdict_text(self) -> str:
        """The verdict with its reason, for people."""
        if self.verdict is Verdict.DIFFERS:
            return f"{self.verdict} ({self.why})"
        why = self.why.removeprefix(f"{self.verdict}: ")
        return f"{self.verdict}: {why}" if why else str(self.verdict)

    def needed(self, limit: float) -> str:
        """Return what would decide the change against a limit (a share of A): runs, minutes.

        Half the interval narrows with the square root of the number of runs. A change that equals
        the limit is never decided.
        """
        change = self.difference
        runs = fewest_runs(self.questions / self.part)
        if change.how == "runs" and None not in (change.low, change.mid, change.high):
            low, mid, high = (float(end or 0.0) for end in (change.low, change.mid, change.high))
            reach, room = max(high - mid, mid - low), abs(mid - limit)
            count = min(change.count_a, change.count_b)
            runs = max(runs, count + 1, math.ceil(count * (reach / max(room, 1e-9)) ** 2))
        if runs > MOST_RUNS:
            return (
                f"the change is too close to the limit of the gate: even {MOST_RUNS} runs "
                "of A and of B "
                "would not decide"
            )
        time = f", {math.ceil(2 * runs * self.seconds / 60)} min per board" if self.seconds else ""
        return f"about {runs} runs each of A and B, alternately, would decide{time}"

    @property
    def shown(self) -> bool:
        """True if the change is certainly not 0, however small it is."""
        return self.verdict in MEASURED and self.p <= CHANCE


def judge(rows: Sequence[MetricRow], margin: float, part: float = 1.0) -> list[MetricRow]:
    """Return the rows with verdicts; all rows are judged together.

    `margin` is the share below which a change does not matter. `part` is the share of CHANCE for
    these rows. Rows that cannot be compared use none of it.
    """
    asked = [n for n, row in enumerate(rows) if row.difference.how and not row.why]
    alone = [rows[n].difference.p / part for n in asked]
    corrected = zip(holm(alone), questions(alone, CHANCE), strict=True)
    judged = {
        n: _judged(replace(rows[n], p=p, questions=among, part=part), margin, len(asked))
        for n, (p, among) in zip(asked, corrected, strict=True)
    }
    results = []
    for n, row in enumerate(rows):
        if n in judged:
            results.append(judged[n])
        elif row.why:
            results.append(replace(row, verdict=Verdict.INCOMPARABLE))
        else:
            results.append(replace(row, verdict=Verdict.FEW, why=row.difference.why))
    return results


def _judged(row: MetricRow, margin: float, asked: int) -> MetricRow:
    if row.difference.how != "runs":
        return _of_few_runs(row)
    if row.difference.least * row.questions > CHANCE * row.part:
        figure = row.difference.count_a == 1
        fewest = fewest_runs(row.questions / row.part, figure)
        why = (
            f"to decide {row.questions} metrics at once, {fewest} runs of "
            f"{'B' if figure else 'A and of B'} are needed; measure more runs, or choose fewer "
            "metrics with --metric"
        )
        return replace(row, verdict=Verdict.FEW, why=why, alone=True)
    change = row.difference.at(1 - CHANCE * row.part / asked)
    if change.low is None:  # more runs of other rows
        change = row.difference.at(1 - CHANCE * row.part / row.questions)
    low, high = change.low, change.high
    if row.p <= CHANCE and low is not None and high is not None:
        low, high = (max(low, TOUCH), high) if _sign(change) > 0 else (low, min(high, -TOUCH))
    row = replace(row, difference=replace(change, low=low, high=high))
    if low is not None and high is not None and max(-low, high) <= margin:
        return replace(row, verdict=Verdict.SAME)
    if row.p <= CHANCE:
        return replace(row, verdict=direction(row.metric, _sign(change)))
    return replace(row, verdict=Verdict.NONE)


def _of_few_runs(row: MetricRow) -> MetricRow:
    """Return the verdict on too few runs.

    Repeats show whether two runs differ, but not by how much a run varies by itself.
    """
    a, b = (f"{count} `fleet run`" for count in row.runs)
    why = f"A and B have {a} each" if a == b else f"A has {a}, B has {b}"
    shown = row.p <= CHANCE
    why = why if shown else f"{why}; at least {LEAST_REPEATS} are needed"
    change = replace(row.difference, low=None, high=None, bounds=None)
    verdict = Verdict.DIFFERS if shown else Verdict.FEW
    return replace(row, verdict=verdict, why=why, difference=change)


def fewest_runs(questions: float, figure: bool = False) -> int:
    """Return the fewest runs of each side that can answer this number of questions together.

    If A is a `figure`, it is the number of runs of B.
    """
    count = LEAST_REPEATS
    least = ranks.least_signed_rank if figure else lambda n: ranks.least_rank_sum(n, n)
    while least(count) * questions > CHANCE:
        count += 1
    return count


def _sign(change: Difference) -> int:
    if change.mid:
        return 1 if change.mid > 0 else -1
    return 1 if change.above > 0.5 else -1


def direction(metric: Metric, sign: int) -> Verdict:
    """Return the verdict for more (1) or less (-1) of a metric."""
    if metric.better == 0:
        return Verdict.HIGHER if sign > 0 else Verdict.LOWER
    return Verdict.FASTER if sign == metric.better else Verdict.SLOWER
