"""The loop of `fleet ab` on one board: warm up, then pairs in turns until there is an answer."""

from __future__ import annotations

import itertools
import json
import math
import statistics
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, ClassVar

from msgspec import structs

from fleet.engine.deploy.apply import reboot
from fleet.engine.lease.lease import Lease
from fleet.engine.pool import DeviceResult
from fleet.engine.run.ab.journal import AbJournal, Pair, Try, missing, pairs_of, releases
from fleet.engine.run.ab.sides import AbSide
from fleet.engine.run.measuring.validity import cure_of, lasting, words_of
from fleet.engine.run.run import LINK_BROKE, RunJob, run_device
from fleet.engine.run.verify import ask_suite
from fleet.engine.session import Session
from fleet.engine.system.provision import ask_rights
from fleet.model.command import Command
from fleet.model.deadline import Deadline
from fleet.model.errors import DeviceError, InputError
from fleet.model.gates import DEFAULT_METRIC, DEFAULT_SAMPLE_SECONDS
from fleet.model.metrics import limit_text
from fleet.model.plan import DevicePlan
from fleet.model.record import Measure, Metrics, Record
from fleet.ops.system.steps_users import Reboot
from fleet.profiles.compare import conditions
from fleet.profiles.compare import metrics as known
from fleet.profiles.compare.comparing import AnswersRow
from fleet.profiles.compare.conditions import APART, CAUSES, Weight
from fleet.profiles.compare.gates import parse, refuse_wrong_way
from fleet.profiles.compare.sequential import (
    LIMIT,
    LOOKS,
    Answer,
    Decision,
    Failures,
    answer,
    failures,
    open_size,
    useful_looks,
)
from fleet.profiles.compare.writing import finding
from fleet.profiles.runs import record_files
from fleet.profiles.stats.difference import SEEN, between
from fleet.profiles.stats.trend import steady

# A side of `fleet ab --sustained` runs without a pause, and the rate at which it settles counts.
#
# In single turns A and B share one chip and its heat. After minutes of one side alone, the chip is
# as hot as that side makes it.

SETTLED = 3  # the last third of the runs counts
LEAST_RUNS = 3


def run_sustained(job: RunJob, seconds: float) -> Record:
    """Run one side for this many seconds and store one record for all its runs.

    The single runs are stored under a run id of their own, with a tag that ends with `-sustained`.
    """
    records: list[Record] = []
    spec = replace(job.run, repeats=LEAST_RUNS, sustained=seconds)
    tags = (job.tags[0], f"{job.tags[-1]}-sustained")
    run_device(replace(job, run=spec, run_id=f"{job.run_id}-sustained", tags=tags), records)
    whole = settled_record(records)
    folder = job.store.folder(job.run_id, whole.host, 0, warmup=False)
    return job.store.save(folder, structs.replace(whole, run_id=job.run_id, tags=job.tags))


def settled_record(records: Sequence[Record]) -> Record:
    """Return one record: medians of the last third of the runs, problems of all of them."""
    last = records[-math.ceil(len(records) / SETTLED) :]
    problems = dict.fromkeys(problem for record in records for problem in record.problems)
    return structs.replace(
        records[-1],
        repeat=0,
        started=records[0].started,
        seconds=sum(record.seconds or 0.0 for record in records),
        metrics=_medians([record.metrics for record in last]),
        problems=tuple(problems),
        artifacts={},
        ops=(),
    )


def _medians(rows: Sequence[Metrics]) -> Metrics:
    own = [name for name in Metrics.__struct_fields__ if name not in {"others", "source"}]
    values = {name: [getattr(metrics, name) for metrics in rows] for name in own}
    named = {name: Measure(statistics.median(of))
             for name, of in values.items() if None not in of}  # fmt: skip
    for name, first in rows[0].others.items():
        same = [metrics.others[name].value for metrics in rows if name in metrics.others]
        named[name] = Measure(statistics.median(same), first.unit)
    return Metrics.of(named)


# Errors that no further pair can cure: a missing metric, a run that can never be valid.


def check(side: str, made: AbSide, record: Record, limits: Mapping[str, float]) -> None:
    """Raise an error for a run that no repeat can make comparable.

    Raises InputError if a valid run is missing a metric of a gate. Raises DeviceError if the run is
    not valid for a lasting reason.
    """
    if any(map(lasting, record.problems)):
        raise not_valid(
            f"fleet stopped the comparison, because no run of {side} can be valid",
            [(side, made, record)],
        )
    if record.problems:
        return
    for name, share in limits.items():
        refuse_wrong_way(parse(limit_text(name, share)), [record], "--gate")
        if not math.isfinite(known.value(record, name)):
            raise known.lacking(
                name,
                [record],
                f"run of {side}",
                partial(_gate, [record], share),
            )

        check_positive(side, record, name)


