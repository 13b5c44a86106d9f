"""From a difference to a word."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import ClassVar

from fleet.model.gates import LEAST_REPEATS
from fleet.model.metrics import Metric
from fleet.profiles.stats import ranks
from fleet.profiles.stats.difference import Difference
from fleet.profiles.stats.families import holm, questions

# One false alarm in twenty, less what the choice between two ways to compare costs.
CHANCE = 0.049
GATED = 0.75  # of it for what gates name, where other rows stand beside it
TOUCH = 1e-9  # what ends at 0 and leaves it out
MOST_RUNS = 40  # a side: what `fleet ab` measures at most


class Verdict(StrEnum):
    """What can be said of B against A."""

    FASTER = "faster"
    SLOWER = "slower"
    HIGHER = "higher"  # where nobody knows which way is better
    LOWER = "lower"
    SAME = "same"  # within the margin, surely
    NONE = "no difference found"
    DIFFERS = "differs"  # among repeats of fewer runs than a verdict takes
    FEW = "too few runs"
    INCOMPARABLE = "not comparable"


MEASURED = {Verdict.FASTER, Verdict.SLOWER, Verdict.HIGHER, Verdict.LOWER, Verdict.SAME,
            Verdict.NONE}  # fmt: skip


@dataclass(frozen=True)
class MetricRow:
    """One metric on one board. `why` where nothing can be said.

    `p` is corrected for the rows that were asked together (Holm, of `questions` that were left),
    which have this `part` of CHANCE. The interval of the `difference` holds together with those of
    all of them; it leaves out 0 where p does. Where so few runs have none of that level (`alone`)
    it is that of the row by itself. `seconds`: what a
    run took; `runs`: how many A and B have, and a run may have several repeats.
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
        """Which way of the metric is better."""
        return {1: "higher", -1: "lower"}.get(self.metric.better, "unknown")

    @property
    def said(self) -> str:
        """The verdict with its reason, for people."""
        if self.verdict is Verdict.DIFFERS:
            return f"{self.verdict} ({self.why})"
        why = self.why.removeprefix(f"{self.verdict}: ")
        return f"{self.verdict}: {why}" if why else str(self.verdict)

    def needed(self, limit: float) -> str:
        """What would judge the change against a limit (a share of A): runs a side, minutes.

        Half the interval narrows with the root of the runs; a change at the limit is never told.
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
        """True where it is surely not 0, however small."""
        return self.verdict in MEASURED and self.p <= CHANCE


def judge(rows: Sequence[MetricRow], margin: float, part: float = 1.0) -> list[MetricRow]:
    """The verdicts of rows that were asked together. `margin`: a share that does not matter.

    `part`: of CHANCE. Rows that are not comparable take none of it.
    """
    asked = [n for n, row in enumerate(rows) if row.difference.how and not row.why]
    alone = [rows[n].difference.p / part for n in asked]
    corrected = zip(holm(alone), questions(alone, CHANCE), strict=True)
    judged = {
        n: _judged(replace(rows[n], p=p, questions=among, part=part), margin, len(asked))
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
    """Repeats say whether two runs differ, and nothing of what a run differs by itself."""
    a, b = (f"{count} `fleet run`" for count in row.runs)
    why = f"A and B have {a} each" if a == b else f"A has {a}, B has {b}"
    shown = row.p <= CHANCE
    why = why if shown else f"{why}; at least {LEAST_REPEATS} are needed"
    change = replace(row.difference, low=None, high=None, bounds=None)
    verdict = Verdict.DIFFERS if shown else Verdict.FEW
    return replace(row, verdict=verdict, why=why, difference=change)


def fewest_runs(questions: float, figure: bool = False) -> int:
    """How many runs a side can answer so many questions at once; of B, where A is a `figure`."""
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
    """The word for more (1) or less (-1) of a metric."""
    if metric.better == 0:
        return Verdict.HIGHER if sign > 0 else Verdict.LOWER
    return Verdict.FASTER if sign == metric.better else Verdict.SLOWER
