"""Lines that no signature knows: what they are about, and what is wrong with it.

That is a guess, right in one case of three on logs that no pattern had seen: it becomes a
question, never a cause.
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

GUESS = "guess:"  # of the id of a question
_MOST = 2
_READ = 50  # failing lines of which the numbers are looked up
_LONG = 4  # characters of a number; shorter ones are of anything
_FEW = 2  # causes that list a number, up to which the number alone tells


@dataclass(frozen=True)
class Guesses:
    """Questions that come before the open next step, and those that come behind it."""

    before: tuple[Question, ...] = ()
    behind: tuple[Question, ...] = ()


def guesses(reading: LogReading, left: tuple[Ranked, ...] = ()) -> Guesses:
    """What to ask of the failing lines, then of the others; none where nothing is known of them.

    Causes that are `left` have evidence in a log of which nothing says that it is of a device.
    """
    if reading.of_people:
        return Guesses()
    found = {guess.cause.id: _read(guess, build=bool(reading.of_build)) for guess in left[:_MOST]}
    behind: dict[str, Question] = {}
    if not (reading.of_build or reading.of_others):
        for cause, line, sure in chain(_by_words(reading), _by_number(reading)):
            if len(found) + len(behind) >= _MOST:
                break
            asked = found if sure else behind
            asked.setdefault(cause.id, _guess(cause, line.number))
    later = (question for name, question in behind.items() if name not in found)
    return Guesses(tuple(found.values()), tuple(later))


def sure_guess(reading: LogReading) -> tuple[Cause, Line] | None:
    """Return the cause of the first line of an error whose subject and symptom say why."""
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
    """The first cause that lists the first number or name of an error."""
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


def _read(one: Ranked, *, build: bool) -> Question:
    """Of a cause that the log names, where nothing says that it is a device's."""
    asked = "Is that the first error" if build else "Does this command fail on your Qualcomm device"
    text = f"Line {_line(one)} says: {one.title}. {asked}?"
    return Question(f"{GUESS}{one.cause.id}", text, "" if build else one.verify, yes=one.cause.id)
