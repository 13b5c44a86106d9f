"""Lines that no signature knows: what they are about, and what is wrong with it.

That is a guess, right in one case of three on logs that no pattern had seen: it becomes a
question, never a cause.
"""

from __future__ import annotations

from fleet.model.diagnosis import Question
from fleet.model.slots import filled
from fleet.triage.reading import LogReading

_MOST = 2


def guesses(reading: LogReading) -> list[Question]:
    """What to ask of the failing lines, then of the others; [] where nothing is known of them."""
    if reading.of_people or reading.of_build or reading.of_others:
        return []
    known = reading.known
    subjects = known.subjects.over(reading.text)
    symptoms = known.symptoms.over(reading.text)
    found: dict[str, Question] = {}
    harmful = [line for line in reading.lines if not reading.benign(line)]
    for line in [*reading.failures, *harmful]:
        about, wrong = subjects.match(line.text), symptoms.match(line.text)
        name = known.families.get((min(about), min(wrong)), "") if about and wrong else ""
        if name in known.causes and len(found) < _MOST:
            cause = known.causes[name]
            text = (
                f"Line {line.number} may mean: {filled(cause.title, {})}. Does this command fail?"
            )
            found.setdefault(name, Question(f"guess:{name}", text, cause.verify, yes=name))
    return list(found.values())
