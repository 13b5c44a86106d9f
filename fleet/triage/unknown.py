"""The report on a log with an unknown cause: words for numbers, suspect lines, one next step."""

from __future__ import annotations

import errno
import os
import re

from fleet.model.diagnosis import Evidence, Question
from fleet.model.slots import filled
from fleet.triage.explain import meanings_of
from fleet.triage.grammar import captured
from fleet.triage.reading import LogReading

_MOST = 5
_OF_BUILDS = ("first-build-error", "python-versions", "disk-and-rights", "network")
_READ = 200  # lines whose numbers and names are looked up
_NAMES = re.compile(r"\b(?:QNN|AEE|GENIE)_[A-Z_]{3,}\b")
_CODES = re.compile(
    r"(?:\berr(?!no)\w*|code|status|rc|ret\w*|failed|result)\W{1,4}(?:with )?"
    r"(-?(?:0x[0-9a-f]{1,8}|\d{1,10}))\b"
    r"|\b(0x8000[0-9a-f]{4})\b",
    re.IGNORECASE,
)
_ERRNOS = re.compile(r"\berrno\W{0,4}(\d{1,3})\b|\b(E[A-Z]{3,14})\b", re.IGNORECASE)


def suspects(reading: LogReading) -> tuple[Evidence, ...]:
    """Return the first lines that look like the failure; else the lines that raise doubts."""
    lines = reading.failures or (reading.doubts if reading.succeeded else [])
    return tuple(Evidence("log", line.text, line.number) for line in lines[:_MOST])


def understood(reading: LogReading) -> tuple[str, ...]:
    """Return the meaning of numbers and names in the lines that look like the failure."""
    meanings: dict[str, str] = {}
    for line in [*reading.failures, *reading.lines][:_READ]:
        for code in codes_of(line.text):
            if code not in meanings and code.strip("-0x"):
                meanings |= _code(code)
        for word in map("".join, _ERRNOS.findall(line.text)):
            number = int(word) if word.isdigit() else getattr(errno, word.upper(), 0)
            if number in errno.errorcode:
                meanings.setdefault(word, f"{errno.errorcode[number]}: {os.strerror(number)}")
    codes = [f"{code} is {meaning}" for code, meaning in meanings.items()]
    return tuple([*_sentences(reading), *codes][:_MOST])


def codes_of(text: str) -> list[str]:
    """Return the numbers and names of errors in a line."""
    return [*_NAMES.findall(text), *map("".join, _CODES.findall(text))]


def _code(code: str) -> dict[str, str]:
    meanings = [
        f"{meaning.family}: {', '.join(meaning.names[:3]) or meaning.note}"
        for meaning in meanings_of(code)
    ]
    return {code: "; ".join(meanings)} if meanings else {}


def _sentences(reading: LogReading) -> list[str]:
    """Return `line N: ...` sentences for lines of common forms, with the names in them."""
    known = reading.known
    matched = known.saying.over(reading.text)
    sentences: dict[str, None] = {}
    for line in reading.lines:
        for row in matched.match(line.text):
            slots = captured(known.saying.patterns[row], line.text)
            sentences[f"line {line.number}: {filled(known.sentences[row], slots)}"] = None
    return list(sentences)


def next_step(reading: LogReading) -> tuple[Question, str]:
    """Return the next thing to do, and the reason why no cause is named."""
    if reading.of_people:
        why = "the text looks like prose, not like the output of a program"
        return Question("log", "Paste the output of the program that failed."), why
    harmless = not (reading.failures or reading.doubts)
    if reading.of_build and not harmless:
        line = reading.of_build[0]
        why = f"a build or a model conversion failed (line {line.number}), not a deployment"
        return Question(
            "build", "Correct the first error of the build. Nothing ran on a device yet."
        ), why
    if reading.of_others:
        line = reading.about("foreign", "board")[0]
        why = f"the log is about other software (line {line.number}), not about an NPU device"
        return Question("log", "Paste the output of the program that failed on the device."), why
    if harmless:
        why = "no line of this log shows a failure, and none shows that the work was done"
        step = louder(reading)
        if step.id == reading.known.steps[-1]["id"]:
            step = Question("log", "Paste the output of the program that failed.")
        return step, why
    if reading.succeeded and not reading.failures:
        doubt = reading.doubts[0].number
        why = f"the program finished its work, but line {doubt} may show that it was slow or wrong"
    else:
        line = (reading.failures or reading.doubts)[0]
        why = f"no pattern explains line {line.number}, which looks like the failure"
    return louder(reading), why


def louder(reading: LogReading) -> Question:
    """Return how to get the deciding lines, by the subject of the first known failing line."""
    known = reading.known
    last = len(known.steps) - 1
    matched = known.stepping.over(reading.text)
    failing = (min(matched.match(line.text), default=last) for line in reading.failures)
    every = (number for line in reading.lines for number in matched.match(line.text))
    first = next((number for number in failing if number != last), None)
    if reading.of_build and (first is None or known.steps[first]["id"] not in _OF_BUILDS):
        first = next(at for at, row in enumerate(known.steps) if row["id"] == _OF_BUILDS[0])
    row = known.steps[min(every, default=last) if first is None else first]
    return Question(row["id"], row["text"], row["command"])
