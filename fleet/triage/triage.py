"""Triage of a log: the first causal line decides, not the last one."""

from __future__ import annotations

import re
from bisect import bisect
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from msgspec.structs import replace

from fleet.model.cause import Fix
from fleet.model.diagnosis import HEALTHY, PROBLEM, UNRECOGNISED, Diagnosis, Evidence, Ranked
from fleet.model.slots import FOLDERS, SLOTS
from fleet.model.text import harmless
from fleet.triage.asking import affirmed, answered, questions
from fleet.triage.bounded import bounded
from fleet.triage.families import guesses, sure_guess
from fleet.triage.grammar import beside
from fleet.triage.knowledge import knowledge
from fleet.triage.matcher import Matcher
from fleet.triage.ranking import Witness, rank
from fleet.triage.reading import LogReading
from fleet.triage.text import is_quiet, lines_of, process_of
from fleet.triage.unknown import next_step, suspects, understood
from fleet.triage.witnesses import heard

# Plain sentences of a log: the line that names the cause in its own words.
#
# A log that no specific signature explains mostly says what is wrong: "tokenizer.json was not
# found",
# "version 3 is not supported", "not enough memory". The `general` causes are the kinds of such
# sentences; the one whose line says most leads, with that line in its title. None is ever named
# with
# ALARM or more, because a plain sentence does not show that the NPU is concerned.

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
_ECHO = 0.3  # less, for a line that only reports that another program failed
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
    r"|- (?:\d+ - )?(?=[A-Z])"
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
_PASSED_ON = re.compile(
    r"non-?zero exit|subcommand failed|build stopped|linker command failed|did not run successfully"
    r"|\bmake(\[\d+\])?: \*\*\*|exit(ed with)? (code|status)[ :]*\d+\W*$|errors occurred"
    r"|^(FAILED:|note: This error|Encountered error \d)|CalledProcessError|Failed building wheel",
    re.IGNORECASE,
)
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
    worth -= _HEADING * text.endswith(":") + _ECHO * bool(_PASSED_ON.search(text))
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


# Whose log is it? What is left of its causes in a text that is about something else.

_CAPPED = 0.45  # without a word of a deployment a cause is a guess
_OWN = 0.75  # from here on the line is the NPU's, whatever words are beside it
_FAR = 0.3  # in a long log, away from every word of a deployment
# Layers of which a build or a converter on a workstation can tell; and what it says of a model.
_OF_A_BUILD = {"host", "link", "os", "library"}
_OF_A_MODEL = {
    "unsupported-op", "op-package", "model-format", "input-mismatch", "soc-unknown",
    "tool-limitation", "dsp-va-limit", "vtcm-size",
}  # fmt: skip


def in_context(ranked: tuple[Ranked, ...], reading: LogReading) -> tuple[Ranked, ...]:
    """The causes that the log can name: none in a document or a log of others.

    A failure that any machine can have, in a log in which nothing says that it is of a Qualcomm
    device, and one of a build keep a low confidence.
    """
    if reading.of_people or reading.of_others:
        return ()
    if reading.of_build:
        kept = [
            guess
            for guess in ranked
            if reading.given or guess.cause.layer in _OF_A_BUILD or guess.cause.id in _OF_A_MODEL
        ]
        return _capped(kept, _CAPPED)
    ranked = tuple(
        guess if reading.beside(guess.cause.context) else _lowered(guess, _CAPPED)
        for guess in ranked
    )
    if reading.of_device:
        return tuple(
            guess if any(map(reading.in_reach, _numbers(guess))) else _lowered(guess, _FAR)
            for guess in ranked
        )
    return tuple(
        guess if guess.confidence >= _OWN and not guess.cause.context else _lowered(guess, _CAPPED)
        for guess in ranked
    )


def _capped(ranked: Iterable[Ranked], most: float) -> tuple[Ranked, ...]:
    return tuple(_lowered(cause, most) for cause in ranked)


def _lowered(cause: Ranked, most: float) -> Ranked:
    return replace(cause, confidence=min(cause.confidence, most))


def _numbers(one: Ranked) -> list[int]:
    """Of its lines; what an answer or a fact says has none."""
    return [evidence.line for evidence in one.evidence if evidence.source == "log"] or [1]


# How often an answer of this score was right, on logs that the patterns had not seen.
#
# Fitted on first runs only (tests/triage/data/first_runs.jsonl): a score on logs from which the
# patterns were written says nothing. Agreement told right from wrong first: two patterns that agree
# were right in all but few. What was then said is held against how often that was right over all
# first runs: an isotonic fit, its steps drawn as ramps, and never above what was seen.

