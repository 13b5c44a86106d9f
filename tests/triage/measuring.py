"""How often the triage of a log alone is right: top-1, top-3, calibration.

`python -m tests.triage.measuring [FILE...]` prints every miss; the tests hold the figures.
"""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fleet.triage.triage import ALARM, triage

DATA = Path(__file__).parent / "data"
NO_CAUSE = {"benign-noise", "none"}


@dataclass
class Measured:
    """`right` and `near` are ids of cases whose cause came first, or among the first three."""

    total: int = 0
    right: list[str] = field(default_factory=list)
    near: list[str] = field(default_factory=list)
    misses: list[str] = field(default_factory=list)
    confidence: list[tuple[float, bool]] = field(default_factory=list)

    @property
    def top1(self) -> float:
        return len(self.right) / self.total

    @property
    def top3(self) -> float:
        return len(self.near) / self.total

    def calibration(self, low: float, high: float) -> tuple[int, float, float]:
        """Count, mean confidence and share of right ones among answers in [low, high)."""
        inside = [(c, ok) for c, ok in self.confidence if low <= c < high]
        count = len(inside) or 1
        return len(inside), sum(c for c, _ in inside) / count, sum(ok for _, ok in inside) / count


def cases(name: str) -> list[dict[str, Any]]:
    """Cases with a log and a known cause."""
    rows = [json.loads(line) for line in (DATA / name).read_text("utf-8").splitlines()]
    return [row for row in rows if row["root_cause"] != "unknown" and row["log"]]


def measure(rows: list[dict[str, Any]], *, of_device: bool = False) -> Measured:
    """Triage every log and compare; `of_device`: as somebody does who says whose log it is."""
    found = Measured(len(rows))
    for row in rows:
        ranked = triage(row["log"], of_device=of_device).causes
        ids = [one.cause.id for one in ranked]
        wanted = row["root_cause"]
        quiet = not ranked or ranked[0].confidence < ALARM
        fine = quiet if wanted in NO_CAUSE else ids[:1] == [wanted]
        near = fine or wanted in ids[:3]
        if fine:
            found.right.append(row["id"])
        else:
            shown = [(one.cause.id, round(one.confidence, 2)) for one in ranked[:3]]
            found.misses.append(f"{'near' if near else 'MISS'} {row['id']}: {wanted} got {shown}")
        if near:
            found.near.append(row["id"])
        if ranked:
            found.confidence.append((ranked[0].confidence, fine))
    return found


def main() -> None:
    """Print the figures for the named files of tests/triage/data."""
    for name in sys.argv[1:] or ["reported.jsonl", "unseen1.jsonl"]:
        found, told = measure(cases(name)), measure(cases(name), of_device=True)
        lines = [
            (
                f"{name}: {found.total} cases, top-1 {found.top1:.1%}, top-3 {found.top3:.1%}; "
                f"said to be of a device {told.top1:.1%}, {told.top3:.1%}"
            )
        ]
        lines += [f"  {miss}" for miss in found.misses]
        for low, high in ((0.0, 0.3), (0.3, 0.6), (0.6, 0.8), (0.8, 1.01)):
            count, said, right = found.calibration(low, high)
            lines.append(
                f"  {low:.1f}-{high:.1f}: {count} answers, {said:.2f} said, {right:.2f} right"
            )
        sys.stdout.write("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
