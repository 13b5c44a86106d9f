"""The first run over a set of logs that nobody who wrote the patterns has seen.

`python -m tests.triage.firstrun FILE.jsonl [--keep NAME]`: fields id, source, log, label (the id
of a cause; none, healthy or foreign for a log without one), accepted (ids that are right, too),
question (id or cause of the next question that is right), platform, and decidable (false: the log
alone does not tell). Threads that a cause file cites are left out. `--keep` adds the answers to
data/first_runs.jsonl, over which the calibration is pooled; without FILE that alone is printed.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import comb
from pathlib import Path
from typing import Any

from fleet.model.diagnosis import Diagnosis
from fleet.triage.knowledge import knowledge
from fleet.triage.triage import observed, scored, triage

POOL = Path(__file__).parent / "data" / "first_runs.jsonl"
NONE = {"", "none", "healthy", "foreign", "benign", "benign-noise", "unrelated", "not-a-deployment"}
SURE = 0.8
EDGES = (0.0, 0.3, 0.5, 0.6, 0.7, 0.8, 0.9, 1.01)


@dataclass(frozen=True)
class Run:
    """One log of the set and what the doctor said."""

    row: dict[str, Any]
    found: Diagnosis

    @property
    def failing(self) -> bool:
        return str(self.row.get("label") or "").lower() not in NONE

    @property
    def wanted(self) -> set[str]:
        return {self.row["label"], *(self.row.get("accepted") or ())} - NONE

    @property
    def first(self) -> str:
        return self.found.causes[0].cause.id if self.found.causes else ""

    @property
    def said(self) -> float:
        return self.found.causes[0].confidence if self.found.causes else 0.0

    @property
    def right(self) -> bool:
        return self.first in self.wanted or not (self.failing or self.first)

    @property
    def asked(self) -> bool:
        """The right cause, or a next question that leads to it."""
        if self.right:
            return True
        if not self.found.questions:
            return False
        question = self.found.questions[0]
        given = self.row.get("question") or ()
        named = {str(word) for word in ([given] if isinstance(given, str) else given)}
        leaves = {leaf.cause for leaf in question.leaves}
        open_one = self.row.get("decidable") is False
        return bool({question.id, *leaves} & (self.wanted | named)) or open_one


def answers(runs: Iterable[Run]) -> list[tuple[float, bool]]:
    """Confidence and truth of every log for which a cause was named."""
    return [(run.said, run.right) for run in runs if run.first]


def expected_error(pairs: Sequence[tuple[float, bool]]) -> float:
    """Expected calibration error over the bins of EDGES."""
    return sum(
        len(inside) * abs(_mean(inside, 0) - _mean(inside, 1)) for _, _, inside in _bins(pairs)
    ) / max(1, len(pairs))


def interval(right: int, count: int, level: float = 0.9) -> tuple[float, float]:
    """Clopper and Pearson's interval of a share."""
    tail = (1 - level) / 2

    def above(share: float) -> float:
        terms = (
            comb(count, k) * share**k * (1 - share) ** (count - k) for k in range(right, count + 1)
        )
        return sum(terms)

    def below(share: float) -> float:
        return sum(comb(count, k) * share**k * (1 - share) ** (count - k) for k in range(right + 1))

    low = 0.0 if right == 0 else _root(lambda share: above(share) - tail)
    high = 1.0 if right == count else _root(lambda share: tail - below(share))
    return low, high


def _root(rising: Any) -> float:
    low, high = 0.0, 1.0
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (low, middle) if rising(middle) > 0 else (middle, high)
    return (low + high) / 2


def _bins(
    pairs: Sequence[tuple[float, bool]],
) -> list[tuple[float, float, list[tuple[float, bool]]]]:
    return [
        (low, high, inside)
        for low, high in pairwise(EDGES)
        if (inside := [pair for pair in pairs if low <= pair[0] < high])
    ]


def _mean(pairs: Sequence[tuple[float, bool]], at: int) -> float:
    return sum(pair[at] for pair in pairs) / len(pairs)


def calibration(pairs: Sequence[tuple[float, bool]]) -> list[str]:
    """The table of docs/evidence/doctor.md."""
    lines = [f"  ECE {expected_error(pairs):.3f} over {len(pairs)} answers"]
    for low, high, inside in _bins(pairs):
        right = sum(ok for _, ok in inside)
        least, most = interval(right, len(inside))
        said = _mean(inside, 0)
        holds = "holds" if least <= said <= most else "FAILS"
        lines.append(
            f"  {low:.1f}-{min(high, 1.0):.1f}: {len(inside):3} answers, said {said:.2f}, "
            f"right {_mean(inside, 1):.2f} [{least:.2f}, {most:.2f}] {holds}"
        )
    return lines


