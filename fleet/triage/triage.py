"""The triage of a log: the first causal line decides, not the last one."""

from __future__ import annotations

import re
from bisect import bisect
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path

from msgspec.structs import replace

from fleet.model.cause import Fix
from fleet.model.diagnosis import (
    HEALTHY,
    PROBLEM,
    UNRECOGNISED,
    Diagnosis,
    Evidence,
    Leaf,
    Question,
    Ranked,
)
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
from fleet.triage.stages import stage_question
from fleet.triage.text import is_quiet, lines_of, process_of
from fleet.triage.unknown import next_step, suspects, understood
from fleet.triage.witnesses import heard

# Plain sentences of a log: lines that name the cause in their own words.
#
# A log that no specific signature explains mostly says what is wrong: "tokenizer.json was not
# found", "version 3 is not supported", "not enough memory". The `general` causes are the kinds of
# such sentences. The cause with the most telling line comes first, with that line in its title. It
# never has a confidence of ALARM or more: a plain sentence does not show that the NPU is concerned.

ALARM = 0.5  # from this confidence on, a cause counts as a claim
_MOST = 0.49
_ELSEWHERE = 0.3  # limit for a build, and for a log without a word of a device
_FAMILY = 0.48
_AGAIN = 0.02  # for each further line of the same kind
_KINDS = 3  # the most kinds to name
_WEAK = 0.4  # a specific cause below this confidence says less than a plain sentence
_LAST_LINE = 0.25  # the same, for a cause that only the last line of a chain shows
_VAGUE = 0.28  # the worth of a sentence that only says that something failed
_QUOTE = 150  # characters
_HEADING = 0.2  # deduction for a line that only introduces the next one
_SURE = 0.66  # a kind of sentence that counts even in a warning
_KIND = 0.6  # from this weight on, a sentence needs no word of failure
_SUBJECT = 0.1  # added for a sentence that names its subject
_LATER = 0.004  # deduction for each earlier line of failure
_ECHO = 0.3  # deduction for a line that only reports the failure of another program
_EXCEPTION = 0.15  # added for the last line of a traceback, and the innermost cause of a chain
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
_NEAR = 3  # lines around the evidence that are searched for advice
_ELSEWHERE_RUN = ("aihub", "pc")  # programs that run there involve no device
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
)  # the name of a file, a library or a package, not a plain word
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
    """Return the message of a line, without time, level and tag in front of it."""
    plain = harmless(text).strip()
    for _ in range(6):
        shorter = _PREFIX.sub("", plain, count=1)
        if shorter == plain or len(shorter) < 12:
            break
        plain = shorter
    plain = _FOLDERS.sub("…/", plain) if len(plain) > _QUOTE else plain
    return plain if len(plain) <= _QUOTE else plain[: _QUOTE - 1].rstrip() + "…"


def stated(reading: LogReading, witnesses: Iterable[Witness]) -> tuple[Ranked, ...]:
    """Return the causes that plain sentences name, the most telling first."""
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
    ranked: list[Ranked] = []
    for worth, sentence in ordered:
        if first_of[_line(sentence)] is not sentence or len(ranked) == _KINDS:
            continue  # the line is quoted already
        share = min(most, left, 0.4 * worth + 0.1 + _AGAIN * (count[sentence.cause.id] - 1))
        left -= share
        ranked.append(_ranked(sentence, share))
    return tuple(ranked)


def _line(sentence: Witness) -> int:
    return sentence.evidence.line


def _is_failure(sentence: Witness, failing: set[int]) -> bool:
    """Return True if the line is a failure by its words or its kind, and by its level."""
    if is_quiet(sentence.evidence.text) and sentence.weight < _SURE:
        return False
    return _line(sentence) in failing or sentence.weight >= _KIND


def _worth(sentence: Witness, later: int) -> float:
    """Return how much a line says: by its kind of sentence, a named subject, and its place."""
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
    """Return the advice that the log itself gives, in the line of the evidence or near it."""
    first = next((row.line for row in ranked.evidence if row.source == "log"), 0)
    for line in reading.lines:
        match = _ADVICE.search(line.text) if abs(line.number - first) <= _NEAR else None
        if match and first:
            text = quoted(line.text[match.start() :].rstrip())
            title = f'The log itself says what to do: "{text}"'.replace("{", "(").replace("}", ")")
            return (Fix("any", title, "", "device", changes="nothing by itself"),)
    return ()


def led(ranked: tuple[Ranked, ...], plain: tuple[Ranked, ...]) -> tuple[Ranked, ...]:
    """Return both rankings, the plain sentence first if the signatures show only the last error."""
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


# The origin of a log limits the confidence of its causes.

