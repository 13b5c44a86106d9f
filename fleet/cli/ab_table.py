"""The answers of `fleet ab`: the table, the lines below it, the JSON, the words of its end."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fleet.cli import output
from fleet.model.home import runs_home
from fleet.model.plain import to_plain
from fleet.model.text import from_here

if TYPE_CHECKING:
    from collections.abc import Iterator

    from fleet.engine.pool import DeviceResult
    from fleet.engine.run.ab.journal import AbJournal
    from fleet.engine.run.ab.measuring import AbReport, Judged
    from fleet.profiles.compare.comparing import AnswersRow
    from fleet.profiles.compare.failures import Failures

COLUMNS = ("device", "metric", "A", "B", "change", "95 %, table", "pairs", "answer", "emulated")
FAILED = "failed runs"


def resume_line(journal: AbJournal) -> str:
    """Return the command that continues this comparison, or prints its table again."""
    root = journal.store.root
    folder = "" if root == runs_home() else f" --output {root}"
    return f"fleet ab --resume {journal.run_id}{folder}"


def kept(journal: AbJournal, pairs: int) -> str:
    """Return what an interrupted comparison keeps, and how to continue it."""
    many = f"{pairs} pair{'s' * (pairs != 1)}"
    return f"the comparison {journal.run_id} keeps its {many}; to continue: {resume_line(journal)}"


def _rows(results: list[DeviceResult[AbReport]]) -> list[tuple[DeviceResult[AbReport], Judged]]:
    from fleet.engine.run.ab.measuring import answers_of  # noqa: PLC0415

    return [(result, item) for result in results for item in answers_of(result)]


def _answers(results: list[DeviceResult[AbReport]]) -> list[AnswersRow]:
    """Return what both sides answered to the suite of B, of each board that was asked."""
    reports = [result.value for result in results]
    return [report.suites for report in reports if report is not None and report.suites]


def _failing(
    results: list[DeviceResult[AbReport]],
) -> Iterator[tuple[DeviceResult[AbReport], Failures]]:
    """The boards of which a run failed."""
    from fleet.engine.run.ab.measuring import failures_of  # noqa: PLC0415

    for result in results:
        found = failures_of(result)
        if found is not None and (found.a or found.b):
            yield result, found


def show(journal: AbJournal, results: list[DeviceResult[AbReport]], *, as_json: bool) -> None:
    """Print one row a board and metric, one a board with failed runs; or one line of JSON."""
    rows = _rows(results)
    if as_json:
        _emit(journal, results)
        return
    cells = [_cells(result.host.name, item, _mark(result)) for result, item in rows]
    hosts, together = _over(journal, results)
    cells += [_cells(f"all {len(hosts)}", item, _every(results)) for item in together]
    cells += [
        (result.host.name, FAILED, f"{found.a} of {found.a_runs}", f"{found.b} of {found.b_runs}",
         "-", "-", result.value.pairs if result.value else 0, _said_of(found), _mark(result))
        for result, found in _failing(results)
    ]  # fmt: skip
    if cells:
        title = f"A {from_here(journal.asked.a)}, B {from_here(journal.asked.b)}"
        output.table(title, COLUMNS, cells, ("emulated", "pairs"))
        for text in [*_below(journal, [item for _, item in rows]), *_of_boards(results)]:
            output.note(text)
        if hosts:
            others = sorted({result.host.name for result in results} - set(hosts))
            output.note(
                f"`all {len(hosts)}`: all pairs of these devices as one sample"
                + f"; without {', '.join(others)} (too few pairs)" * bool(others)
            )
        for row in _answers(results):
            output.note(f"{row.board}: B: {row.text}")
        output.note(f"to print this table again (measures nothing): {resume_line(journal)}")
    if any(_emulated(result) for result, _ in rows):
        output.note("the devices are emulated, so this result says nothing about real hardware")


def _over(
    journal: AbJournal, results: list[DeviceResult[AbReport]]
) -> tuple[list[str], list[Judged]]:
    from fleet.engine.run.ab.measuring import over  # noqa: PLC0415

    return over(journal, results)


def _every(results: list[DeviceResult[AbReport]]) -> str:
    marks = {_mark(result) for result in results}
    return marks.pop() if len(marks) == 1 else "some"


def _cells(place: str, item: Judged, emulated: str) -> tuple[object, ...]:
    from fleet.profiles.compare.gates import percent  # noqa: PLC0415
    from fleet.profiles.compare.writing import number  # noqa: PLC0415

    found = item.decision
    span = "-" if found.low is None else f"{percent(found.low)} to {percent(found.high)}"
    mids = ["-" if mid is None else number(mid) for mid in (item.a, item.b)]
    change = "-" if found.mid is None else percent(found.mid)
    return (
        place, item.metric, *mids, change, span, found.pairs, _said(item), emulated,
    )  # fmt: skip


def _mark(result: DeviceResult[AbReport]) -> str:
    return "yes" if _emulated(result) else "no"


def _said(item: Judged) -> str:
    """The answer; `fine (B faster)` where the whole interval says so, `worse, size open` where the
    interval shows a loss but includes the gate.
    """
    from fleet.model.metrics import KNOWN  # noqa: PLC0415
    from fleet.profiles.compare.metrics import better_way  # noqa: PLC0415 - its lists
    from fleet.profiles.compare.sequential import better, open_size  # noqa: PLC0415 - numpy

    found = item.decision
    speed = item.metric in KNOWN or better_way(item.metric)
    word = f" (B {'faster' if speed else 'better'})"
    return (
        str(found.answer)
        + word * better(found, item.limit)
        + ", size open" * open_size(found, item.limit)
    )


def _said_of(found: Failures) -> str:
    from fleet.profiles.compare.sequential import Answer  # noqa: PLC0415 - numpy

    return "B fails more" if found.answer is Answer.WORSE else str(found.answer)


def _below(journal: AbJournal, items: list[Judged]) -> list[str]:
    """What the table means: the gates, the answers, and of what the change is the middle."""
    from fleet.model.metrics import limit_text  # noqa: PLC0415
    from fleet.profiles.compare.sequential import Answer, open_size  # noqa: PLC0415 - numpy
    from fleet.profiles.stats.difference import SEEN, UNLIKE_MIDDLES  # noqa: PLC0415 - numpy

    gates = dict.fromkeys(limit_text(item.metric, item.limit) for item in items)
    default = "" if journal.asked.limits else " (default; change it with --gate)"
    fine = any(item.decision.answer is Answer.FINE for item in items)
    found = [f"gate: {', '.join(gates)}{default}" + "; `fine`: B stays within it" * fine]
    if journal.asked.sustained:
        found.append(
            f"each side ran {journal.asked.sustained / 60:g} min without a pause; its value is the "
            "median of the last third of its runs; heat that takes longer than "
            f"{journal.asked.sustained / 120:.2g} min to build up is not seen"
        )
    elif fine:
        found.append(
            "A and B share the heat of the chip here, so a B that is slower only when hot is not "
            "seen; fleet ab A B --sustained 5m (measures that)"
        )
    if any(open_size(item.decision, item.limit) for item in items):
        found.append(
            "`worse, size open`: B is worse than A, and the change is beyond the gate, but the "
            "interval includes the gate, so the loss may be smaller than the gate"
        )
    if any(
        item.a and item.b and item.decision.mid is not None
        and abs(item.b / item.a - 1 - item.decision.mid) >= SEEN
        for item in items
    ):  # fmt: skip
        found.append(UNLIKE_MIDDLES)
    return found


def _of_boards(results: list[DeviceResult[AbReport]]) -> Iterator[str]:
    """What is said of single boards: failures, conditions, steps, boots."""
    for result, found in _failing(results):
        yield f"{result.host.name}: {found.text}"
    from fleet.profiles.compare.failures import unseen_share  # noqa: PLC0415 - numpy

    for pairs, names in _without_failures(results).items():
        yield (
            f"{', '.join(names)}: 0 of {pairs} runs of B failed; a B that fails in up to "
            f"{unseen_share(pairs):.0%} of its runs can pass this comparison"
        )
    for result in results:
        for text in _conditions(result):
            yield f"{result.host.name}: conditions differ: {text}"
    for result, item in _rows(results):
        place = f"{result.host.name} {item.metric}"
        if step := item.decision.step:
            yield (
                f"{place}: the program rounds its values to {step:.3g}, so the interval is wider "
                "by the rounding error"
            )
        if item.between_boots is not None:
            share = item.change_between
            text = f" and {share:.0%} of the variance of the change" if share is not None else ""
            yield (
                f"{place}, {item.boots} boots: differences between boots cause "
                f"{item.between_boots:.0%} of the variance of the runs{text}"
            )


def _without_failures(results: list[DeviceResult[AbReport]]) -> dict[int, list[str]]:
    """Return the boards without a failed run, by their number of pairs."""
    failing = {result.host.name for result, _ in _failing(results)}
    boards: dict[int, list[str]] = {}
    for result in results:
        if result.value and result.value.pairs and result.host.name not in failing:
            boards.setdefault(result.value.pairs, []).append(result.host.name)
    return boards


def _conditions(result: DeviceResult[AbReport]) -> list[str]:
    return list(result.value.conditions) if result.value else []


def _out_of_time(results: list[DeviceResult[AbReport]]) -> list[DeviceResult[AbReport]]:
    return [result for result in results if result.value and result.value.in_time is False]


def tell_ended(results: list[DeviceResult[AbReport]], budget: str | None) -> None:
    """Print which comparisons the budget ended."""
    for result in _out_of_time(results):
        pairs = result.value.pairs if result.value else 0
        output.note(
            f"{result.host.name}: stopped, because the budget of {budget} is over after {pairs} "
            f"pair{'s' * (pairs != 1)}"
        )


def _emulated(result: DeviceResult[AbReport]) -> bool:
    return bool(result.plan and result.plan.facts.emulated)


def _emit(journal: AbJournal, results: list[DeviceResult[AbReport]]) -> None:
    """Print the answers as the last event, on one line as those before it."""
    hosts, together = _over(journal, results)
    output.emit_line(
        {
            "event": "AbDone",
            "host": "",
            "ab": journal.run_id,
            "rows": [
                _plain(result.host.name, item, _emulated(result)) for result, item in _rows(results)
            ],
            "over": {
                "devices": hosts,
                "rows": [_plain("", item, _every(results) == "yes") for item in together],
            },
            "failures": [
                {"device": result.host.name, **to_plain(found)}
                for result, found in _failing(results)
            ],
            "conditions": {result.host.name: _conditions(result) for result in results},
            "answers": _answers(results),
            "ended_by_budget": [result.host.name for result in _out_of_time(results)],
        }
    )


def _plain(place: str, item: Judged, emulated: bool) -> dict[str, object]:
    return {"device": place, **to_plain(item), "emulated": emulated}


def worse(journal: AbJournal, results: list[DeviceResult[AbReport]]) -> list[str]:
    """Return what B is worse in, as the error says it; empty if in nothing."""
    from fleet.profiles.compare.sequential import Answer, open_size  # noqa: PLC0415 - numpy

    found: dict[str, list[str]] = {}
    hosts, together = _over(journal, results)
    rows = [(_named(result, item.metric), item) for result, item in _rows(results)]
    rows += [(f"all {len(hosts)} devices together {item.metric}", item) for item in together]
    for name, item in rows:
        if item.decision.answer is Answer.WORSE:
            sure = not open_size(item.decision, item.limit)
            word = "than the gates allow" if sure else "than A (the interval includes the gate)"
            found.setdefault(word, []).append(name)
    said = [f"B is worse {word}: {', '.join(names)}" for word, names in found.items()]
    failing = [
        f"{result.host.name}: {found.text}"
        for result, found in _failing(results)
        if found.answer is Answer.WORSE
    ]
    said += [f"B gives wrong answers: {r.board}: {r.text}" for r in _answers(results) if r.worse]
    return [*said, *(["B fails more often than A: " + ", ".join(failing)] if failing else [])]


def undecided(results: list[DeviceResult[AbReport]]) -> list[str]:
    """Return the boards and metrics without an answer."""
    from fleet.profiles.compare.sequential import Answer  # noqa: PLC0415 - numpy

    open_rows = [
        _named(result, item.metric)
        for result, item in _rows(results)
        if item.decision.answer is Answer.UNDECIDED
    ]
    return open_rows + [
        _named(result, f"failed runs ({found.text})")
        for result, found in _failing(results)
        if found.answer is Answer.UNDECIDED
    ]


def _named(result: DeviceResult[AbReport], what: str) -> str:
    return f"{result.host.name} {what}" + " (emulated)" * _emulated(result)


def last_look(journal: AbJournal, results: list[DeviceResult[AbReport]]) -> str:
    """Return what to do where no further pair would help; "" while there is a look to come."""
    from fleet.profiles.compare.sequential import Answer  # noqa: PLC0415 - numpy

    left = [item.decision for _, item in _rows(results)]
    if max((item.pairs for item in left), default=0) < journal.asked.design.looks[-1]:
        return ""
    if any(item.step and item.answer is Answer.UNDECIDED for item in left):
        return "use a metric that the program rounds less, such as a time: --gate 'decode_ms>+5%'"
    if any(item.answer is Answer.UNDECIDED for item in left):
        return "compare fewer devices at once (-l), or allow a larger loss (--gate)"
    return (
        "find out why runs of B fail: fleet run PLAYBOOK --stream (shows what the program prints)"
    )
