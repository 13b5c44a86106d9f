"""The guesses about lines that no signature knows: their subject and their symptom.

Such a guess was right in one case of three on logs that no pattern had been written for. It becomes
a question, never a cause.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain

from fleet.model.cause import Cause
from fleet.model.diagnosis import Question, Ranked
from fleet.model.slots import filled
from fleet.triage.explain import explain
from fleet.triage.reading import LogReading
from fleet.triage.text import Line, is_quiet
from fleet.triage.unknown import codes_of

GUESS = "guess:"  # the prefix of the ID of a guess
_MOST = 2
_READ = 50  # failing lines whose numbers are looked up
_LONG = 4  # characters of a number; shorter numbers can mean anything
_FEW = 2  # the most causes that may list a number that decides alone


@dataclass(frozen=True)
class Guesses:
    """The questions before the open next step, and the questions after it."""

    before: tuple[Question, ...] = ()
    behind: tuple[Question, ...] = ()


def guesses(reading: LogReading, left: tuple[Ranked, ...] = ()) -> Guesses:
    """Return questions about the failing lines, then about the others; none if nothing is known.

    Causes that are `left` have evidence in a log that may not come from a device.
    """
    if reading.of_people:
        return Guesses()
    before = {guess.cause.id: _read(guess, build=bool(reading.of_build)) for guess in left[:_MOST]}
    behind: dict[str, Question] = {}
    if not (reading.of_build or reading.of_others):
        for cause, line, sure in chain(_by_words(reading), _by_number(reading)):
            if len(before) + len(behind) >= _MOST:
                break
            asked = before if sure else behind
            asked.setdefault(cause.id, _guess(cause, line.number))
    later = (question for name, question in behind.items() if name not in before)
    return Guesses(tuple(before.values()), tuple(later))


def sure_guess(reading: LogReading) -> tuple[Cause, Line] | None:
    """Return the cause and the first error line with a known subject and symptom; else None."""
    for cause, line, sure in _by_words(reading):
        if sure and not is_quiet(line.text):
            return cause, line
    return None


def _by_words(reading: LogReading) -> Iterator[tuple[Cause, Line, bool]]:
    known = reading.known
    subjects = known.subjects.over(reading.text)
    symptoms = known.symptoms.over(reading.text)
    harmful = [line for line in reading.lines if not (reading.benign(line) or reading.ended(line))]
    for line in [*reading.failures, *harmful]:
        about, wrong = subjects.match(line.text), symptoms.match(line.text)
        cell = (min(about), min(wrong)) if about and wrong else (-1, -1)
        name = known.families.get(cell, "")
        if name in known.causes:
            yield known.causes[name], line, cell not in known.unsure


def _by_number(reading: LogReading) -> Iterator[tuple[Cause, Line, bool]]:
    """Yield the first cause that lists the first number or name of an error."""
    for line in reading.failures[:_READ]:
        for code in codes_of(line.text):
            causes = explain(code).causes if len(code) >= _LONG else ()
            if causes:
                yield causes[0], line, len(causes) <= _FEW
                return


def _line(cause: Ranked) -> int:
    return cause.evidence[0].line if cause.evidence else 1


def _guess(cause: Cause, line: int) -> Question:
    text = f"Line {line} may mean: {filled(cause.title, {})}. Does this command fail?"
    return Question(f"{GUESS}{cause.id}", text, cause.verify, yes=cause.id)


def _read(cause: Ranked, *, build: bool) -> Question:
    """Return the question if this cause is right: about a `build`, or about a device."""
    asked = "Is that the first error" if build else "Does this command fail on your Qualcomm device"
    text = f"Line {_line(cause)} says: {cause.title}. {asked}?"
    return Question(
        f"{GUESS}{cause.cause.id}", text, "" if build else cause.verify, yes=cause.cause.id
    )
