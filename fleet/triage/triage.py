"""Triage of a log: the first causal line decides, not the last one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from fleet.model.diagnosis import HEALTHY, PROBLEM, UNRECOGNISED, Diagnosis, Ranked
from fleet.triage.asking import affirmed, answered, questions
from fleet.triage.bounded import bounded
from fleet.triage.calibration import calibrated
from fleet.triage.context import in_context
from fleet.triage.families import guesses
from fleet.triage.grammar import beside
from fleet.triage.knowledge import knowledge
from fleet.triage.ranking import rank
from fleet.triage.reading import LogReading
from fleet.triage.text import lines_of
from fleet.triage.unknown import next_step, suspects, understood
from fleet.triage.witnesses import heard

_WHOSE = (
    "nothing in the log says that it is from a Qualcomm device, and any machine can have this "
    "failure; if it is from one, add --platform linux (or android, windows)"
)


@bounded
def triage(
    text: str,
    target: str = "log",
    *,
    platform: str = "",
    causes: Path | None = None,
    answers: Mapping[str, str] | None = None,
    of_device: bool = False,
) -> Diagnosis:
    """The causes that a log shows, most likely first; none where nothing in it is known.

    `platform` (linux, android, windows) is taken from the log where it is not given. `answers`
    are those to questions of the diagnosis before, by their ids: yes, no, or pasted output.
    `of_device`, a platform, and a yes to a guess say that the log is of a Qualcomm device, or of
    the way to one; without them the words of the log decide. Never raises for what is in the log,
    except DeadlineError where google-re2 is not installed.
    """
    known = knowledge(causes)
    given = of_device or bool(platform) or affirmed(answers or {})
    reading = LogReading(lines_of(text), known, given=given)
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
    if reading.succeeded and not (reading.failures or reading.doubts):
        note = "the program finished its work, and no line of the log shows a failure"
        return Diagnosis(target, HEALTHY, notes=(note,))
    if not reading.lines:
        return Diagnosis(target, UNRECOGNISED, notes=("the log is empty",))
    return _unrecognised(target, reading, scored)


def _unrecognised(target: str, reading: LogReading, scored: tuple[Ranked, ...]) -> Diagnosis:
    """What is understood of it, and what to ask; `scored` are causes that it may not name."""
    step, why = next_step(reading)
    if scored and not (reading.of_people or reading.of_build or reading.of_others):
        why = _WHOSE
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
