"""Lines that no signature knows: what they are about, and what is wrong with it.

That is a guess, right in one case of three on logs that no pattern had seen: it becomes a
question, never a cause.
"""

from __future__ import annotations

from fleet.model.cause import Cause
from fleet.model.diagnosis import Question, Ranked
from fleet.model.slots import filled
from fleet.triage.reading import LogReading

_MOST = 2


def guesses(reading: LogReading, left: tuple[Ranked, ...] = ()) -> list[Question]:
    """What to ask of the failing lines, then of the others; [] where nothing is known of them.

    Causes that are `left` have evidence in a log of which nothing says that it is of a device.
    """
    if reading.of_people:
        return []
    found = {cause.cause.id: _guess(cause.cause, _line(cause)) for cause in left[:_MOST]}
    if reading.of_build or reading.of_others:
        return list(found.values())
    known = reading.known
    subjects = known.subjects.over(reading.text)
    symptoms = known.symptoms.over(reading.text)
    harmful = [line for line in reading.lines if not reading.benign(line)]
    for line in [*reading.failures, *harmful]:
        about, wrong = subjects.match(line.text), symptoms.match(line.text)
        name = known.families.get((min(about), min(wrong)), "") if about and wrong else ""
        if name in known.causes and len(found) < _MOST:
            found.setdefault(name, _guess(known.causes[name], line.number))
    return list(found.values())


def _line(cause: Ranked) -> int:
    return cause.evidence[0].line if cause.evidence else 1


def _guess(cause: Cause, line: int) -> Question:
    text = f"Line {line} may mean: {filled(cause.title, {})}. Does this command fail?"
    return Question(f"guess:{cause.id}", text, cause.verify, yes=cause.id)
