"""The conditions of two groups of records: the differences between them, and what each means.

The order of measurement is one of them, and decides the unit of the values: a run or a boot.
"""

from __future__ import annotations

import hashlib
import json
import re
import statistics
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from itertools import pairwise
from operator import attrgetter
from typing import Any, TypeVar

from fleet.model.conditions import Sample
from fleet.model.errors import InputError
from fleet.model.gates import LEAST_REPEATS
from fleet.model.record import Record
from fleet.profiles.compare.groups import RecordGroup, build, chip, short_build

WARMER = 5.0  # °C at the start; a passively cooled board throttles over less, docs/compare.md
BUSIER = 1.0  # load average
LONGER = 0.1  # share of generated tokens

_Found = TypeVar("_Found")
_RUN_FOLDER = re.compile(r"/runs/[^/\s]+")
_RELEASE = re.compile(r"/(releases|current)/[^/\s]+(/([0-9a-f]{8,64}|<release>)(?=/|\s|$))?")
_LIBRARY = re.compile(r"(^(lib|dsp|bin|run)/|\.so(\.[\d.]+)?$|\.cat$)")


def short(text: str) -> str:
    """Return the first eight digits of a hash."""
    return text[:8]


def _digest(value: object) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()


def model_files(record: Record) -> str | None:
    """Return one hash for all files that are neither programs nor libraries, None without any."""
    mine = {name: h for name, h in record.files.items() if not _LIBRARY.search(name)}
    return _digest(mine) if mine else None


def library_files(record: Record) -> str | None:
    """Return one hash for programs and libraries, None if the record names none."""
    mine = {name: h for name, h in record.files.items() if _LIBRARY.search(name)}
    return _digest(mine) if mine else None


def options(record: Record) -> str | None:
    """Return arguments and environment without the parts that differ in each run, or None."""
    if not record.argv:
        return None
    words = [f"{name}={value}" for name, value in sorted(record.env.items())]
    text = " ".join([*words, *record.argv])
    for name, word in ((record.run_id, "<run>"), (record.release, "<release>")):
        text = text.replace(name, word) if len(name) > 3 else text
    return _RELEASE.sub(r"/\1/<release>", _RUN_FOLDER.sub("/runs/<run>", text))


def op_packages(record: Record) -> str | None:
    """Return a hash of the op packages of the release, "none" if the record names none."""
    packages = record.origin.get("op_packages")
    return _digest(packages)[:8] if packages else "none"


def system(record: Record) -> str | None:
    """Return operating system, version and kernel, as far as known; None if all are unknown."""
    facts = record.facts
    words = [str(facts.get(name) or "") for name in ("os_id", "os_version", "kernel")]
    return " ".join(word for word in words if word) or None


Named = frozenset[tuple[str, object]]


def governors(record: Record) -> Named | None:
    """Return (clock, governor) pairs, None if the record has none."""
    return frozenset(record.conditions.governors.items()) or None


def limits(record: Record) -> Named | None:
    """Return (clock, highest frequency in Hz) pairs, None if the record has none."""
    return frozenset(record.conditions.limits.items()) or None


def power(record: Record) -> Named | None:
    """Return (supply, state) pairs, None if the record has none."""
    return frozenset(record.conditions.power.items()) or None


def named(pairs: Named) -> str:
    """Return text such as `cpu:policy0 performance, ...`."""
    return ", ".join(f"{name} {value}" for name, value in sorted(pairs, key=str))


def megahertz(pairs: Named) -> str:
    """Return text such as `cpu:policy0 2400 MHz, ...`."""
    return ", ".join(
        f"{name} {float(str(hz)) / 1e6:.0f} MHz" for name, hz in sorted(pairs, key=str)
    )


def throttled(record: Record) -> str | None:
    """Return whether the record has the mark `throttled`; None if no sample of clocks was taken."""
    if record.marks and any(mark.partition(":")[0] == "throttled" for mark in record.marks):
        return "yes"
    conditions = record.conditions
    return "no" if conditions.before or conditions.during or conditions.after else None


# The number of tokens of the prompt; another tokenizer makes another prompt.
prompt_tokens = attrgetter("metrics.prompt_tokens")


def _first(records: Sequence[Record]) -> list[Sample]:
    """Return the samples that were taken before each run, as far as they exist."""
    return [record.conditions.before for record in records if record.conditions.before]


def _starts(records: Sequence[Record]) -> list[float]:
    return [max(sample.zones.values()) for sample in _first(records) if sample.zones]


def _loads(records: Sequence[Record]) -> list[float]:
    return [sample.load for sample in _first(records) if sample.load is not None]


def _tokens(records: Sequence[Record]) -> list[float]:
    return [n for n in map(attrgetter("metrics.generated_tokens"), records) if n is not None]


def by_number(
    a: Sequence[Record], b: Sequence[Record], make: Callable[..., _Found]
) -> list[_Found]:
    """Return findings of `make` for temperature, load and tokens whose medians differ."""
    findings: list[_Found] = []
    for what, read, unit, limit, needed in (
        ("start temperature", _starts, " °C", lambda _: WARMER, True),
        ("load", _loads, "", lambda _: BUSIER, False),
        ("generated tokens", _tokens, "", lambda mid: LONGER * mid, False),
    ):
        sides = [read(side) for side in (a, b)]
        texts = [f"{statistics.median(side):.4g}{unit}" if side else "unknown" for side in sides]
        if not all(sides):
            if needed or any(sides):
                findings.append(make(what, *texts, unknown=True))
            continue
        left, right = (statistics.median(values) for values in sides)
        if abs(right - left) > limit(left):
            findings.append(make(what, *texts))
    return findings


