"""The stage in which a log fails, and the one question that splits the causes of this stage."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from itertools import chain
from typing import Any

from fleet.model.diagnosis import Leaf, Question
from fleet.triage.reading import LogReading

STAGE = "stage:"  # the prefix of the ID of a question about a stage
_LEAVES = 12


def stage_question(
    reading: LogReading, who: Collection[str], first: Iterable[Leaf], *, layer: str, whole: bool
) -> Question | None:
    """Return the question that splits the leaves `first` and, if `whole`, those of the stage.

    A log without a word of a stage has the stage of `layer`. A leaf of `first` that has no command
    is replaced by the stage's leaf of the same cause.
    Returns None if the question would have one leaf.
    """
    stages = reading.known.stages
    by_layer = (stage for stage in stages if layer in stage.get("layers", ()))
    stage = reading.stage or next(by_layer, None)
    row = _row(stage, who) if stage else None
    own = {leaf["cause"]: Leaf(leaf["cause"], leaf["if"]) for leaf in (row or {}).get("leaves", ())}
    leaves: dict[str, Leaf] = {}
    for leaf in chain(first, own.values() if whole else ()):
        leaves.setdefault(leaf.cause, leaf if leaf.command else own.get(leaf.cause, leaf))
    if len(leaves) < 2:
        return None
    kept = tuple(leaves.values())[:_LEAVES]
    if stage is None or row is None or not any(leaf.cause in own for leaf in kept):
        return Question(f"{STAGE}any", "Which of these holds?", leaves=kept)
    return Question(f"{STAGE}{stage['id']}", row["ask"], row["command"], kept)


def _row(stage: dict[str, Any], who: Collection[str]) -> dict[str, Any]:
    rows: list[dict[str, Any]] = stage["questions"]
    return next(row for row in rows if not row.get("who") or {*row["who"]} & {*who})


def causes_of(stage: dict[str, Any]) -> list[str]:
    """Return the causes that the questions of a stage can name, each once."""
    leaves = chain.from_iterable(row["leaves"] for row in stage["questions"])
    return [*dict.fromkeys(leaf["cause"] for leaf in leaves)]


def shown(stage: dict[str, Any] | None, who: Collection[str]) -> Iterator[tuple[str, str]]:
    """Yield the causes of the stage's question, each with the pattern for a command's output."""
    for leaf in _row(stage, who)["leaves"] if stage else ():
        if leaf.get("shows"):
            yield leaf["cause"], leaf["shows"]
