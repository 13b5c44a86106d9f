"""The comparison of two groups of records, for each board and each metric."""

from __future__ import annotations

import math
import statistics
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from fleet.model.gates import fewest
from fleet.model.metrics import Metric
from fleet.model.record import Record
from fleet.model.suite import SuiteResult
from fleet.profiles.compare import metrics as known
from fleet.profiles.compare.conditions import (
    APART,
    ConditionFinding,
    Weight,
    between,
    boot_is_unit,
    check_vary,
)
from fleet.profiles.compare.groups import RecordGroup, by_board, chip, runs_of, values_of
from fleet.profiles.compare.ops import OpDiff, compare_ops, lonely_units
from fleet.profiles.compare.verdict import CHANCE, GATED, MetricRow, Verdict, direction, judge
from fleet.profiles.stats import ranks
from fleet.profiles.stats.difference import FEWEST_PAIRS, against_level, difference, holm
from fleet.profiles.stats.trend import Floats

SCHEMA = 1
MARGIN = 0.01
Pair = tuple[str, list[Record], list[Record]]


@dataclass(frozen=True)
class Overall:
    """A metric over several boards.

    `change` has the lower bound, middle and upper bound over the boards, if there are at least six.
    """

    metric: Metric
    moved: dict[str, int]
    change: tuple[float, float, float] | None
    verdict: Verdict | None
    PLAIN: ClassVar[str] = "metric=metric.name boards=moved change verdict"


@dataclass(frozen=True)
class AnswersRow:
    """The answers of A and B to one suite on one board; the last result of each side."""

    board: str
    a: SuiteResult
    b: SuiteResult
    emulated: bool
    PLAIN: ClassVar[str] = "board a b worse emulated"

    @property
    def worse(self) -> bool:
        """True if B does not pass the suite."""
        return not self.b.holds

    @property
    def text(self) -> str:
        """A line such as `18 of 20 prompts of the suite instruct passed, was 20`."""
        was = f"was {self.a.passed}" if self.a.sha256 == self.b.sha256 else "A had another suite"
        return f"{self.b.shown} of the suite {self.b.name} passed, {was}" + (
            " (emulated)" * self.emulated
        )


@dataclass(frozen=True)
class Comparison:
    """B compared with A: the conditions, the rows, and a summary over several boards."""

    a: RecordGroup
    b: RecordGroup
    findings: tuple[ConditionFinding, ...]
    rows: tuple[MetricRow, ...]
    overall: tuple[Overall, ...]
    ops: tuple[OpDiff, ...]
    remarks: tuple[str, ...]
    margin: float
    answers: tuple[AnswersRow, ...] = ()
    ABOUT: ClassVar = {"schema": SCHEMA, "chance": CHANCE, "correction": "holm"}
    PLAIN: ClassVar[str] = """**ABOUT a b margin conditions=findings rows overall ops remarks
        answers"""

    @property
    def metrics(self) -> list[str]:
        """The metrics that were compared."""
        return [summary.metric.name for summary in self.overall]

    @property
    def missing(self) -> tuple[str, ...]:
        """Boards of A that B does not have, if A and B share other boards."""
        left, right = self.a.boards, self.b.boards
        both = left.keys() & right.keys()
        return tuple(sorted({left[n][0].host for n in left if n not in both})) if both else ()

    @property
    def refused(self) -> tuple[ConditionFinding, ...]:
        """The findings that `--strict` refuses: unintended differences and unknown conditions."""
        fine = {Weight.COMPARED, Weight.REMARK}
        return tuple(finding for finding in self.findings if finding.weight not in fine)


def compare(
    a: RecordGroup,
    b: RecordGroup,
    names: Sequence[str] = (),
    *,
    margin: float = MARGIN,
    vary: Sequence[str] = (),
    gated: Collection[str] = (),
) -> Comparison:
    """Compare two groups. `names` are the metrics; if there are none, all usual metrics are used.

    A board that both groups have is compared with itself. Other boards are left out and named in
    the remarks.

    Verdicts and intervals are corrected within two families, so that all of them hold together. The
    family of the metrics in `gated` (named by gates) gets most of the chance of an error, because
    those metrics decide. The other rows get the rest.

    Raises InputError for a word of `vary` that is not a possible cause.
    """
    check_vary(vary)
    pairs, remarks = pair(a, b)
    findings = between(a, b, pairs, vary)
    blocked = {
        label: [finding.what for finding in findings if finding.weight is Weight.BLOCKS
                and finding.board in {"", label}]
        for label, _, _ in pairs
    }  # fmt: skip
    wanted = list(names) or known.present(a.records)
    metrics = [known.metric(n, (*a.records, *b.records)) for n in wanted]
    table = [
        [row_of(label, *sides, metric, blocked[label]) for metric in metrics]
        for label, left, right in pairs
        for sides in [sides_of(left, right)]
    ]
    rows = [row for alike in zip(*table, strict=True) for row in alike]
    rows = judged(rows, margin, gated)
    remarks += _remarks(rows)
    ops, lonely = _ops(pairs, blocked)
    return Comparison(
        a, b, tuple(findings), tuple(rows), tuple(_overall(metrics, rows, margin)),
        tuple(ops), (*remarks, *lonely), margin, tuple(answers_of(a, b)),
    )  # fmt: skip