def check_first(limits: Mapping[str, float], made: AbSide, pair: Pair) -> None:
    """Check the metrics of the first run of B.

    Raises InputError if it is missing a metric that A has, or measures it in another unit.
    """
    record = pair.b
    for name, share in limits.items():
        units = [known.units([side], name) for side in (pair.a, pair.b)]
        if all(units) and units[0] != units[1]:
            words = [", ".join(unit) or "no unit" for unit in units]
            raise InputError(
                f"A measures {name} in {words[0]}, but B in {words[1]}, so they cannot be compared",
                hint="let both programs print the same unit",
            )
        if not math.isfinite(known.value(record, name)):
            option = partial(_gate, [record], share)
            raise known.lacking(name, [record], f"run of B ({made.shown})", option)
        check_positive("B", record, name)


def check_positive(side: str, record: Record, name: str) -> None:
    """Raise DeviceError for a value of 0 or less: it allows no ratio of B and A."""
    value = known.value(record, name)
    if value <= 0:
        raise DeviceError(
            f"a run of {side} measured {name} {value:g}; fleet compares only values above 0",
            device=record.host,
            hint=cure_of("", record.host),
        )


def _gate(records: Sequence[Record], share: float, metric: str) -> str:
    return f"--gate '{known.loss_text(metric, share, records)}'"


def not_valid(why: str, runs: Iterable[tuple[str, AbSide, Record]]) -> DeviceError:
    """Return the error for runs with problems: the problems of each side, and the file to
    correct.
    """
    bad = [(side, made, record) for side, made, record in runs if record.problems]
    texts = [
        f"{side} ({made.shown}): {words_of(problem)}"
        for side, made, record in bad
        for problem in record.problems
    ]
    _, made, record = bad[0]
    cure = cure_of(record.problems[0], record.host, made.playbook_shown)
    return DeviceError(f"{why}: {'; '.join(dict.fromkeys(texts))}", device=record.host, hint=cure)


_SPEED, _QUALITY = ("faster", "slower", "as fast"), ("better", "worse", "as good")
MOST_WARMUPS = 12
ONE_RUN: dict[str, Any] = {"repeats": 1, "warmups": 0, "until": None, "sustained": None}
ONE_WARMUP = ONE_RUN | {"repeats": 0, "warmups": 1}
MOST_BAD = 3  # pairs in sequence that do not count


@dataclass(frozen=True)
class Judged:
    """The answer about one metric on one board: the limit, the medians of both sides, the decision.

    `boots` is the number of boots in which it was measured, 0 if unknown. With several boots,
    `between_boots` is the share of the variance of runs that is between boots. `change_between` is
    the same share for the change within pairs.
    """

    metric: str
    limit: float
    a: float | None
    b: float | None
    decision: Decision
    boots: int = 0
    between_boots: float | None = None
    change_between: float | None = None
    PLAIN: ClassVar[str] = "* text"

    @property
    def text(self) -> str:
        """`B is 2.61 × faster, 95 % 1.88 to 4.81`."""
        if self.decision.mid is None:
            return "no pairs yet"
        few = self.decision.low is None
        end = "; too few pairs for an interval" if few else f", 95 % {self.interval}"
        return f"B is {self.ratio}{end}"

    @property
    def ratio(self) -> str:
        """The ratio in words, such as `2.61 × faster`, `1.07 × slower`, `as fast`; `-` without a
        pair.
        """
        mid = self._times(self.decision.mid)
        if mid is None:
            return "-"
        more, less, same = _SPEED if known.better_way(self.metric) else _QUALITY
        shown = f"{max(mid, 1 / mid):.2f}"
        return same if shown == "1.00" else f"{shown} × {more if mid > 1 else less}"

    @property
    def interval(self) -> str:
        """The interval of the ratio, such as `1.88 to 4.81`; `-` if there are too few pairs."""
        decision = self.decision
        mid, low, high = map(self._times, (decision.mid, decision.low, decision.high))
        if mid is None or low is None or high is None:
            return "-"
        low, high = sorted((1 / low, 1 / high) if mid < 1 else (low, high))
        return f"{low:.2f} to {high:.2f}"

    def _times(self, change: float | None) -> float | None:
        """Return how many times as fast B is as A, for a change as a share of A (None: None)."""
        if change is None:
            return None
        return 1 + change if self.limit < 0 else 1 / (1 + change)

    @property
    def open_size(self) -> bool:
        """True for a loss beyond the limit whose interval includes the limit."""
        return open_size(self.decision, self.limit)

    @property
    def unlike_medians(self) -> bool:
        """True if the change over all pairs is not that of the two medians."""
        mid = self.decision.mid
        return bool(self.a and self.b and mid is not None
                    and abs(self.b / self.a - 1 - mid) >= SEEN)  # fmt: skip


