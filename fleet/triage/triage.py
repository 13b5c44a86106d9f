"""Triage of a log: the first causal line decides, not the last one."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from fleet.model.cause import Fix
from fleet.model.diagnosis import HEALTHY, PROBLEM, UNRECOGNISED, Diagnosis, Ranked
from fleet.model.slots import FOLDERS, SLOTS
from fleet.triage.asking import affirmed, answered, questions
from fleet.triage.bounded import bounded
from fleet.triage.calibration import calibrated
from fleet.triage.context import in_context
from fleet.triage.families import guesses
from fleet.triage.grammar import beside
from fleet.triage.knowledge import knowledge
from fleet.triage.matcher import Matcher
from fleet.triage.ranking import rank
from fleet.triage.reading import LogReading
from fleet.triage.statements import ALARM, advice, led, quoted, stated
from fleet.triage.text import lines_of, process_of
from fleet.triage.unknown import next_step, suspects, understood
from fleet.triage.witnesses import heard

_WHOSE = (
    "nothing in the log says that it is from a Qualcomm device, and any machine can have this "
    "failure; if it is from one, add --platform linux (or android, windows)"
)
_OTHER_PROCESS = 0.2  # of the confidence
_PATH = re.compile(SLOTS["path"])
_CUT = (
    "the lines are cut off at column {}: paste the whole lines, because numbers and names at their "
    "ends are missing"
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
    witnesses = [*heard(reading), *said]
    specific = [witness for witness in witnesses if not witness.cause.general]
    plain = stated(reading, [witness for witness in witnesses if witness.cause.general])
    scored = rank(specific, seen, known=known.causes)
    names = {**beside(reading.text), **actor_of(reading, answers or {})}
    ranked = tuple(
        cured(replace(cause, slots={**names, **cause.slots}, platform=seen), reading)
        for cause in led(in_context(_of_one_process(calibrated(scored)), reading), plain)
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
        return Diagnosis(target, HEALTHY, notes=_worked(reading))
    if not reading.lines:
        return Diagnosis(target, UNRECOGNISED, notes=("the log is empty",))
    return _unrecognised(target, reading, scored)


def _of_one_process(ranked: tuple[Ranked, ...]) -> tuple[Ranked, ...]:
    """Return the causes, lower where all their lines are of another process than the first's."""
    if not ranked:
        return ()
    own = _processes(ranked[0])
    return tuple(
        replace(cause, confidence=cause.confidence * _OTHER_PROCESS)
        if own and _processes(cause) and not own & _processes(cause)
        else cause
        for cause in ranked
    )


def _processes(ranked: Ranked) -> set[str]:
    return {pid for row in ranked.evidence if (pid := process_of(row.text))}


def _unrecognised(target: str, reading: LogReading, scored: tuple[Ranked, ...]) -> Diagnosis:
    """What is understood of it, and what to ask; `scored` are causes that it may not name."""
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


def platform_of(reading: LogReading) -> str:
    """What the words of the log show; "" when they show nothing or several."""
    votes = {name: len(reading.matching(matcher)) for name, matcher in reading.known.platforms}
    best = max(votes, key=lambda name: votes[name])
    others = sum(count for name, count in votes.items() if name != best)
    return best if votes[best] > 2 * others else ""


def cured(ranked: Ranked, reading: LogReading) -> Ranked:
    """Return the cause with the cures that its actor can use."""
    told = advice(reading, ranked)
    row = reading.known.cures.get(ranked.slots.get("actor", ""))
    if row is None:
        return replace(ranked, cause=ranked.cause.with_fixes((*told, *ranked.cause.fix)))
    none = Matcher([row["no_cure"]])
    kept = [
        fix
        for fix in ranked.cause.fix
        if (fix.when and fix.when.fact == "actor")
        or not none.match(f"{fix.title} {fix.command} {fix.undo}".replace("\n", " "))
    ]
    if len(kept) < len(ranked.cause.fix) and row["instead"]["title"]:
        own = any(fix.fits(ranked.platform, ranked.slots) and fix.command == "" for fix in kept)
        title, changes = row["instead"]["title"], row["instead"]["changes"]
        instead = Fix("any", title, "", "host", changes=changes, undo="the version of before")
        kept = [*kept, instead] if own else [instead, *kept]
    return replace(ranked, cause=ranked.cause.with_fixes((*told, *kept)))


def actor_of(reading: LogReading, answers: Mapping[str, str]) -> dict[str, str]:
    """Return who ran the program and the folders that answers name; {} for what is unknown."""
    given = answers.get("actor", "").strip().lower()
    actor = given if given in reading.known.cures else reading.actor
    actor = actor or ("pc" if reading.of_build else "")
    folders = {name: answers.get(name, "").strip() for name in FOLDERS}
    known = {name: path for name, path in folders.items() if _PATH.fullmatch(path)}
    return {**known, **({"actor": actor} if actor else {})}


def _worked(reading: LogReading) -> tuple[str, ...]:
    """What was seen to work, and what that ends."""
    lines = "; ".join(f"line {line.number}: {quoted(line.text)}" for line in reading.achievements)
    return (f"the log shows that this worked: {lines}", "no line after that shows a failure")


def _notes(ranked: tuple[Ranked, ...], reading: LogReading) -> tuple[str, ...]:
    notes = []
    if reading.of_build:
        notes.append(next_step(reading)[1])
    elif ranked[0].confidence < ALARM and not (
        reading.of_device and reading.beside(ranked[0].cause.context)
    ):
        notes.append(_WHOSE)
    if ranked[0].summary:
        notes.append(
            "the log contains only the last error line, and many causes end with this line"
        )
    if reading.cut:
        notes.append(_CUT.format(reading.cut))
    return tuple(notes)