def answers_of(a: RecordGroup, b: RecordGroup) -> Iterator[AnswersRow]:
    """Yield the answers of each board on which both sides ran a suite."""
    before = {record.host: record for record in a.suites}
    for host, after in {record.host: record for record in b.suites}.items():
        was = before.get(host)
        if was is not None and was.suite is not None and after.suite is not None:
            yield AnswersRow(host, was.suite, after.suite, bool(was.emulated or after.emulated))


def judged(rows: Sequence[MetricRow], margin: float, gated: Collection[str]) -> list[MetricRow]:
    """Return the rows with verdicts. The rows of `gated` metrics are a family of their own."""
    named = [row.metric.name in gated for row in rows]
    families = {}
    for family, part in ((True, GATED), (False, 1 - GATED)):
        mine = [row for row, gate in zip(rows, named, strict=True) if gate == family]
        families[family] = iter(judge(mine, margin, part if len(set(named)) == 2 else 1.0))
    return [next(families[family]) for family in named]


def pair(a: RecordGroup, b: RecordGroup) -> tuple[list[Pair], list[str]]:
    """Match the boards, and return the pairs and remarks.

    Each board is compared with itself. If the groups share no board, all records of A are compared
    with all records of B.
    """
    left, right = a.boards, b.boards
    both = [identity for identity in left if identity in right]
    if both:
        remarks = []
        for label, mine, others in ((a.label, left, right), (b.label, right, left)):
            alone = sorted({mine[identity][0].host for identity in mine if identity not in others})
            if alone:
                shown = ", ".join(alone[:5]) + (", ..." if len(alone) > 5 else "")
                remarks.append(f"not compared, because only {label} contains them: {shown}")
        names = _names(both, right)
        return [(names[identity], left[identity], right[identity]) for identity in both], remarks
    if not left or not right:
        return [], [f"{group.label} contains no results" for group in (a, b) if not group.records]
    label = " → ".join(
        next(iter(side.values()))[0].host if len(side) == 1 else f"{len(side)} boards"
        for side in (left, right)
    )
    text = "A and B were measured on different devices, so a change may come from the devices"
    records = [[r for board in side.values() for r in board] for side in (left, right)]
    return [(label, records[0], records[1])], [text]


def _remarks(rows: Sequence[MetricRow]) -> list[str]:
    """Return the remarks on the rows; boards and metrics with the same remark share a line."""
    places: dict[str, dict[str, list[str]]] = {}
    for row in rows:
        for text in row.difference.remarks:
            places.setdefault(text, {}).setdefault(row.metric.shown, []).append(row.board)
    lines = []
    for text, metrics in places.items():
        named = (f"{', '.join(boards)} {metric}" for metric, boards in metrics.items())
        lines.append(f"{'; '.join(named)}: {text}")
    if any(row.difference.how in {"values", "repeats"} for row in rows):
        lines.append(
            f"A or B comes from fewer than {fewest()} `fleet run` commands, so a reboot alone may "
            "explain the change: the repeats of one command share a boot and do not count here"
        )
    return lines


def _names(identities: Sequence[str], boards: dict[str, list[Record]]) -> dict[str, str]:
    hosts = [boards[identity][0].host for identity in identities]
    return {
        identity: host if hosts.count(host) == 1 else f"{host} ({identity[-8:]})"
        for identity, host in zip(identities, hosts, strict=True)
    }


def _overall(metrics: Sequence[Metric], rows: Sequence[MetricRow], margin: float) -> list[Overall]:
    """Return the summary of each metric over the boards.

    The board is the unit: signed ranks of the changes of the boards, corrected over the metrics
    (Holm).
    """
    samples = []
    for metric in metrics:
        mine = [row for row in rows if row.metric == metric]
        good = [row.difference.mid for row in mine if row.verdict is not Verdict.INCOMPARABLE]
        gaps = np.array([math.log1p(share) for share in good if share is not None and share > -1])
        samples.append((metric, mine, gaps))
    many = [len(gaps) >= FEWEST_PAIRS for _, _, gaps in samples]
    chances = [
        ranks.signed_rank(item[2]) for item, enough in zip(samples, many, strict=True) if enough
    ]
    corrected = iter(holm(chances))
    return [
        _together(metric, mine, gaps, next(corrected) if enough else None, margin)
        for (metric, mine, gaps), enough in zip(samples, many, strict=True)
    ]