def read(path: Path) -> list[Run]:
    """Every log of the file, through the doctor once."""
    rows = [json.loads(line) for line in path.read_text("utf-8").splitlines() if line.strip()]
    return [Run(row, triage(row["log"])) for row in rows]


def figures(runs: Sequence[Run]) -> list[str]:
    """What the issue asks for, in its order."""
    failing = [run for run in runs if run.failing]
    others = [run for run in runs if not run.failing]
    decidable = [run for run in failing if run.row.get("decidable") is not False]
    healthy = [run for run in failing if run.found.verdict == "healthy"]
    boasts = [run for run in runs if run.first and not run.right and run.said >= SURE]
    alarms = [run for run in others if not run.right]
    loud = [run for run in alarms if run.said >= 0.5]
    lines = [
        f"{len(failing)} failing logs ({len(decidable)} decidable), {len(others)} others",
        f"failing logs called healthy: {len(healthy)} {[run.row['id'] for run in healthy]}",
        f"top-1: {_share(failing, 'right')}; of the decidable {_share(decidable, 'right')}",
        f"right cause or right next question first: {_share(failing, 'asked')}",
        f"wrong with {SURE} and more: {len(boasts)} of {len(runs)}",
        f"false alarms: {len(alarms)} of {len(others)}, {len(loud)} of them with 0.5 and more",
    ]
    lines += [f"  alarm {run.row['id']}: {run.first} {run.said:.2f}" for run in alarms]
    for run in failing:
        if not run.right:
            question = run.found.questions[0].id if run.found.questions else "-"
            lines.append(
                f"  {'asked' if run.asked else 'MISS'} {run.row['id']}: {run.row['label']} got "
                f"{run.first or run.found.verdict} {run.said:.2f}, asks {question}"
            )
    return lines


def by_group(runs: Sequence[Run]) -> list[str]:
    """The decidable failures by platform, and by whether the repository cites their source."""
    decidable = [run for run in runs if run.failing and run.row.get("decidable") is not False]
    groups: dict[str, list[Run]] = {}
    for run in decidable:
        cited = "cited" if _thread(run.row) in _cited() else "uncited"
        for name in (run.row.get("platform") or "unknown", cited):
            groups.setdefault(name, []).append(run)
    return [
        f"  {name}: right first {_share(group, 'right')}; or its question {_share(group, 'asked')}"
        for name, group in sorted(groups.items())
    ]


def _share(runs: Sequence[Run], what: str) -> str:
    good = sum(getattr(run, what) for run in runs)
    return f"{good} of {len(runs)} = {good / max(1, len(runs)):.3f}"


def pooled() -> list[tuple[float, bool]]:
    """The answers of all first runs before: their scores in the words of today's fit."""
    rows = [json.loads(line) for line in POOL.read_text("utf-8").splitlines()]
    return [(observed(row["score"]), row["right"]) for row in rows]


def _thread(row: dict[str, Any]) -> str:
    return str(row.get("source") or "").lower().rstrip("/")


def _cited() -> set[str]:
    """Threads that a cause file cites: the patterns may have been written from them."""
    known = knowledge(None).causes.values()
    every = {source for cause in known for source in cause.sources}
    every |= {example.source for cause in known for example in cause.examples}
    return {source.lower().rstrip("/") for source in every}


def main() -> None:
    """Print the figures, and with --keep pool the answers."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("file", type=Path, nargs="?", help="none: the pooled calibration alone")
    parser.add_argument("--keep", metavar="NAME")
    parser.add_argument("--cited", action="store_true", help="also the threads of cause files")
    given = parser.parse_args()
    if given.file is None:
        sys.stdout.write("\n".join(calibration(pooled())) + "\n")
        return
    out = set() if given.cited else _cited()
    runs = [run for run in read(given.file) if _thread(run.row) not in out]
    own = answers(runs)
    lines = [
        *figures(runs),
        "by group:",
        *by_group(runs),
        "this set:",
        *calibration(own),
        "with all first runs before:",
    ]
    lines += calibration([*pooled(), *own])
    sys.stdout.write("\n".join(lines) + "\n")
    if given.keep:
        rows = [
            {
                "set": given.keep,
                "id": run.row["id"],
                "score": round(scored(run.said), 4),
                "right": run.right,
            }
            for run in runs
            if run.first
        ]
        with POOL.open("a", encoding="utf-8") as stream:
            stream.writelines(json.dumps(row) + "\n" for row in rows)


if __name__ == "__main__":
    main()