@dataclass(frozen=True)
class AbReport:
    """The result of `fleet ab` on one board.

    `pairs` counts the complete pairs. `in_time` is False if the budget ended the measurement, None
    if an error did. `failures` counts failed runs. `conditions` has sentences about conditions in
    which A and B differ. `suites` has the answers of both sides, if the playbook of B has a suite.
    """

    answers: tuple[Judged, ...]
    pairs: int = 0
    in_time: bool | None = None
    failures: Failures | None = None
    conditions: tuple[str, ...] = ()
    suites: AnswersRow | None = None


@dataclass
class _Board:
    """The values that all pairs of one board share."""

    session: Session
    journal: AbJournal
    sides: dict[str, tuple[AbSide, DevicePlan]]
    result: DeviceResult[AbReport]
    tries: list[Try]

    @property
    def pairs(self) -> list[Pair]:
        """The complete pairs so far."""
        return pairs_of(self.tries)

    def run(self, side: str, run_id: str, word: str, *, warmup: bool = False) -> Record:
        """Run one side (A or B) in one process and return its record.

        `word` names the run in the progress. A `warmup` is not measured.
        Raises errors that no further run can cure.
        """
        made, plan = self.sides[side]
        spec = made.builder.playbook.run
        assert spec is not None
        once = replace(spec, **ONE_WARMUP if warmup else ONE_RUN)
        if self.journal.asked.boots > 1 and not once.sample:  # a sample has the boot id
            once = replace(once, sample=DEFAULT_SAMPLE_SECONDS)
        tags = (f"ab-{self.journal.run_id}", f"ab-{self.journal.run_id}-{side}")
        job = RunJob(
            self.session, made.builder, plan, once, self.journal.store, run_id,
            self.session.identity, tags, f"{word}, {side}",
        )  # fmt: skip
        if self.journal.asked.sustained:
            record = run_sustained(job, self.journal.asked.sustained)
        else:
            records: list[Record] = []
            run_device(job, records)
            record = records[0]
        self.result.records.append(record)
        check(side, made, record, self.journal.asked.limits)
        return record

    def ask(self, word: str) -> Record | None:
        """Ask one side the suite of B, and return the record; None if B has no suite.

        Answers that the journal has already are returned from there.
        """
        made, plan = self.sides[word]
        use, spec = self.sides["B"][0].builder.playbook.suite, made.builder.playbook.run
        assert spec is not None
        if use is None:
            return None
        run_id, host = f"{self.journal.run_id}-{word}", self.session.host.name
        for path in record_files(self.journal.store.root / run_id):
            record = Record.from_dict(json.loads(path.read_text("utf-8")))
            if record.host == host and record.suite and record.suite.sha256 == use.suite.sha256:
                return record
        job = RunJob(
            self.session, made.builder, plan, spec, self.journal.store, run_id,
            self.session.identity, (f"ab-{self.journal.run_id}",), f"suite of {word}",
        )  # fmt: skip
        return ask_suite(job, use.suite)

    def answers(self) -> AnswersRow | None:
        """Return the answers of both sides to the suite; None without a suite."""
        a, b = self.ask("A"), self.ask("B")
        if a is None or b is None or a.suite is None or b.suite is None:
            return None
        return AnswersRow(self.session.host.name, a.suite, b.suite, bool(b.emulated))

    def new_boot(self, pairs: Sequence[Pair], number: int) -> bool:
        """Start a new boot if the pair should begin one and this boot has earlier pairs.

        Returns True if the board was rebooted.
        """
        each = math.ceil(self.journal.asked.design.looks[0] / self.journal.asked.boots)
        before = {
            pair.a.conditions.boot_id for pair in pairs if pair.number < number // each * each
        }
        if self.journal.asked.boots == 1 or not before or self.session.boot_id() not in before:
            return False
        tools = self.session.run(Command(("sh", "-c", "command -v systemctl")), "reboot")
        step = Reboot(f"pair {number + 1} of fleet ab", systemd=tools.ok)
        reboot(self.session, ask_rights(self.session)[0], step)
        return True


