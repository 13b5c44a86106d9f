"""The questions that separate causes with the same log, and the evidence in their answers."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import replace

from fleet.model.diagnosis import Evidence, Leaf, Question, Ranked
from fleet.model.errors import InputError
from fleet.model.slots import FOLDERS
from fleet.triage.families import guesses
from fleet.triage.knowledge import Known
from fleet.triage.matcher import Matcher
from fleet.triage.ranking import Witness
from fleet.triage.reading import LogReading
from fleet.triage.stages import STAGE, causes_of, shown, stage_question
from fleet.triage.text import lines_of
from fleet.triage.unknown import louder
from fleet.triage.witnesses import witnesses

# From this confidence on no question is needed, if signatures agree and there is no other cause.
# Below it the question has all causes of the stage.
_SURE = 0.8
_SAID = 0.97  # the weight of a cause that a user names
_SHOWN = 0.8  # the weight of a line that a command printed
_WORD = re.compile(r"\S+")  # an answer of one word names a cause


def questions(
    ranked: tuple[Ranked, ...], reading: LogReading, who: Collection[str]
) -> tuple[Question, ...]:
    """Return the most telling question first; none if the log decides.

    One signature alone decides nothing, however often such signatures were right. `who` are the
    actor and the platform of the log.
    """
    first, *others = ranked
    if first.confidence >= _SURE and first.agreeing > 1 and not others:
        return tuple(_open(first, reading))
    rivals = [Leaf(row.cause.id, row.title) for row in ranked if not row.cause.general]
    twins = [Leaf(twin.cause, twin.reading, twin.command) for twin in first.twins]
    whole = first.confidence < _SURE
    leaves = [*rivals, *twins, *(guesses(reading) if whole else ())]
    split = stage_question(reading, who, leaves, layer=first.cause.layer, whole=whole)
    return (*filter(None, [split]), louder(reading), *_open(first, reading))


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


def check_ids(answers: Mapping[str, str], known: Known) -> None:
    """Raise InputError for an ID that no question can have, or for a cause that is none."""
    from fleet.config.problems import suggestion  # noqa: PLC0415 - YAML, for a wrong word alone

    stages = {STAGE + stage["id"]: causes_of(stage) for stage in known.stages}
    stages[f"{STAGE}any"] = []
    whole = ("log", "build", "actor", *FOLDERS, *(row["id"] for row in known.steps), *stages)
    for key, answer in answers.items():
        if key not in whole:
            raise InputError(
                f"--answer '{key}': no question has this ID",
                hint=suggestion(key, whole) or "copy the ID from the question: ID=CAUSE",
            )
        if key in stages and _WORD.fullmatch(answer) and answer not in known.causes:
            own = ", ".join(stages[key])
            raise InputError(
                f"--answer '{key}={answer}': no cause has this ID",
                hint=suggestion(answer, known.causes)
                or f"copy the cause from the question{own and f'; this stage has {own}'}",
            )


def affirmed(answers: Mapping[str, str]) -> bool:
    """Return True if a user answered a question about a stage, so the log is a device's log."""
    return any(key.startswith(STAGE) for key in answers)


def answered(
    answers: Mapping[str, str], reading: LogReading, who: Collection[str]
) -> list[Witness]:
    """Return the evidence in the answers: a cause, or lines of the output of a command.

    A pasted line has no number, because it is no line of the log.
    """
    known, evidences = reading.known, list[Witness]()
    for key, answer in answers.items():
        if key in FOLDERS or key == "actor":
            continue
        if answer.strip() in known.causes:
            evidence = Evidence("answer", f"{key}: {answer.strip()}")
            evidences.append(Witness(known.causes[answer.strip()], _SAID, evidence, fact=True))
            continue
        lines = lines_of(answer)
        stage = next((row for row in known.stages if key == STAGE + row["id"]), reading.stage)
        for row in witnesses(lines, known, "answer"):
            if not row.cause.general:
                evidences.append(replace(row, evidence=Evidence("answer", row.evidence.text)))
        for cause, pattern in shown(stage, who):
            shows = Matcher([pattern])
            match = next((line for line in lines if shows.match(line.text)), None)
            if match and cause in known.causes:
                evidence = Evidence("answer", match.text)
                evidences.append(Witness(known.causes[cause], _SHOWN, evidence, fact=True))
                break
    return evidences