_CAPPED = 0.45  # limit without a word about a device, runtime or loader: a cause is a guess then
_OWN = 0.75  # from this confidence on, the line belongs to the NPU whatever the other words
_FAR = 0.3  # limit in a long log, far from every word about a device, runtime or loader
# The layers, and the causes in a model, that a build or converter on a workstation can show.
_OF_A_BUILD = {"host", "link", "os", "library"}
_OF_A_MODEL = {
    "unsupported-op", "op-package", "model-format", "input-mismatch", "soc-unknown",
    "tool-limitation", "dsp-va-limit", "vtcm-size", "model-graph-invalid",
}  # fmt: skip


def in_context(ranked: tuple[Ranked, ...], reading: LogReading) -> tuple[Ranked, ...]:
    """Return the causes that the log can show: none in a document or in a log about others.

    Two kinds keep a low confidence: failures of a build, and failures that any machine can have if
    nothing in the log shows a Qualcomm device.
    """
    if reading.of_people or reading.of_others:
        return ()
    stage = reading.failing_stage
    if stage and not reading.given:
        ranked = tuple(
            _lowered(row, _CAPPED) if row.cause.layer in stage["apart"] else row for row in ranked
        )
        ranked = tuple(sorted(ranked, key=lambda row: -row.confidence))
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


def _numbers(cause: Ranked) -> list[int]:
    """Return the numbers of its log lines; [1] if its evidence is only answers or facts."""
    return [evidence.line for evidence in cause.evidence if evidence.source == "log"] or [1]


# The share of right answers by score, on logs that no pattern was written for.
#
# Fitted on first runs only (tests/triage/data/first_runs.jsonl): a score on logs that the patterns
# were written from says nothing. The first fit separates one pattern from several that agree; two
# that agree were right in all but a few cases. The second fit maps the result to the share of right
# answers over all first runs. It is isotonic, with ramps for steps, and never above the data.

_ALONE = ((0.0, 0.0), (0.3, 0.45), (0.6, 0.68), (0.8, 0.73), (1.0, 0.76))
_AGREED = ((0.0, 0.0), (0.3, 0.45), (0.6, 0.72), (0.8, 0.84), (0.92, 0.92), (1.0, 0.95))
# An isotonic fit over 762 answers, drawn as ramps. Up to a score of 0.73, the shares of right
# answers were 0.48 to 0.70. From 0.7535 on the share was 0.91, for one pattern or two. For the 95
# answers between (one pattern, one line) it was 0.85; they stay below 0.8, the confidence from
# which on no question is needed.
_OBSERVED = (
    *((0.0, 0.0), (0.3, 0.27), (0.37, 0.48), (0.42, 0.57), (0.6, 0.59), (0.7, 0.62)),
    *((0.725, 0.69), (0.7355, 0.735), (0.7465, 0.77), (0.751, 0.79), (0.7535, 0.9)),
    *((0.76, 0.905), (0.84, 0.91), (1.0, 0.92)),
)


def calibrated(ranked: tuple[Ranked, ...]) -> tuple[Ranked, ...]:
    """Return the causes with the share of right answers as confidence. The sum is at most 1."""
    left = 1.0
    causes = []
    for cause in ranked:
        points = _AGREED if cause.agreeing > 1 else _ALONE
        share = min(observed(_between(points, cause.confidence)), left)
        left -= share
        causes.append(replace(cause, confidence=share))
    return tuple(causes)


_SYMPTOM = 0.75  # limit of a symptom, below the confidence that needs no question
_SHARED = 0.6  # the same, if a single line shows it: several causes end with that line
_REASON = 0.4  # the least confidence of a reason next to its symptom


def reasoned(ranked: tuple[Ranked, ...]) -> tuple[Ranked, ...]:
    """Return the causes with the best reason before a leading symptom. No symptom is certain."""
    ranked = tuple(
        _lowered(row, _SYMPTOM if len(row.evidence) > 1 else _SHARED) if row.cause.symptom else row
        for row in ranked
    )
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
    confidence, reason = ranked[0].confidence, reasons[0]
    rest = [row for row in ranked if row is not reason]
    rest[0] = _lowered(rest[0], reason.confidence)
    return (replace(reason, confidence=confidence), *rest)


def observed(share: float) -> float:
    """Return the share of right answers of first runs with this score."""
    return _between(_OBSERVED, share)


def scored(share: float) -> float:
    """Return the score whose `observed` value is `share`.

    Scores are stored, so that a later fit can use them.
    """
    return _between([(right, score) for score, right in _OBSERVED], share)


def _between(points: Sequence[tuple[float, float]], score: float) -> float:
    """Return the value at the score, on the line between the two points next to it."""
    after = min(max(bisect(points, (score, 1.0)), 1), len(points) - 1)
    (left, low), (right, high) = points[after - 1], points[after]
    return low + (high - low) * (score - left) / (right - left)