def _together(
    metric: Metric, rows: Sequence[MetricRow], gaps: Floats, p: float | None, margin: float
) -> Overall:
    words = [str(row.verdict) for row in rows]
    moved = {str(word): words.count(str(word)) for word in Verdict if str(word) in words}
    bounds = ranks.centre(gaps, 0.95) if p is not None else None
    if p is None or bounds is None:
        return Overall(metric, moved, None, rows[0].verdict if len(rows) == 1 else None)
    low, mid, high = (math.expm1(bound) for bound in bounds)
    verdict = Verdict.NONE
    if max(-low, high) <= margin:
        verdict = Verdict.SAME
    elif p <= CHANCE:
        verdict = direction(metric, 1 if mid > 0 else -1)
    return Overall(metric, moved, (low, mid, high), verdict)


def _ops(pairs: Sequence[Pair], blocked: dict[str, list[str]]) -> tuple[list[OpDiff], list[str]]:
    """Compare the operations of all comparable boards of one chip together; return remarks too."""
    fit = [pair for pair in pairs if not set(blocked[pair[0]]) - APART]
    a = [r for _, side, _ in fit for r in side if r.ops]
    b = [r for _, _, side in fit for r in side if r.ops]
    if len({chip(r) for r in (*a, *b)}) > 1:
        return [], [("to compare operations, select one chip with chip:NAME")]
    lonely = [
        f"operations not compared: only {side} measured them in {unit}"
        for side, units in zip("AB", lonely_units(a, b), strict=True)
        for unit in sorted(units)
    ]
    return compare_ops(a, b), lonely


@dataclass(frozen=True)
class Side:
    """The records of one side of a pair, read once for all metrics.

    `seconds` is the typical duration of a run.
    """

    records: Sequence[Record]
    runs: list[list[Record | None]]
    boards: int
    chips: int
    emulated: bool
    seconds: float | None

    @property
    def published(self) -> bool:
        """True for a single published figure, about which nothing else is known."""
        return len(self.records) == 1 and "published" in self.records[0].tags

    def values(self, name: str) -> list[list[float]]:
        """Return the values by run for one board; for several boards one value for each board.

        The board is the unit if there are several.
        """
        return values_of(self.runs, name) if self.boards == 1 else by_board(self.runs, name)


def sides_of(a: Sequence[Record], b: Sequence[Record]) -> tuple[Side, Side]:
    """Return both sides of a comparison.

    Boots are the unit if every boot is known and no boot has runs of both sides.
    """
    counted = [[record for record in side if record.counts] for side in (a, b)]
    by_boot = boot_is_unit(counted[0], counted[1])
    return _side(a, by_boot=by_boot), _side(b, by_boot=by_boot)


def _side(records: Sequence[Record], *, by_boot: bool) -> Side:
    boards = {record.identity or record.host: record for record in records}
    # The boards of a run share its run id, so with several boards a run is not the unit.
    runs = [[record if record.counts else None for record in records]]
    if len(boards) == 1:
        runs = runs_of(records, by_boot=by_boot)
    emulated = any(record.emulated for record in records)
    chips = len(set(map(chip, boards.values())))
    return Side(records, runs, len(boards), chips, emulated, _seconds(runs))


def _seconds(runs: Sequence[Sequence[Record | None]]) -> float | None:
    """Return the median over the runs of the total duration of their repeats, None if unknown."""
    whole = [
        sum(record.seconds for record in run if record is not None and record.seconds)
        for run in runs
    ]
    known_ones = [seconds for seconds in whole if seconds]
    return statistics.median(known_ones) if known_ones else None


def row_of(label: str, a: Side, b: Side, metric: Metric, blocked: Sequence[str]) -> MetricRow:
    """Return the change of one metric, without a verdict.

    `blocked` are the conditions that forbid a verdict.
    """
    units = known.units(a.records, metric.name) | known.units(b.records, metric.name)
    why = f"differs: {', '.join(blocked)}" if blocked else ""
    if len(units) > 1:
        why = f"units differ: {', '.join(sorted(units))}"
    elif max(a.chips, b.chips) > 1:
        why = "the group contains results of several chips"
    values = a.values(metric.name), b.values(metric.name)
    change = difference(*values)
    if a.published and change.mid_a is not None and change.mid_a > 0:
        change = against_level(change.mid_a, values[1])
    both = [side.seconds for side in (a, b) if side.seconds]
    seconds = statistics.mean(both) if both else None
    emulated = a.emulated or b.emulated
    # With several boards, each board is a unit.
    runs = len(a.runs) * a.boards, len(b.runs) * b.boards
    return MetricRow(label, metric, change, why=why, emulated=emulated, seconds=seconds, runs=runs)
