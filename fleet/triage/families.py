"""The guesses about lines that no signature knows: their subject and their symptom.

Such a guess was right in one case of three on logs that no pattern had been written for. It becomes
a leaf of the question, never a cause.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain, islice

from fleet.model.cause import Cause
from fleet.model.diagnosis import Leaf
from fleet.model.slots import filled
from fleet.triage.explain import explain
from fleet.triage.reading import LogReading
from fleet.triage.text import Line, is_quiet
from fleet.triage.unknown import codes_of

_MOST = 2
_READ = 50  # failing lines whose numbers are looked up
_LONG = 4  # characters of a number; shorter numbers can mean anything


def guesses(reading: LogReading) -> list[Leaf]:
    """Return the causes that the failing lines may mean, then those of the other lines."""
    if reading.of_people or reading.of_build or reading.of_others:
        return []
    causes: dict[str, Leaf] = {}
    for cause, line in chain(
        ((cause, line) for cause, line, _ in _by_words(reading)), _by_number(reading)
    ):
        causes.setdefault(
            cause.id, Leaf(cause.id, f"line {line.number}: {filled(cause.title, {})}")
        )
        if len(causes) == _MOST:
            break
    return [*causes.values()]


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
    harmful = (line for line in reading.lines if not (reading.benign(line) or reading.ended(line)))
    for line in chain(reading.failures, harmful):
        about, wrong = subjects.match(line.text), symptoms.match(line.text)
        cell = (min(about), min(wrong)) if about and wrong else (-1, -1)
        name = known.families.get(cell, "")
        if name in known.causes:
            yield known.causes[name], line, cell not in known.unsure


def _by_number(reading: LogReading) -> Iterator[tuple[Cause, Line]]:
    """Yield the first cause that lists the first number or name of an error."""
    for line in islice(reading.failures, _READ):
        for code in codes_of(line.text):
            causes = explain(code).causes if len(code) >= _LONG else ()
            if causes:
                yield causes[0], line
                return