_WHOSE = (
    "nothing in the log says that it is from a Qualcomm device, and any machine can have this "
    "failure; if it is from one, add --platform linux (or android, windows)"
)
_OTHER_PROCESS = 0.2  # factor of the confidence
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
    """Return the causes that a log shows, the most likely first; none if nothing in it is known.

    `platform` (linux, android, windows) is taken from the log if it is not given. `answers` are
    answers to questions of the previous diagnosis, by their ids: yes, no, or pasted output.

    `of_device`, a platform, or a yes to a guess state that the log comes from a Qualcomm device, or
    from the way to one. Otherwise the words of the log decide. No content of a log raises an error,
    except DeadlineError if google-re2 is not installed.
    """
    known = knowledge(causes)
    given = of_device or bool(platform) or affirmed(answers or {})
    reading = LogReading(lines_of(text), known, given=given)
    system = platform or platform_of(reading)
    actor = actor_of(reading, answers or {})
    who = {system, actor.get("actor", "")} - {""}
    evidences = answered(answers or {}, reading, who)
    witnesses = [*heard(reading), *evidences]
    # A person who names a cause has looked: no other cause of the log stands before it.
    named = {word.strip() for word in (answers or {}).values()} & known.causes.keys()
    specific = [
        witness
        for witness in witnesses
        if not witness.cause.general and (not named or witness.cause.id in named)
    ]
    plain = stated(reading, [witness for witness in witnesses if witness.cause.general])
    scored = rank(specific, system, known=known.causes)
    names = {**beside(reading.text), **actor}
    ranked = tuple(
        cured(replace(cause, slots={**names, **cause.slots}, platform=system), reading)
        for cause in led(in_context(reasoned(_of_one_process(calibrated(scored))), reading), plain)
    )
    if ranked:
        asked = _open(questions(ranked, reading, who), answers)
        verdict = verdict_of(ranked)
        return Diagnosis(target, verdict, ranked, notes=_notes(ranked, reading), questions=asked)
    if reading.healthy:
        return Diagnosis(target, HEALTHY, notes=_worked(reading))
    if not reading.lines:
        return Diagnosis(target, UNRECOGNISED, notes=("the log is empty",))
    return _unrecognised(target, reading, scored, who, answers)


def _open(
    asked: Iterable[Question | None], answers: Mapping[str, str] | None
) -> tuple[Question, ...]:
    """Return the questions that have no answer yet."""
    return tuple(question for question in asked if question and question.id not in (answers or {}))


def _of_one_process(ranked: tuple[Ranked, ...]) -> tuple[Ranked, ...]:
    """Return the causes, lowered if all their lines are of another process than the first's."""
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


def _unrecognised(
    target: str,
    reading: LogReading,
    scored: tuple[Ranked, ...],
    who: Collection[str],
    answers: Mapping[str, str] | None,
) -> Diagnosis:
    """Return a diagnosis without a cause: known meanings and questions.

    `scored` has unnamed causes.
    """
    step, why = next_step(reading)
    leaves = [Leaf(row.cause.id, row.title) for row in scored]
    failing = reading.failures and not (reading.of_people or reading.of_others)
    split = (
        stage_question(reading, who, [*leaves, *guesses(reading)], layer="", whole=True)
        if failing
        else None
    )
    return Diagnosis(
        target,
        UNRECOGNISED,
        notes=(why,),
        questions=_open([split, step], answers),
        understood=understood(reading),
        suspects=suspects(reading),
    )


def verdict_of(ranked: tuple[Ranked, ...]) -> str:
    """Return a problem if the first cause is an error, else advice."""
    return PROBLEM if ranked[0].cause.severity == "error" else "advice"


def platform_of(reading: LogReading) -> str:
    """Return the platform that the words of the log show; "" if they show none or several."""
    votes = {name: len(reading.matching(matcher)) for name, matcher in reading.known.platforms}
    best = max(votes, key=lambda name: votes[name])
    others = sum(count for name, count in votes.items() if name != best)
    return best if votes[best] > 2 * others else ""


def cured(ranked: Ranked, reading: LogReading) -> Ranked:
    """Return the cause with the cures that its actor can use."""
    hints = advice(reading, ranked)
    row = reading.known.cures.get(ranked.slots.get("actor", ""))
    if row is None:
        return replace(ranked, cause=ranked.cause.with_fixes((*hints, *ranked.cause.fix)))
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
    return replace(ranked, cause=ranked.cause.with_fixes((*hints, *kept)))


def actor_of(reading: LogReading, answers: Mapping[str, str]) -> dict[str, str]:
    """Return the actor that ran the program and the folders in answers, as far as they are
    known.
    """
    given = answers.get("actor", "").strip().lower()
    actor = given if given in reading.known.cures else reading.actor
    actor = actor or ("pc" if reading.of_build else "")
    folders = {name: answers.get(name, "").strip() for name in FOLDERS}
    known = {name: path for name, path in folders.items() if _PATH.fullmatch(path)}
    return {**known, **({"actor": actor} if actor else {})}


def _worked(reading: LogReading) -> tuple[str, ...]:
    """Return notes about the steps that worked."""
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