_ALONE = ((0.0, 0.0), (0.3, 0.45), (0.6, 0.68), (0.8, 0.73), (1.0, 0.76))
_AGREED = ((0.0, 0.0), (0.3, 0.45), (0.6, 0.72), (0.8, 0.84), (0.92, 0.92), (1.0, 0.95))
# Isotonic over 762 answers, drawn as ramps. Up to 0.73 said, the shares right were 0.48 to 0.70;
# from 0.7535 on 0.91, whether one pattern spoke or two; of the 95 between (one pattern, one line)
# 0.85, and they stay below 0.8, from where on nothing need be asked.
_OBSERVED = (
    *((0.0, 0.0), (0.3, 0.27), (0.37, 0.48), (0.42, 0.57), (0.6, 0.59), (0.7, 0.62)),
    *((0.725, 0.69), (0.7355, 0.735), (0.7465, 0.77), (0.751, 0.79), (0.7535, 0.9)),
    *((0.76, 0.905), (0.84, 0.91), (1.0, 0.92)),
)


def calibrated(ranked: tuple[Ranked, ...]) -> tuple[Ranked, ...]:
    """With the share of right ones as the confidence; together they are not above 1."""
    left = 1.0
    found = []
    for cause in ranked:
        points = _AGREED if cause.agreeing > 1 else _ALONE
        share = min(observed(_between(points, cause.confidence)), left)
        left -= share
        found.append(replace(cause, confidence=share))
    return tuple(found)


_SYMPTOM = 0.75  # below the confidence from which on nothing is asked
_REASON = 0.4  # of a cause that stands in the log beside its symptom


def reasoned(ranked: tuple[Ranked, ...]) -> tuple[Ranked, ...]:
    """Return the causes with the best reason before a leading symptom, and no symptom as sure."""
    ranked = tuple(_lowered(row, _SYMPTOM) if row.cause.symptom else row for row in ranked)
    if not ranked or not ranked[0].cause.symptom:
        return ranked
    shown = min(_numbers(ranked[0]))
    reasons = [
        row
        for row in ranked[1:]
        if row.confidence >= _REASON and not row.cause.symptom and min(_numbers(row)) <= shown
    ]
    if not reasons:
        return ranked
    said, reason = ranked[0].confidence, reasons[0]
    rest = [row for row in ranked if row is not reason]
    rest[0] = _lowered(rest[0], reason.confidence)
    return (replace(reason, confidence=said), *rest)


def observed(share: float) -> float:
    """What was right of the answers of first runs that said so much."""
    return _between(_OBSERVED, share)


def scored(share: float) -> float:
    """The score for which `observed` says so much: that is kept, so that a later fit can use it."""
    return _between([(said, score) for score, said in _OBSERVED], share)


def _between(points: Sequence[tuple[float, float]], score: float) -> float:
    """On the line between the points beside it."""
    after = min(max(bisect(points, (score, 1.0)), 1), len(points) - 1)
    (left, low), (right, high) = points[after - 1], points[after]
    return low + (high - low) * (score - left) / (right - left)


_WHOSE = (
    "nothing in the log says that it is from a Qualcomm device, and any machine can have this "
    "failure; if it is from one, add --platform linux (or android, windows)"
)
_OTHER_PROCESS = 0.2  # of the confidence
_PATH = re.compile(SLOTS["path"])
_CUT = (
    "the lines are cut off at column {}: paste the whole lines, because numbers and names at their "
    "ends are missing"
)


@bounded
def triage(
    text: str,
    target: str = "log",
    *,
    platform: str = "",
    causes: Path | None = None,
    answers: Mapping[str, str] | None = None,
    of_device: bool = False,
) -> Diagnosis:
    """The causes that a log shows, most likely first; none where nothing in it is known.

    `platform` (linux, android, windows) is taken from the log where it is not given. `answers`
    are those to questions of the diagnosis before, by their ids: yes, no, or pasted output.
    `of_device`, a platform, and a yes to a guess say that the log is of a Qualcomm device, or of
    the way to one; without them the words of the log decide. Never raises for what is in the log,
    except DeadlineError where google-re2 is not installed.
    """
    known = knowledge(causes)
    given = of_device or bool(platform) or affirmed(answers or {})
    reading = LogReading(lines_of(text), known, given=given)
    seen = platform or platform_of(reading)
    said = answered(answers or {}, known)
    witnesses = [*heard(reading), *said]
    specific = [witness for witness in witnesses if not witness.cause.general]
    plain = stated(reading, [witness for witness in witnesses if witness.cause.general])
    scored = rank(specific, seen, known=known.causes)
    names = {**beside(reading.text), **actor_of(reading, answers or {})}
    ranked = tuple(
        cured(replace(cause, slots={**names, **cause.slots}, platform=seen), reading)
        for cause in led(in_context(reasoned(_of_one_process(calibrated(scored))), reading), plain)
    )
    if ranked:
        asked = tuple(
            question
            for question in questions(ranked, reading)
            if question.id not in (answers or {})
        )
        verdict = verdict_of(ranked)
        return Diagnosis(target, verdict, ranked, notes=_notes(ranked, reading), questions=asked)
    if reading.succeeded and not (reading.failures or reading.doubts):
        return Diagnosis(target, HEALTHY, notes=_worked(reading))
    if not reading.lines:
        return Diagnosis(target, UNRECOGNISED, notes=("the log is empty",))
    return _unrecognised(target, reading, scored)


