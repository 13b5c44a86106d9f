"""The evidence in the lines of a log for each cause."""

from __future__ import annotations

from fleet.model.diagnosis import Evidence
from fleet.triage.bounded import bounded
from fleet.triage.grammar import captured, has_slots
from fleet.triage.knowledge import Known, knowledge
from fleet.triage.ranking import Witness
from fleet.triage.reading import LogReading
from fleet.triage.text import Line

_PER_SIGNATURE = 3  # lines of evidence to keep for each signature
_PER_KIND = 100  # the same for each kind of plain sentence, whose best line is chosen later
_OPPOSED = 0.15  # factor of the weight for a cause that a line disproves


def witnesses(lines: list[Line], known: Known, source: str = "log") -> list[Witness]:
    """Return the evidence for each cause, in the order of the lines.

    Raises DeadlineError if google-re2 is not installed and the patterns take too long.
    """
    return _read(lines, source, None if known is knowledge() else known) if lines else []


@bounded
def _read(lines: list[Line], source: str, known: Known | None) -> list[Witness]:
    return heard(LogReading(lines, known or knowledge()), source)


def heard(reading: LogReading, source: str = "log") -> list[Witness]:
    """Return the evidence in lines that were read already; see `witnesses`."""
    known = reading.known
    hits: dict[int, list[Line]] = {}
    causal: dict[int, int] = {}
    for line, numbers in reading.hits():
        ended = reading.ended(line)
        for index in numbers:
            cause, signature, _ = known.owners[index]
            if not _counts(index, line, reading, ended=ended):
                continue
            hits.setdefault(index, []).append(line)
            if not (signature.summary or cause.general):
                causal.setdefault(line.number, len(causal))
    return [
        witness
        for index in hits
        if _holds(index, reading)
        for witness in _of_signature(index, hits[index], causal, reading, source)
    ]


def _counts(index: int, line: Line, reading: LogReading, *, ended: bool) -> bool:
    """Return True if the line's numbers fit, and success did not end it or the cause lasts."""
    cause, signature, _ = reading.known.owners[index]
    if ended and cause.id not in reading.known.lasting:
        return False
    if not signature.holds:
        return True
    left, sign, right = signature.holds.split()
    slots = captured(reading.known.matcher.patterns[index], line.text)
    number, other = (int(slots.get(word, word)) for word in (left, right))
    return number < other if sign == "<" else number > other


def _holds(index: int, reading: LogReading) -> bool:
    """Return True if the other parts of a signature hold; they follow its match directly."""
    known = reading.known
    cause, signature, _ = known.owners[index]
    for beside in range(index + 1, min(index + 3, len(known.owners))):
        owner, other, part = known.owners[beside]
        if (
            owner is cause
            and other is signature
            and (reading.anywhere(beside) == (part == "unless"))
        ):
            return False
    return True


def _of_signature(
    index: int, lines: list[Line], causal: dict[int, int], reading: LogReading, source: str
) -> list[Witness]:
    cause, signature, _ = reading.known.owners[index]
    pattern = reading.known.matcher.patterns[index]
    weight = signature.weight * (_OPPOSED if cause.id in reading.opposed else 1.0)
    return [
        Witness(
            cause,
            weight if number == 0 or cause.general else 0.0,
            Evidence(source, line.text, line.number),
            causal.get(lines[0].number, len(causal)),
            signature.summary,
            slots=captured(pattern, line.text) if has_slots(pattern) else {},
        )
        for number, line in enumerate(lines[: _PER_KIND if cause.general else _PER_SIGNATURE])
    ]
