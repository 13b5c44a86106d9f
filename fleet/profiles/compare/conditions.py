"""The conditions of two groups of records: the differences between them, and what each means."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from operator import attrgetter
from typing import Any

from fleet.model.errors import InputError
from fleet.model.record import Record
from fleet.profiles.compare import seen
from fleet.profiles.compare.groups import RecordGroup, build, chip, short_build
from fleet.profiles.compare.turns import apart


class Weight(StrEnum):
    """The meaning of a difference."""

    BLOCKS = "blocks"  # the numbers measure different things
    COMPARED = "compared"  # the user varies this condition
    WARNS = "warns"  # it may be the cause of the change
    UNKNOWN = "unknown"  # at least one record does not contain it: neither equal nor different
    REMARK = "remark"


@dataclass(frozen=True)
class ConditionFinding:
    """A difference between the conditions of A and of B.

    `what` is the word for `--vary`; `board` is "" if the difference concerns all boards.
    """

    what: str
    weight: Weight
    a: str
    b: str
    board: str = ""
    text: str = ""


@dataclass(frozen=True)
class _Question:
    """A condition: how it is read from a record, and what a difference means.

    `cause` is True if the condition may be the one that is compared. `needed` is True if a record
    without the condition is reported as unknown. `of` is the scope in which the condition is
    constant: `release` or `run` (one record of each is read), or `repeat` (every record is read).
    """

    what: str
    read: Callable[[Record], Hashable]
    weight: Weight
    cause: bool = False
    needed: bool = False
    shown: Callable[[Any], str] = str
    of: str = "run"


_QUESTIONS = (
    _Question("emulated", lambda r: "yes" if r.emulated else "no", Weight.BLOCKS),
    _Question("runner", lambda r: r.runner or None, Weight.BLOCKS, cause=True, needed=True),
    _Question("prompt", lambda r: r.prompt_sha256 or None, Weight.BLOCKS, True, True, seen.short),
    _Question("finish", attrgetter("finish"), Weight.BLOCKS, of="repeat"),
    _Question("prompt tokens", seen.prompt_tokens, Weight.BLOCKS, of="repeat"),
    _Question("chip", lambda r: chip(r) or None, Weight.BLOCKS, cause=True, needed=True),
    _Question("model", seen.model_files, Weight.BLOCKS, True, True, seen.short, of="release"),
    _Question("precision", lambda r: r.origin.get("precision"), Weight.BLOCKS),
    _Question("context", lambda r: r.origin.get("context"), Weight.BLOCKS),
    _Question("runtime", lambda r: build(r) or None, Weight.WARNS, True, True, shown=short_build),
    _Question("options", seen.options, Weight.WARNS, cause=True),
    _Question("libraries", seen.library_files, Weight.WARNS, shown=seen.short, of="release"),
    _Question("op packages", seen.op_packages, Weight.WARNS, cause=True, of="release"),
    _Question("system", seen.system, Weight.WARNS),
    _Question("governor", seen.governors, Weight.WARNS, needed=True, shown=seen.named),
    _Question("clock limits", seen.limits, Weight.WARNS, shown=seen.megahertz),
    _Question("charger", seen.power, Weight.WARNS, shown=seen.named),
    _Question("throttled", seen.throttled, Weight.WARNS, of="repeat"),
    _Question("fleet", lambda r: r.fleet or None, Weight.REMARK),
)
APART = frozenset({"boot", "time"})  # the sides were not measured alternately, see `turns.apart`
CAUSES = tuple(question.what for question in _QUESTIONS if question.cause)
_OTHER_LENGTH = "another prompt, so TTFT and prompt tok/s are those of prompts of other lengths"
# qualcomm/GenieX cb60a5d, sdk/benchmark: README.md, fill_sampler of benchmark.c
_GENIE_GENIEX = (
    "GenieX brings its own QAIRT, pads the prompt to a multiple of 128 tokens, samples with top-p "
    "1 and no repetition penalty, and newer versions add the chat template for a text"
)
_CHANGE_LIBRARIES = {"runtime", "runner", "chip", "op packages"}


def check_vary(words: Sequence[str]) -> None:
    """Raise InputError for a word that is not a possible cause."""
    for word in words:
        if word not in CAUSES:
            raise InputError(
                f"--vary: '{word}' is not a condition that fleet records",
                hint=f"use one of: {', '.join(CAUSES)}",
            )


def check(
    a: Sequence[Record], b: Sequence[Record], vary: Sequence[str] = ()
) -> list[ConditionFinding]:
    """Return the differences between two groups of records that count, worst first.

    If exactly one cause differs, it is the one that is compared. If several differ, `vary` must
    name the intended ones, because a change cannot be traced to one of two causes.
    """
    if not a or not b:
        return []
    runs = [_one_of_each(side, _run) for side in (a, b)]
    releases = [_one_of_each(side, _release) for side in runs]
    by_scope = {"repeat": (a, b), "run": runs, "release": releases}
    findings = [
        finding for question in _QUESTIONS for finding in _ask(question, *by_scope[question.of])
    ]
    causes = {f.what for f in findings if f.what in CAUSES and f.weight is not Weight.UNKNOWN}
    meant = set(vary) or (causes if len(causes) == 1 else set())
    if vary or causes:
        changed = meant & causes
        findings = [_judged(finding, changed) for finding in findings]
    findings += seen.by_number(a, b, _number)
    if (not_in_turns := apart(a, b)) is not None:
        what, left, right = not_in_turns
        text = "not measured alternately"
        findings.append(ConditionFinding(what, Weight.BLOCKS, left, right, text=text))
    order = list(Weight)
    return sorted(findings, key=lambda finding: order.index(finding.weight))


def _judged(finding: ConditionFinding, meant: set[str]) -> ConditionFinding:
    if finding.weight is Weight.UNKNOWN:
        return finding
    implied = finding.what == "libraries" and meant & _CHANGE_LIBRARIES
    if finding.what in meant or implied:
        return replace(finding, weight=Weight.COMPARED)
    if finding.what == "prompt tokens" and "prompt" in meant:
        return replace(finding, weight=Weight.COMPARED, text=_OTHER_LENGTH)
    return finding


_run = attrgetter("run_id", "identity", "release", "prompt_sha256", "runner")


def _release(record: Record) -> Hashable:
    """Return the id of the release, which is a hash of its content; without one, the run."""
    return record.release or (record.run_id, record.identity)


def _one_of_each(records: Sequence[Record], key: Callable[[Record], Hashable]) -> list[Record]:
    return list({key(record): record for record in records}.values())


def _ask(question: _Question, a: Sequence[Record], b: Sequence[Record]) -> list[ConditionFinding]:
    left, right = (set(map(question.read, side)) for side in (a, b))
    known_left, known_right = left - {None}, right - {None}
    texts = [
        _words([question.shown(answer) for answer in side if answer is not None], None in side)
        for side in (left, right)
    ]
    make = ConditionFinding(question.what, question.weight, texts[0], texts[1])
    if known_left and known_right and known_left != known_right:
        programs = question.what == "runner" and known_left | known_right == {"genie", "geniex"}
        return [replace(make, text=_GENIE_GENIEX) if programs else make]
    known = bool(known_left or known_right)
    if None in left | right and (question.needed or known):
        return [replace(make, weight=Weight.UNKNOWN)]
    mixed = question.weight in {Weight.BLOCKS, Weight.WARNS} and len(known_left) > 1
    if mixed and question.what not in {"finish", "prompt tokens"}:
        weight = Weight.WARNS
        return [replace(make, weight=weight, text="not the same in all runs of A or of B")]
    return []


def _number(what: str, a: str, b: str, *, unknown: bool = False) -> ConditionFinding:
    return ConditionFinding(what, Weight.UNKNOWN if unknown else Weight.WARNS, a, b)


def _words(texts: list[str], unknown: bool) -> str:
    texts = sorted(texts)
    many = [*texts[:3], f"and {len(texts) - 3} more"] if len(texts) > 4 else texts
    return ", ".join([*many, *(["unknown"] if unknown else [])])


def between(
    a: RecordGroup, b: RecordGroup, pairs: Sequence[tuple[str, Sequence[Record], Sequence[Record]]],
    vary: Sequence[str] = (),
) -> list[ConditionFinding]:  # fmt: skip
    """Return the findings of pairs of boards. A finding that all pairs share has no board."""
    by_board = [
        (label, check([r for r in left if r.counts], [r for r in right if r.counts], vary))
        for label, left, right in pairs
    ]
    first = by_board[0][1] if by_board else []
    shared = [finding for finding in first if all(finding in mine for _, mine in by_board)]
    own = [replace(f, board=label) for label, mine in by_board for f in mine if f not in shared]
    if a.counted and b.counted and all(r.emulated for r in (*a.counted, *b.counted)):
        text = "A and B are both emulated, so the numbers are not those of an NPU"
        shared.append(ConditionFinding("emulated", Weight.REMARK, "yes", "yes", text=text))
    if a.dropped.keys() != b.dropped.keys():
        dropped = [", ".join(f"{n} {word}" for word, n in group.dropped.items()) or "none"
                for group in (a, b)]  # fmt: skip
        shared.insert(0, ConditionFinding("runs that do not count", Weight.WARNS, *dropped))
    return [*shared, *own]
