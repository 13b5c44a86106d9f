"""The questions that separate causes with the same log, and the evidence in their answers."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from difflib import get_close_matches

from fleet.model.cause import Twin
from fleet.model.diagnosis import Evidence, Question, Ranked
from fleet.model.errors import InputError
from fleet.model.slots import FOLDERS
from fleet.triage.families import GUESS, guesses
from fleet.triage.knowledge import Known
from fleet.triage.ranking import Witness
from fleet.triage.reading import LogReading
from fleet.triage.text import lines_of
from fleet.triage.unknown import louder
from fleet.triage.witnesses import witnesses

# From this confidence on no question is needed, if signatures agree and there is no other cause.
_SURE = 0.8
_UNSURE = 0.7  # below it six of ten were right: a single cause first asks for more of the log
_MOST = 3
_WORDS = {"yes": True, "y": True, "no": False, "n": False}
_SAID = 0.97  # the weight of a user's answer


def questions(ranked: tuple[Ranked, ...], reading: LogReading) -> tuple[Question, ...]:
    """Return the most telling questions first; none if the log decides.

    One signature alone decides nothing, however often such signatures were right.
    """
    first, *others = ranked
    if first.cause.general:
        guessed = guesses(reading)
        return (*guessed.before, louder(reading), *guessed.behind, *_open(first, reading))[:_MOST]
    if first.confidence >= _SURE and first.agreeing > 1 and not others:
        return tuple(_open(first, reading))
    between = [_between(first, other) for other in others[:_MOST]]
    asked = {question.yes for question in between}
    between += [_twin_question(first, twin) for twin in first.twins if twin.cause not in asked]
    if first.summary or not between or (not others and first.confidence < _UNSURE):
        between.insert(0, louder(reading))
    return (*between[:_MOST], *_open(first, reading))


def _open(first: Ranked, reading: LogReading) -> Iterator[Question]:
    """Yield questions for values that cures need and the log does not show: actor and folders."""
    if first.platform == "android" and not (reading.actor or "actor" in first.slots):
        text = (
            "Did an app run it, or a program in a shell of the phone? Answer with --answer "
            "actor=app or --answer actor=shell; the cures differ."
        )
        yield Question("actor", text)
    commands = "\n".join([first.verify, *(fix.command for fix in first.fixes)])
    for name, words in FOLDERS.items():
        if f"${{{name}:?" in commands:
            text = f"The commands need a folder: {words}. Give it with --answer {name}=PATH."
            yield Question(name, text)


def _between(first: Ranked, other: Ranked) -> Question:
    """Return the question that decides between two causes with evidence in the log.

    It is a twin question of one of them, or else the command that verifies the second one.
    """
    for twin in first.twins:
        if twin.cause == other.cause.id:
            return _twin_question(first, twin)
    for twin in other.twins:
        if twin.cause == first.cause.id:
            return _twin_question(other, twin)
    text = f"Is it this: {other.title}?"
    return Question(_id(first, other.cause.id), text, other.verify, other.cause.id, first.cause.id)


def _twin_question(first: Ranked, twin: Twin) -> Question:
    text = f"Does this hold: {twin.reading}?"
    return Question(_id(first, twin.cause), text, twin.command, twin.cause, first.cause.id)


def _id(no: Ranked, yes: str) -> str:
    return f"{no.cause.id}:{yes}"


def check_ids(answers: Iterable[str], known: Known) -> None:
    """Raise InputError for an ID that no question can have."""
    whole = ("log", "build", "actor", *FOLDERS, *(row["id"] for row in known.steps))
    causes = known.causes.keys()
    for key in answers:
        parts = key.removeprefix(GUESS).split(":")
        count = 1 if key.startswith(GUESS) else 2
        if key in whole or (len(parts) == count and causes >= {*parts}):
            continue
        raise InputError(
            f"--answer '{key}': no question has this ID",
            hint=_near(key, whole, causes) or "copy the ID from the question: ID=yes or ID=no",
        )


def _near(key: str, whole: Iterable[str], causes: Iterable[str]) -> str:
    from fleet.config.problems import suggestion  # noqa: PLC0415 - YAML, for a wrong word alone

    if ":" not in key or key.startswith(GUESS):
        return suggestion(key, [*whole, *(GUESS + cause for cause in causes)])
    ends = [next(iter(get_close_matches(part, causes, n=1)), "") for part in key.split(":")]
    return f"did you mean '{':'.join(ends)}'?" if len(ends) == 2 and all(ends) else ""


def affirmed(answers: Mapping[str, str]) -> bool:
    """Return True if a user confirmed a guess, so that a log of unknown origin is a device's
    log.
    """
    return any(
        _WORDS.get(answer.strip().lower(), False)
        for key, answer in answers.items()
        if key.startswith(GUESS)
    )


def answered(answers: Mapping[str, str], known: Known) -> list[Witness]:
    """Return the evidence in the answers: yes or no for a pair of causes, or pasted log lines."""
    evidences: list[Witness] = []
    for key, answer in answers.items():
        no, _, yes = key.partition(":")
        word = answer.strip().lower()
        if word in _WORDS:
            name = yes if _WORDS[word] else no
            if name in known.causes:
                evidence = Evidence("answer", f"{key}: {word}")
                evidences.append(Witness(known.causes[name], _SAID, evidence, fact=True))
        else:
            evidences += witnesses(lines_of(answer), known, "answer")
    return evidences