FAR_HOURS = 6.0


def apart(a: Sequence[Record], b: Sequence[Record]) -> tuple[str, str, str] | None:
    """Return why the sides cannot be compared (`boot` or `time`), a label for A and one for B.

    Differences between days and boots affect both sides equally only if the sides alternate.
    Otherwise these differences are part of the change, and no test can separate them:
    docs/compare.md.

    Returns None if the sides alternate. Also returns None if they were measured within FAR_HOURS,
    each in enough boots of its own that boots are the unit.

    If both sides were measured in one boot, one after the other, a board that warms up or a clock
    that sticks looks like a change by B. No test can separate the two, so enough runs for a verdict
    must alternate. Fewer runs get no verdict anyway. Unknown values are not a reason.
    """
    boards = [{record.identity or record.host for record in side} for side in (a, b)]
    if boards[0] != boards[1] or len(boards[0]) != 1 or _in_turns(a, b):
        return None
    first, second = _middle(a), _middle(b)
    boots = [_boots(side) for side in (a, b)]
    own = boots[0].isdisjoint(boots[1]) and min(map(len, boots)) >= LEAST_REPEATS
    judged = min(len({record.run_id for record in side}) for side in (a, b)) >= LEAST_REPEATS
    far = first and second and abs(second - first) > timedelta(hours=FAR_HOURS)
    if first and second and (far or (judged and boots[0] == boots[1])):
        return "time", f"{first:%Y-%m-%d %H:%M}", f"{second:%Y-%m-%d %H:%M}"
    if not all(boots) or boots[0] == boots[1] or own:
        return None
    words = [", ".join(sorted(boot[:8] for boot in side)[:3]) for side in boots]
    return "boot", words[0], words[1]


def boot_is_unit(a: Sequence[Record], b: Sequence[Record]) -> bool:
    """Return True if the boot is the unit: every boot is known, and none has runs of both sides."""
    boots = [_boots(side) for side in (a, b)]
    return bool(all(boots)) and boots[0].isdisjoint(boots[1])


def _boots(records: Sequence[Record]) -> set[str]:
    """Return the boots of the records; an empty set if any boot is unknown."""
    boots = {record.conditions.boot_id for record in records}
    return set() if "" in boots else boots


def _in_turns(a: Sequence[Record], b: Sequence[Record]) -> bool:
    """Return True if the runs of A and B alternate.

    That is the case if the side changes at least min(runs of A, runs of B) - 1 times, and at least
    twice. If the boot is the unit, boots are counted instead of runs.
    """
    by_boot = boot_is_unit(a, b)
    began: dict[tuple[str, str], str] = {}
    for word, side in (("a", a), ("b", b)):
        for record in side:
            key = (word, record.conditions.boot_id if by_boot else record.run_id)
            began[key] = min(began.get(key, record.started), record.started)
    order = [word for _, word in sorted((at, word) for (word, _), at in began.items())]
    changes = sum(left != right for left, right in pairwise(order))
    fewer = min(order.count("a"), order.count("b"))
    return changes >= max(2, fewer - 1)


def _middle(records: Sequence[Record]) -> datetime | None:
    """Return the median of the known start times, in UTC; None if no start is known."""
    times = [at for each in records if (at := seconds_of(each.started)) is not None]
    return datetime.fromtimestamp(statistics.median(times), UTC) if times else None


def seconds_of(text: str) -> float | None:
    """Return the seconds since 1970 of a time of a record, in UTC; None if it is not a time."""
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        return None
    return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()


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
    _Question("prompt", lambda r: r.prompt_sha256 or None, Weight.BLOCKS, True, True, short),
    _Question("finish", attrgetter("finish"), Weight.BLOCKS, of="repeat"),
    _Question("prompt tokens", prompt_tokens, Weight.BLOCKS, of="repeat"),
    _Question("chip", lambda r: chip(r) or None, Weight.BLOCKS, cause=True, needed=True),
    _Question("model", model_files, Weight.BLOCKS, True, True, short, of="release"),
    _Question("precision", lambda r: r.origin.get("precision"), Weight.BLOCKS),
    _Question("context", lambda r: r.origin.get("context"), Weight.BLOCKS),
    _Question("runtime", lambda r: build(r) or None, Weight.WARNS, True, True, shown=short_build),
    _Question("options", options, Weight.WARNS, cause=True),
    _Question("libraries", library_files, Weight.WARNS, shown=short, of="release"),
    _Question("op packages", op_packages, Weight.WARNS, cause=True, of="release"),
    _Question("system", system, Weight.WARNS),
    _Question("governor", governors, Weight.WARNS, needed=True, shown=named),
    _Question("clock limits", limits, Weight.WARNS, shown=megahertz),
    _Question("charger", power, Weight.WARNS, shown=named),
    _Question("throttled", throttled, Weight.WARNS, of="repeat"),
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
    findings += by_number(a, b, _number)
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