def measure(
    journal: AbJournal, sides: Sequence[AbSide], session: Session, result: DeviceResult[AbReport],
    budget: Deadline | None = None,
) -> None:  # fmt: skip
    """Measure until every question has an answer, the last look, or the end of the budget.

    Raises DeviceError if runs of A are not valid. Everything measured so far stays in the result.
    """
    with Lease(session, f"ab {sides[0].word} {sides[1].word}", journal.run_id):
        tries = journal.tries(session.host.name)
        plans = {word: (side, side.on(session, journal.run_id, releases(tries, word)))
                 for word, side in zip("AB", sides, strict=True)}  # fmt: skip
        result.plan = plans["B"][1]
        by_id = any(side.release for side in sides)  # else `not_measured` reports it
        if by_id and len({plan.manifest.id for _, plan in plans.values()}) == 1:
            session.warn("A and B are the same release, so fleet expects no difference")
        board = _Board(session, journal, plans, result, tries)
        in_time, suites = None, None
        try:
            due = _open(journal, board.tries) and not (budget and budget.expired)
            if due and not journal.asked.sustained:  # a sustained side warms itself
                _warm_up(board)
            suites = board.answers()
            in_time = _pairs(board, budget)
        finally:  # the measured pairs are shown, whatever the error
            board.tries = journal.tries(session.host.name)
            result.value = AbReport(
                answers=tuple(judged(journal, board.pairs)),
                pairs=len(board.pairs),
                in_time=in_time,
                failures=failed(journal, board.tries),
                conditions=tuple(differing(board.pairs)),
                suites=suites,
            )
    result.outcome = "ran"
    answers = [
        f"{item.text}, {item.metric} {item.decision.answer}" for item in result.value.answers
    ]
    result.text = f"{len(board.pairs)} pairs: {'; '.join(answers)}"


def _pairs(board: _Board, budget: Deadline | None) -> bool:
    """Measure pairs until there is an answer; return False if the budget ended that."""
    bad, spent = 0, list[float]()
    while _open(board.journal, board.tries):
        if budget is not None and (budget.expired or budget.remaining < (spent or [0])[-1]):
            return False
        began = time.monotonic()
        looks = useful_looks(board.journal.asked.family, board.journal.asked.design)
        attempt = _try(board, progress(len(board.pairs), spent, budget, looks))
        only_b = attempt.a is not None and attempt.a.counts  # `failed` judges these tries
        bad = 0 if attempt.pair or only_b else bad + 1
        if bad == MOST_BAD:
            raise not_valid(
                f"fleet stopped the comparison, because {bad} pairs of runs in sequence were not "
                "valid",
                [(side, board.sides[side][0], record)
                 for side, record in (("A", attempt.a), ("B", attempt.b)) if record is not None],
            )  # fmt: skip
        spent.append(time.monotonic() - began)
    return True


def _try(board: _Board, word: str) -> Try:
    """Measure one pair. It is added to the tries of the board however its runs end."""
    pairs, host = board.pairs, board.session.host.name
    number = missing(pairs)
    run_ids = dict(zip("AB", board.journal.run_ids(host, number), strict=True))
    if board.new_boot(pairs, number) and not board.journal.asked.sustained:
        _warm_up(board)
    both: dict[str, Record] = {}
    for side in board.journal.order(host, number):
        both[side] = board.run(side, run_ids[side], word)
    attempt = Try(number, both["A"], both["B"])
    if attempt.pair and not pairs:
        limits = board.journal.asked.limits or _limits(attempt.pair.a)
        check_first(limits, board.sides["B"][0], attempt.pair)
    board.tries.append(attempt)
    return attempt


def progress(
    done: int,
    spent: Sequence[float],
    budget: Deadline | None = None,
    looks: Sequence[int] = LOOKS,
) -> str:
    """Return a text like `pair 5 of 8, about 40 s left`.

    The time is that to the next look, or to the end of the budget.
    """
    look = next(look for look in looks if look > done)
    text = f"pair {done + 1} of {look}"
    if not spent:
        return text
    left = statistics.median(spent) * (look - done)
    left = min(left, budget.remaining) if budget is not None else left
    return f"{text}, about {f'{left:.0f} s' if left < 100 else f'{left / 60:.0f} min'} left"


def _open(journal: AbJournal, tries: Sequence[Try]) -> bool:
    """Return True while a question has no answer and a further look is possible."""
    pairs, broken = pairs_of(tries), failed(journal, tries).answer
    if len(pairs) >= journal.asked.design.looks[-1] or broken is Answer.FAIL:
        return False
    answers = [broken, *(item.decision.answer for item in judged(journal, pairs))]
    return Answer.UNDECIDED in answers


