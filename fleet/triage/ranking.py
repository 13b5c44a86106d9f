"""The ranking of causes by weighted evidence, with a confidence.

Pieces of evidence for one cause add up like independent witnesses (1 - product of 1 - weight). The
confidence is the share of a cause among all with evidence, reduced by the chance that none of them
is right. tests/triage measures its calibration.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from fleet.model.cause import Cause
from fleet.model.diagnosis import Evidence, Ranked

CERTAIN = 0.9  # a signature of this weight rules out the causes that its cause excludes
SHOWN = 5
_LEAST = 0.03
_MOST = 0.99  # neither a log nor a probe is proof
_LATER = 0.93  # factor of the weight for each distinct earlier line of evidence
_LATEST = 6
_SUMMED = 0.1  # factor for last lines, if an earlier line says more
_SHARED = 0.3  # factor for a cause whose lines are all explained by the first cause too
_PLAIN = 0.75  # weight of a line that identifies its cause alone
_CURVE = 0.6  # tests/triage: below 0.6 causes were right more often than the plain share
_FOREIGN = 0.5  # factor for a cause that is unknown on the platform of the log


@dataclass(frozen=True)
class Witness:
    """A piece of evidence for a cause. `order` counts the distinct causal lines before it.

    A `fact` was observed on the device itself, so it holds on every platform.
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
    """Return the causes, the most likely first.

    Lines that only sum up earlier errors count if there is no other line; otherwise they only fill
    the end of the ranking.
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
    """Return each slot from the strongest witness that has it."""
    slots: dict[str, str] = {}
    for witness in sorted(witnesses, key=lambda witness: -witness.weight):
        slots = {**witness.slots, **slots}
    return slots


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

    Thus a longer chain of the same failure raises the confidence in its cause, not in its rivals.
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
    """Return True if the lines are a part of the first cause's lines without the telling one."""
    return lines is not None and lines < own and not plain <= lines


def _confidences(scores: Mapping[str, float]) -> dict[str, float]:
    """Return the confidence of each cause: its score compared with the scores of the others.

    The curve was fitted on reported cases.
    """
    whole = sum(scores.values()) + 1 - max(scores.values(), default=0.0)
    alone = len([score for score in scores.values() if score >= _LEAST]) == 1
    shares = {}
    for key, score in scores.items():
        share = score if alone else score * score / whole + score * (1 - score) / 2
        shares[key] = min(score, share) ** _CURVE
    total = max(1.0, sum(shares.values()))
    return {key: min(_MOST, share / total) for key, share in shares.items()}


def _not_excluded(witnesses: list[Witness]) -> list[Witness]:
    """Return the witnesses without those whose cause a sure witness rules out.

    Two causes that rule out each other both stay.
    """
    sure = {witness.cause.id: witness.cause for witness in witnesses if witness.weight >= CERTAIN}
    out = {
        other
        for cause in sure.values()
        for other in cause.excludes
        if other not in sure or cause.id not in sure[other].excludes
    }
    return [witness for witness in witnesses if witness.cause.id not in out]
