"""From weighted evidence to ranked causes with a confidence.

Pieces of evidence for one cause add up as independent witnesses do (1 - product of
1 - weight). The confidence is the share of a cause among all that have evidence, held
against the chance that none of them is it; tests/triage measures how well it is calibrated.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from fleet.model.cause import Cause
from fleet.model.diagnosis import Evidence, Ranked

CERTAIN = 0.9  # a signature of this weight rules out the causes that its cause excludes
SHOWN = 5
_LEAST = 0.03
_MOST = 0.99  # no log and no probe is proof
_LATER = 0.93  # of the weight, for each distinct line of evidence that stands before
_LATEST = 6
_SUMMED = 0.1  # of the weight, for last lines where a line above says more
_SHARED = 0.3  # of the score of a cause that explains only lines that the first explains too
_PLAIN = 0.75  # of a line that shows its cause by itself
_CURVE = 0.6  # tests/triage: below 0.6 the plain share was right more often than it said
_FOREIGN = 0.5  # a cause that is not known on the platform that the log shows


@dataclass(frozen=True)
class Witness:
    """One piece of evidence for a cause. `order` counts the distinct causal lines before it.

    A `fact` was seen on the device itself, so it holds on every platform.
    """

    cause: Cause
    weight: float
    evidence: Evidence
    order: int = 0
    summary: bool = False
    fact: bool = False
    slots: Mapping[str, str] = field(default_factory=dict, compare=False)


def rank(
    witnesses: Iterable[Witness], platform: str = "", *, known: Mapping[str, Cause]
) -> tuple[Ranked, ...]:
    """The causes, most likely first.

    Lines that only sum up count where nothing else does; otherwise they only fill the end.
    """
    every = [witness for witness in witnesses if witness.cause.id in known]
    if any(witness.cause.severity == "error" and not witness.summary for witness in every):
        every = [
            witness for witness in every if witness.cause.severity == "error" or not witness.fact
        ]
    causal = [witness for witness in every if not witness.summary]
    counted = _not_excluded(causal or every)
    scores = _explained(_scores(counted, platform), counted)
    shares = _confidences(scores)
    if causal:
        rest = _scores(
            [witness for witness in every if witness.summary and witness.cause.id not in scores],
            platform,
        )
        scores |= {key: _SUMMED * value for key, value in rest.items()}
        shares |= {key: _SUMMED * value for key, value in rest.items()}
        counted += [witness for witness in every if witness.cause.id in rest]
    ranked = sorted(scores, key=lambda key: (-scores[key], key))
    return tuple(
        Ranked(
            cause=known[key],
            confidence=shares[key],
            evidence=tuple(
                dict.fromkeys(witness.evidence for witness in counted if witness.cause.id == key)
            ),
            platform=platform,
            summary=not causal,
            agreeing=sum(witness.cause.id == key and witness.weight > 0 for witness in counted),
            slots=_slots(witness for witness in counted if witness.cause.id == key),
        )
        for key in ranked
        if scores[key] >= _LEAST * (_SUMMED if causal else 1.0)
    )[:SHOWN]


def _slots(witnesses: Iterable[Witness]) -> dict[str, str]:
    """Of the strongest witness that has the slot."""
    found: dict[str, str] = {}
    for witness in sorted(witnesses, key=lambda witness: -witness.weight):
        found = {**witness.slots, **found}
    return found


def _scores(witnesses: Iterable[Witness], platform: str) -> dict[str, float]:
    scores: dict[str, float] = {}
    for witness in witnesses:
        weight = witness.weight * _LATER ** min(witness.order, _LATEST)
        if platform and platform not in witness.cause.platforms and not witness.fact:
            weight *= _FOREIGN
        left = 1 - scores.get(witness.cause.id, 0.0)
        scores[witness.cause.id] = 1 - left * (1 - weight)
    return scores


def _explained(scores: dict[str, float], witnesses: list[Witness]) -> dict[str, float]:
    """Return the scores, lowered for causes whose every line the first cause explains as well.

    So a longer chain of the same failure raises the confidence in its cause, not in its rivals.
    """
    lines: dict[str, set[int]] = {}
    for witness in witnesses:
        if witness.weight > 0:
            lines.setdefault(witness.cause.id, set()).add(witness.evidence.line)
    first = max(scores, key=lambda key: (scores[key], key), default="")
    own = lines.get(first, set())
    plain = {
        witness.evidence.line
        for witness in witnesses
        if witness.cause.id == first and witness.weight >= _PLAIN
    }
    return {
        key: score * _SHARED if 0 not in own and _within(lines.get(key), own, plain) else score
        for key, score in scores.items()
    }


def _within(lines: set[int] | None, own: set[int], plain: set[int]) -> bool:
    """Whether the lines are a part of the first cause's, without the line that shows it plainly."""
    return lines is not None and lines < own and not plain <= lines


def _confidences(scores: Mapping[str, float]) -> dict[str, float]:
    """A cause's score, held against the others; the curve was fitted on reported cases."""
    whole = sum(scores.values()) + 1 - max(scores.values(), default=0.0)
    alone = len([score for score in scores.values() if score >= _LEAST]) == 1
    shares = {}
    for key, score in scores.items():
        share = score if alone else score * score / whole + score * (1 - score) / 2
        shares[key] = min(score, share) ** _CURVE
    total = max(1.0, sum(shares.values()))
    return {key: min(_MOST, share / total) for key, share in shares.items()}


def _not_excluded(witnesses: list[Witness]) -> list[Witness]:
    """Without those that a sure one rules out; two that rule out each other both stay."""
    sure = {witness.cause.id: witness.cause for witness in witnesses if witness.weight >= CERTAIN}
    out = {
        other
        for cause in sure.values()
        for other in cause.excludes
        if other not in sure or cause.id not in sure[other].excludes
    }
    return [witness for witness in witnesses if witness.cause.id not in out]
