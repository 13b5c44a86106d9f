"""Triage of a log: the first causal line decides, not the last one."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path

from fleet.model.diagnosis import HEALTHY, PROBLEM, UNRECOGNISED, Diagnosis, Ranked
from fleet.triage.asking import answered, questions
from fleet.triage.calibration import calibrated
from fleet.triage.families import guesses
from fleet.triage.grammar import beside
from fleet.triage.knowledge import knowledge
from fleet.triage.ranking import rank
from fleet.triage.reading import LogReading
from fleet.triage.text import lines_of
from fleet.triage.unknown import next_step, suspects, understood
from fleet.triage.witnesses import heard

_CAPPED = 0.25  # without a word of a deployment a cause is a guess
_LEAST_ALONE = 0.85  # and less than this is none at all, where any machine can have it
_ANY_MACHINE = {"host", "link", "os", "user"}  # layers whose words are those of all software
_OF_A_MODEL = {"unsupported-op", "model-format", "python-package"}  # what a converter can say, too
_OPPOSED = 0.1  # below even, where the log itself shows a build, or that the work was done
_BESIDE_SUCCESS = {"runtime", "bundle", "session"}  # layers that can be wrong where it was done


def triage(
    text: str,
    target: str = "log",
    *,
    platform: str = "",
    causes: Path | None = None,
    answers: Mapping[str, str] | None = None,
) -> Diagnosis:
    """The causes that a log shows, most likely first; none where nothing in it is known.

    `platform` (linux, android, windows) is taken from the log where it is not given. `answers`
    are those to questions of the diagnosis before, by their ids: yes, no, or pasted output. Never
    raises for what is in the log.
    """
    known = knowledge(causes)
    reading = LogReading(lines_of(text), known)
    seen = platform or platform_of(reading)
    said = answered(answers or {}, known)
    scored = rank([*heard(reading), *said], seen, known=known.causes)
    names = beside(reading.text)
    ranked = tuple(
        replace(cause, slots={**cause.slots, **names})
        for cause in calibrated(in_context(scored, reading))
    )
    if ranked:
        asked = tuple(
            question
            for question in questions(ranked, reading)
            if question.id not in (answers or {})
        )
        verdict = verdict_of(ranked)
        return Diagnosis(target, verdict, ranked, notes=_notes(ranked, reading), questions=asked)
    if reading.succeeded and not reading.failures:
        note = "the program finished its work, and no line of the log shows a failure"
        return Diagnosis(target, HEALTHY, notes=(note,))
    if not reading.lines:
        return Diagnosis(target, UNRECOGNISED, notes=("the log is empty",))
    step, why = next_step(reading)
    guessed = guesses(reading, scored)
    return Diagnosis(
        target,
        UNRECOGNISED,
        notes=(why,),
        questions=(*guessed.before, step, *guessed.behind),
        understood=understood(reading),
        suspects=suspects(reading),
    )


def verdict_of(ranked: tuple[Ranked, ...]) -> str:
    """A problem where a cause is an error, advice where none is."""
    return PROBLEM if ranked[0].cause.severity == "error" else "advice"


def in_context(ranked: tuple[Ranked, ...], reading: LogReading) -> tuple[Ranked, ...]:
    """What is left of the causes in a text that is about something else."""
    if reading.of_people or (reading.of_others and reading.about("foreign")):
        return ()
    if reading.of_build:
        ranked = _capped((one for one in ranked if one.cause.id in _OF_A_MODEL), _OPPOSED)
    elif reading.succeeded and ranked and ranked[0].cause.layer not in _BESIDE_SUCCESS:
        ranked = _capped(ranked, _OPPOSED)
    if reading.of_others:
        ways = {line.number for line in reading.about("way")}
        return tuple(cause for cause in ranked if ways & set(_numbers(cause)))
    if reading.of_device:
        return tuple(cause for cause in ranked if any(map(reading.in_reach, _numbers(cause))))
    left = (
        cause
        for cause in ranked
        if cause.confidence >= _LEAST_ALONE or cause.cause.layer not in _ANY_MACHINE
    )
    return _capped(left, _CAPPED)


def _capped(ranked: Iterable[Ranked], most: float) -> tuple[Ranked, ...]:
    return tuple(replace(cause, confidence=min(cause.confidence, most)) for cause in ranked)


def _numbers(one: Ranked) -> list[int]:
    """Of its lines; what an answer or a fact says has none."""
    return [evidence.line for evidence in one.evidence if evidence.source == "log"] or [1]


def platform_of(reading: LogReading) -> str:
    """What the words of the log show; "" when they show nothing or several."""
    votes = {name: len(reading.matching(matcher)) for name, matcher in reading.known.platforms}
    best = max(votes, key=lambda name: votes[name])
    others = sum(count for name, count in votes.items() if name != best)
    return best if votes[best] > 2 * others else ""


def _notes(ranked: tuple[Ranked, ...], reading: LogReading) -> tuple[str, ...]:
    if reading.of_build:
        return (next_step(reading)[1],)
    if ranked[0].summary:
        return (("the log contains only the last error line, and many causes end with this line"),)
    return ()