def failed(journal: AbJournal, tries: Sequence[Try]) -> Failures:
    """Count the failed runs of a board; a run whose connection broke may have been fine."""

    def problem(record: Record | None) -> str | None:
        if record is None or record.problems == (LINK_BROKE,):
            return None
        return words_of(record.problems[0]) if record.problems else ""

    problems = [(problem(attempt.a), problem(attempt.b)) for attempt in tries]
    return failures(problems, len(journal.asked.hosts))


def differing(pairs: Sequence[Pair]) -> list[str]:
    """Return the uncontrolled conditions in which A and B differ, as lines of text.

    A cause (model, runtime, prompt, ...) is left out, because the comparison is about it, unless
    it brings differences of its own, as another program does.
    """
    sides = [pair.a for pair in pairs], [pair.b for pair in pairs]
    weights = {Weight.BLOCKS, Weight.WARNS}
    differences = [item for item in conditions.check(*sides, CAUSES)
                   if item.weight in weights or item.text]  # fmt: skip
    return [finding(item) for item in differences if item.what not in APART]


def judged(journal: AbJournal, pairs: Sequence[Pair]) -> list[Judged]:
    """Return the answers of one board, each at the look that gave it; undecided without pairs."""
    answers = []
    limits = journal.asked.limits or (_limits(pairs[0].a) if pairs else {DEFAULT_METRIC: LIMIT})
    for name, limit in limits.items():
        values, good = values_of(pairs, name)
        decision = answer(values, limit, journal.asked.family, journal.asked.design)
        mids = [statistics.median(side) for side in zip(*values, strict=True)] or [None, None]
        runs, gaps = _by_boot(values, good) if values else ([], [])
        shares = between(runs), between(gaps)
        answers.append(Judged(name, limit, mids[0], mids[1], decision, len(gaps), *shares))
    return answers


def values_of(pairs: Sequence[Pair], name: str) -> tuple[list[tuple[float, float]], list[Pair]]:
    """Return the values of A and B of a metric, and the pairs that have both."""
    both = [(known.value(pair.a, name), known.value(pair.b, name)) for pair in pairs]
    good = [min(value) > 0 and all(map(math.isfinite, value)) for value in both]
    return list(itertools.compress(both, good)), list(itertools.compress(pairs, good))


def _by_boot(
    values: Sequence[tuple[float, float]], pairs: Sequence[Pair]
) -> tuple[list[list[float]], list[list[float]]]:
    """Return logarithms by boot: of the runs, centred by side, and of B minus A of each pair."""
    runs, gaps = dict[str, list[float]](), dict[str, list[float]]()
    logs = [(math.log(a), math.log(b)) for a, b in values]
    mids = [statistics.fmean(side) for side in zip(*logs, strict=True)]
    for (a, b), pair in zip(logs, pairs, strict=True):
        if boot := pair.a.conditions.boot_id:
            runs.setdefault(boot, []).extend((a - mids[0], b - mids[1]))
            gaps.setdefault(boot, []).append(b - a)
    return list(runs.values()), list(gaps.values())


def _limits(record: Record) -> dict[str, float]:
    """Return {metric: limit} for a comparison without a gate.

    The metric is the rate of generation, or else the first one with a known better direction.
    Raises DeviceError if the runs measured no such metric.
    """
    names = [DEFAULT_METRIC, *known.present([record])]
    for name in names:
        better = known.metric(name, [record]).better
        if better and math.isfinite(known.value(record, name)):
            return {name: LIMIT * better}
    raise DeviceError(
        "the runs measured no metric for which fleet knows whether a higher value is better",
        hint="name a metric and say which change is worse: --gate 'wall_ms>+3%'",
    )


def _warm_up(board: _Board) -> None:
    """Run both sides in turns until the last three runs of each show no trend."""
    values: dict[str, list[float]] = {"A": [], "B": []}
    for number in range(MOST_WARMUPS):
        side, word = "AB"[number % 2], f"warm-up {number + 1} of at most {MOST_WARMUPS}"
        record = board.run(side, f"{board.journal.run_id}-warm", word, warmup=True)
        if record.problems:  # it has no values; the pairs show if that stays so
            continue
        name = next(iter(board.journal.asked.limits or _limits(record)))
        values[side].append(known.value(record, name))
        if number >= 3 and all(map(steady, values.values())):
            return
