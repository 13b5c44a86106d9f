"""Plain sentences of a log: the line that names the cause in its own words.

A log that no specific signature explains mostly says what is wrong: "tokenizer.json was not found",
"version 3 is not supported", "not enough memory". The `general` causes are the kinds of such
sentences; the one whose line says most leads, with that line in its title. None is ever named with
ALARM or more, because a plain sentence does not show that the NPU is concerned.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import replace

from fleet.model.cause import Fix
from fleet.model.diagnosis import Evidence, Ranked
from fleet.model.text import harmless
from fleet.triage.families import sure_guess
from fleet.triage.ranking import Witness
from fleet.triage.reading import LogReading
from fleet.triage.text import is_quiet

ALARM = 0.5  # from here on a cause counts as a claim
_MOST = 0.49
_ELSEWHERE = 0.3  # a build, or a line of a log without a word of a device
_FAMILY = 0.48
_AGAIN = 0.02  # for each further line of the same kind
_KINDS = 3  # that are named
_WEAK = 0.4  # of a specific cause, below which a plain sentence says more
_LAST_LINE = 0.25  # the same, for a cause that only the last line of a chain shows
_VAGUE = 0.28  # of a sentence that only says that something failed
_QUOTE = 150  # characters
_HEADING = 0.2  # of a line that only leads to the next one
_SURE = 0.66  # of a kind of sentence that no warning says without reason
_KIND = 0.6  # from here on the kind of sentence needs no word of failure
_SUBJECT = 0.1  # of the weight, for a sentence that names its subject
_LATER = 0.004  # of the weight, for each line of failure before
_EXCEPTION = 0.15  # the last line of a traceback, and the innermost cause of a chain
_PREFIX = re.compile(
    r"^(?:"
    r"(?:\d{4}-)?\d\d-\d\d[ T]\d\d:\d\d:\d\d[.,]?\d*(?:Z|[ ]?[+-]\d\d:?\d\d)?\s*"
    r"|\d\d:\d\d:\d\d[.,]?\d*\s+"
    r"|\d+[- ]+\d+ +(?:\S{1,60} +)?[VDIWEF] +[\w.-]* *:? *"
    r"|\d+-\d+ +\S+ +(?:\S+ +)?[VDIWEF] +"
    r"|[VDIWEF]/[^(]{1,40}\( *\d+\): *"
    r"|\[ *\d+\.\d+\]\s*"
    r"|\[[^\]]{0,120}\]:?\s*"
    r"|(?:FATAL|ERROR|WARN(?:ING)?|INFO|DEBUG|TRACE|ERR|Fehler)\b *[:-]+ *"
    r"|[VDIWEF] [\w.-]{1,30} *: "
    r"|<[EW]>\s*|[^\w\s(\[<\"'/.-]\s*"
    r")",
    re.IGNORECASE,
)
_NEAR = 3  # lines behind the evidence in which a program may say what to do
_ELSEWHERE_RUN = ("aihub", "pc")  # no part of a device is at fault there
_ADVICE = re.compile(
    r"\b(?:please (?:run|install|use|set|add|update|upgrade|download|specify|provide|make|check|log"
    r"|source|try|ensure|re-?\w+)|to (?:fix|resolve|solve|enable|allow) (?:this|it|the)\b"
    r"|(?:try|consider) (?:\w+ing|to|`|')|you (?:need|have|must|should|can) |make sure "
    r"|did you mean |hint:|use -)"
    r".{8,}",
    re.IGNORECASE,
)
_NAME = re.compile(
    r"\w[._/\\-]\w|\d|[a-z][A-Z]"
)  # of a file, a library or a package; no plain word
_FOLDERS = re.compile(r"(?<![\w.:/\\])(?:/|[A-Z]:\\)?(?:[\w.+~@=-]+[/\\]){3,}")
_TRACE = re.compile(r"^(?:[\w.]+\.)?[A-Z]\w*(?:Error|Exception|Failure|Exit|Fault)\b|^Caused by:")
_SOURCE = re.compile(r"^(?:File \"|at [\w.$<>]+\(|#\d+ |\s*\^+$)")


def quoted(text: str) -> str:
    """Return what a line says, without time, level and tag in front of it."""
    plain = harmless(text).strip()
    for _ in range(6):
        shorter = _PREFIX.sub("", plain, count=1)
        if shorter == plain or len(shorter) < 12:
            break
        plain = shorter
    plain = _FOLDERS.sub("…/", plain) if len(plain) > _QUOTE else plain
    return plain if len(plain) <= _QUOTE else plain[: _QUOTE - 1].rstrip() + "…"


def stated(reading: LogReading, witnesses: Iterable[Witness]) -> tuple[Ranked, ...]:
    """Return the causes that plain sentences name, the one that says most first."""
    if reading.of_people or reading.of_others or not (reading.of_device or reading.of_build):
        return ()
    failing = {line.number for line in reading.failures}
    sentences = [witness for witness in witnesses if _is_failure(witness, failing)]
    ranked = _by_worth(sentences, _ELSEWHERE if reading.of_build else _MOST)
    family = sure_guess(reading)
    if family is not None and not (reading.of_build or reading.actor in _ELSEWHERE_RUN):
        cause, line = family
        evidence = Evidence("log", line.text, line.number)
        return (Ranked(cause, _FAMILY, (evidence,)), *ranked[:1])
    return ranked


def _by_worth(sentences: list[Witness], most: float) -> tuple[Ranked, ...]:
    """Return the best sentence of each kind, and more confidence for more lines of a kind."""
    place = {number: at for at, number in enumerate(sorted({_line(row) for row in sentences}))}
    best: dict[str, tuple[float, Witness]] = {}
    count: dict[str, int] = {}
    for sentence in sentences:
        kind = sentence.cause.id
        worth = _worth(sentence, place[_line(sentence)])
        count[kind] = count.get(kind, 0) + 1
        if worth > best.get(kind, (0.0, sentence))[0]:
            best[kind] = worth, sentence
    ordered = sorted(best.values(), key=lambda pair: (-pair[0], _line(pair[1])))
    first_of = {_line(sentence): sentence for _, sentence in reversed(ordered)}
    left = 1.0
    found: list[Ranked] = []
    for worth, sentence in ordered:
        if first_of[_line(sentence)] is not sentence or len(found) == _KINDS:
            continue  # the line is quoted already
        share = min(most, left, 0.4 * worth + 0.1 + _AGAIN * (count[sentence.cause.id] - 1))
        left -= share
        found.append(_ranked(sentence, share))
    return tuple(found)


def _line(sentence: Witness) -> int:
    return sentence.evidence.line


def _is_failure(sentence: Witness, failing: set[int]) -> bool:
    """Whether the line is a failure by a word or by its kind, and by the level it has."""
    if is_quiet(sentence.evidence.text) and sentence.weight < _SURE:
        return False
    return _line(sentence) in failing or sentence.weight >= _KIND


def _worth(sentence: Witness, later: int) -> float:
    """How much a line says: the kind of sentence, a named subject, and where it stands."""
    text = quoted(sentence.evidence.text)
    if sentence.weight == 0.0 or _SOURCE.match(text):
        return 0.0
    worth = sentence.weight
    worth += _SUBJECT * bool(sentence.slots.get("subject"))
    worth += _EXCEPTION * bool(_TRACE.match(text))
    worth -= _HEADING * text.endswith(":")
    return worth - min(0.1, _LATER * later)


def _ranked(sentence: Witness, share: float) -> Ranked:
    slots = {**sentence.slots, "statement": quoted(sentence.evidence.text)}
    if not _NAME.search(slots.get("subject", "")):
        slots.pop("subject", None)
    return Ranked(sentence.cause, share, (sentence.evidence,), slots=slots)


def advice(reading: LogReading, ranked: Ranked) -> tuple[Fix, ...]:
    """Return what the log itself says to do, in the line of the evidence or near it."""
    first = next((row.line for row in ranked.evidence if row.source == "log"), 0)
    for line in reading.lines:
        found = _ADVICE.search(line.text) if abs(line.number - first) <= _NEAR else None
        if found and first:
            text = quoted(line.text[found.start() :].rstrip())
            title = f'The log itself says what to do: "{text}"'.replace("{", "(").replace("}", ")")
            return (Fix("any", title, "", "device", changes="nothing by itself"),)
    return ()


def led(ranked: tuple[Ranked, ...], plain: tuple[Ranked, ...]) -> tuple[Ranked, ...]:
    """Return both, the plain sentence first where the signatures name only the end of a chain."""
    if not plain:
        return ranked
    if not ranked:
        return plain
    first, sentence = ranked[0], plain[0]
    vague = sentence.confidence < _VAGUE or first.cause.id == sentence.cause.id
    if not vague and first.confidence < (_LAST_LINE if first.summary else _WEAK):
        lower = tuple(
            replace(cause, confidence=min(cause.confidence, _ELSEWHERE)) for cause in ranked[:2]
        )
        return (*plain[:1], *lower)
    return ranked