def _of_one_process(ranked: tuple[Ranked, ...]) -> tuple[Ranked, ...]:
    """Return the causes, lower where all their lines are of another process than the first's."""
    if not ranked:
        return ()
    own = _processes(ranked[0])
    return tuple(
        replace(cause, confidence=cause.confidence * _OTHER_PROCESS)
        if own and _processes(cause) and not own & _processes(cause)
        else cause
        for cause in ranked
    )


def _processes(ranked: Ranked) -> set[str]:
    return {pid for row in ranked.evidence if (pid := process_of(row.text))}


def _unrecognised(target: str, reading: LogReading, scored: tuple[Ranked, ...]) -> Diagnosis:
    """What is understood of it, and what to ask; `scored` are causes that it may not name."""
    step, why = next_step(reading)
    guessed = guesses(reading, scored)
    return Diagnosis(
        target,
        UNRECOGNISED,
        notes=(why,),
        questions=(*guessed.before, step, *guessed.behind),
        understood=understood(reading),
        suspects=suspects(reading),
    )


def verdict_of(ranked: tuple[Ranked, ...]) -> str:
    """A problem where a cause is an error, advice where none is."""
    return PROBLEM if ranked[0].cause.severity == "error" else "advice"


def platform_of(reading: LogReading) -> str:
    """What the words of the log show; "" when they show nothing or several."""
    votes = {name: len(reading.matching(matcher)) for name, matcher in reading.known.platforms}
    best = max(votes, key=lambda name: votes[name])
    others = sum(count for name, count in votes.items() if name != best)
    return best if votes[best] > 2 * others else ""


def cured(ranked: Ranked, reading: LogReading) -> Ranked:
    """Return the cause with the cures that its actor can use."""
    told = advice(reading, ranked)
    row = reading.known.cures.get(ranked.slots.get("actor", ""))
    if row is None:
        return replace(ranked, cause=ranked.cause.with_fixes((*told, *ranked.cause.fix)))
    none = Matcher([row["no_cure"]])
    kept = [
        fix
        for fix in ranked.cause.fix
        if (fix.when and fix.when.fact == "actor")
        or not none.match(f"{fix.title} {fix.command} {fix.undo}".replace("\n", " "))
    ]
    if len(kept) < len(ranked.cause.fix) and row["instead"]["title"]:
        own = any(fix.fits(ranked.platform, ranked.slots) and fix.command == "" for fix in kept)
        title, changes = row["instead"]["title"], row["instead"]["changes"]
        instead = Fix("any", title, "", "host", changes=changes, undo="the version of before")
        kept = [*kept, instead] if own else [instead, *kept]
    return replace(ranked, cause=ranked.cause.with_fixes((*told, *kept)))


def actor_of(reading: LogReading, answers: Mapping[str, str]) -> dict[str, str]:
    """Return who ran the program and the folders that answers name; {} for what is unknown."""
    given = answers.get("actor", "").strip().lower()
    actor = given if given in reading.known.cures else reading.actor
    actor = actor or ("pc" if reading.of_build else "")
    folders = {name: answers.get(name, "").strip() for name in FOLDERS}
    known = {name: path for name, path in folders.items() if _PATH.fullmatch(path)}
    return {**known, **({"actor": actor} if actor else {})}


def _worked(reading: LogReading) -> tuple[str, ...]:
    """What was seen to work, and what that ends."""
    lines = "; ".join(f"line {line.number}: {quoted(line.text)}" for line in reading.achievements)
    return (f"the log shows that this worked: {lines}", "no line after that shows a failure")


def _notes(ranked: tuple[Ranked, ...], reading: LogReading) -> tuple[str, ...]:
    notes = []
    if reading.of_build:
        notes.append(next_step(reading)[1])
    elif ranked[0].confidence < ALARM and not (
        reading.of_device and reading.beside(ranked[0].cause.context)
    ):
        notes.append(_WHOSE)
    if ranked[0].summary:
        notes.append(
            "the log contains only the last error line, and many causes end with this line"
        )
    if reading.cut:
        notes.append(_CUT.format(reading.cut))
    return tuple(notes)
