"""The verdict of `fleet ab` over all devices: pass, fail or undecided, with its reasons."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

from fleet.engine.pool import DeviceResult
from fleet.engine.run.ab.journal import AbJournal
from fleet.engine.run.ab.measuring import AbReport, Judged, values_of
from fleet.profiles.compare.comparing import AnswersRow
from fleet.profiles.compare.sequential import Answer, Failures, over_boards, settled


@dataclass(frozen=True)
class AbRow:
    """A metric on one device; `device` is empty in a row for all devices together."""

    device: str
    judged: Judged
    emulated: bool
    PLAIN: ClassVar[str] = "device **judged emulated"

    def named(self, place: str = "") -> str:
        """Return the device and the metric, such as `evk-01 decode_tps (emulated)`."""
        mark = " (emulated)" * self.emulated
        return f"{place or self.device} {self.judged.metric}{mark}"


@dataclass(frozen=True)
class AbFailures:
    """The failed runs of both sides on one device, at least one."""

    device: str
    failures: Failures
    pairs: int
    emulated: bool
    PLAIN: ClassVar[str] = "device **failures"


@dataclass(frozen=True)
class AllDevices:
    """The answers for all devices together, and the names of these devices."""

    devices: Sequence[str] = ()
    rows: Sequence[AbRow] = ()


@dataclass(frozen=True)
class AbVerdict:
    """The answer of a comparison.

    `reasons` are the reasons why B fails, and `undecided` the questions without an answer.
    `exhausted` is what to do if no further pair can decide them, else "". `without_failures` maps a
    number of pairs to the devices on which no run failed. `ended_by_budget` maps devices to numbers
    of pairs.
    """

    ab: str
    answer: Answer
    reasons: Sequence[str]
    undecided: Sequence[str]
    exhausted: str
    rows: Sequence[AbRow]
    over: AllDevices
    failures: Sequence[AbFailures]
    without_failures: Mapping[int, Sequence[str]]
    conditions: Mapping[str, Sequence[str]]
    answers: Sequence[AnswersRow]
    ended_by_budget: Mapping[str, int]
    PLAIN: ClassVar[str] = (
        "ab answer reasons undecided rows over failures conditions answers ended_by_budget=ended"
    )

    @property
    def ended(self) -> list[str]:
        """The devices on which the budget ended the comparison."""
        return list(self.ended_by_budget)


def verdict(journal: AbJournal, results: Sequence[DeviceResult[AbReport]]) -> AbVerdict:
    """Return the verdict. A device without a report leaves it undecided, unless B fails."""
    reports = {result.host.name: result.value for result in results if result.value}
    emulated = {result.host.name: _emulated(result) for result in results}
    rows = [AbRow(name, item, emulated[name])
            for name, report in reports.items() for item in report.answers]  # fmt: skip
    failed = [
        AbFailures(name, report.failures, report.pairs, emulated[name])
        for name, report in reports.items()
        if report.failures and (report.failures.a or report.failures.b)
    ]
    answers = [report.suites for report in reports.values() if report.suites]
    together = over(journal, reports, emulated=all(emulated.values()))
    reasons = _reasons(rows, together, failed, answers)
    undecided = _undecided(rows, failed)
    passed = not undecided and all(result.fine for result in results)
    without: dict[int, list[str]] = {}
    for name, report in reports.items():
        if report.pairs and name not in {item.device for item in failed}:
            without.setdefault(report.pairs, []).append(name)
    return AbVerdict(
        journal.run_id,
        Answer.FAIL if reasons else Answer.PASS if passed else Answer.UNDECIDED,
        reasons,
        undecided,
        _exhausted(journal, rows),
        rows,
        together,
        failed,
        without,
        {result.host.name: result.value.conditions if result.value else () for result in results},
        answers,
        {name: report.pairs for name, report in reports.items() if report.in_time is False},
    )


def _emulated(result: DeviceResult[AbReport]) -> bool:
    return bool(result.plan and result.plan.facts.emulated)


def _reasons(
    rows: Sequence[AbRow],
    together: AllDevices,
    failed: Sequence[AbFailures],
    answers: Sequence[AnswersRow],
) -> list[str]:
    losses: dict[str, list[str]] = {}
    place = f"all {len(together.devices)} devices together"
    for row in (*rows, *together.rows):
        if row.judged.decision.answer is Answer.FAIL:
            word = "than the gates allow"
            if row.judged.open_size:
                word = "than A (the interval includes the gate)"
            name = row.named() if row.device else f"{place} {row.judged.metric}"
            losses.setdefault(word, []).append(f"{name} ({row.judged.text})")
    reasons = [f"B is worse {word}: {', '.join(names)}" for word, names in losses.items()]
    reasons += [f"B gives wrong answers: {row.board}: {row.text}" for row in answers if row.worse]
    failing = [f"{item.device}: {item.failures.text}"
               for item in failed if item.failures.answer is Answer.FAIL]  # fmt: skip
    return [*reasons, *(["B fails more often than A: " + ", ".join(failing)] if failing else [])]


def _undecided(rows: Sequence[AbRow], failed: Sequence[AbFailures]) -> list[str]:
    named = [row.named() for row in rows if row.judged.decision.answer is Answer.UNDECIDED]
    return named + [
        f"{item.device} failed runs ({item.failures.text})" + " (emulated)" * item.emulated
        for item in failed
        if item.failures.answer is Answer.UNDECIDED
    ]


def _exhausted(journal: AbJournal, rows: Sequence[AbRow]) -> str:
    """Return what to do if no further pair would help; "" while a further look is possible."""
    decisions = [row.judged.decision for row in rows]
    if max((item.pairs for item in decisions), default=0) < journal.asked.design.looks[-1]:
        return ""
    undecided = [item for item in decisions if item.answer is Answer.UNDECIDED]
    if any(item.step for item in undecided):
        return "use a metric that the program rounds less, such as a time: --gate 'decode_ms>+5%'"
    if undecided:
        return "compare fewer devices at once (-l), or allow a larger loss (--gate)"
    return (
        "find out why runs of B fail: fleet run PLAYBOOK --stream (shows what the program prints)"
    )


def settle(journal: AbJournal, results: Sequence[DeviceResult[AbReport]]) -> None:
    """Judge the undecided questions again, with the chance of error that the decided ones leave."""
    asked = [
        (values_of(journal.pairs(result.host.name), item.metric)[0], item.limit, item.decision)
        for result in results if result.value for item in result.value.answers
    ]  # fmt: skip
    decisions = iter(settled(asked, journal.asked.family, journal.asked.design))
    for result in results:
        if result.value is not None:
            answers = [replace(item, decision=next(decisions)) for item in result.value.answers]
            result.value = replace(result.value, answers=tuple(answers))


def over(
    journal: AbJournal, reports: Mapping[str, AbReport], *, emulated: bool = False
) -> AllDevices:
    """Return the answers for all devices together, and the devices that they include.

    A device with fewer pairs than the first look is left out. For fewer than two devices there is
    no answer. Every device counts with as many pairs as the device with the fewest pairs has.
    `emulated` goes into each answer.
    """
    least = journal.asked.design.looks[0]
    rows = {host: report.answers for host, report in reports.items()
            if report.answers
            and min(item.decision.pairs for item in report.answers) >= least}  # fmt: skip
    kinds = {tuple((item.metric, item.limit) for item in items) for items in rows.values()}
    if len(rows) < 2 or len(kinds) > 1:
        return AllDevices()
    answers = []
    for metric, limit in kinds.pop():
        values = [values_of(journal.pairs(host), metric)[0] for host in rows]
        fewest = min(map(len, values))
        both = [board[:fewest] for board in values]
        decision = over_boards(both, limit, max(1, len(journal.asked.limits)), journal.asked.design)
        answers.append(AbRow("", Judged(metric, limit, None, None, decision), emulated))
    return AllDevices(list(rows), answers)
