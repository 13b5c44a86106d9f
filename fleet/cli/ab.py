"""`fleet ab`: which of two is worse, measured in turns."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fleet.cli import options as opt
from fleet.cli import output, project
from fleet.cli.common import end_devices, hosts_of
from fleet.cli.live import listening
from fleet.cli.results import show_errors
from fleet.model.deadline import Deadline, parse_duration
from fleet.model.errors import GateError, InputError, NotComparableError
from fleet.model.text import from_here
from fleet.profiles.runs import RunStore, new_run_id

if TYPE_CHECKING:
    from fleet.engine.ab.journal import AbJournal
    from fleet.engine.ab.measuring import Judged
    from fleet.engine.pool import DeviceResult

PARALLEL = 16
COLUMNS = ("device", "metric", "A", "B", "change", "95 %, table", "pairs", "answer", "emulated")
Side = Annotated[
    str | None, typer.Argument(help="Playbook, bundle, or release (its id, current or previous).")
]

Boots = Annotated[
    int,
    typer.Option(
        min=1,
        max=8,
        help="Measure in this many boots: fleet reboots the devices between the runs.",
    ),
]


Playbook = Annotated[
    Path | None,
    typer.Option(help="Playbook that says how to run A and B, if they are releases or bundles."),
]
Budget = Annotated[
    str | None, typer.Option(help="Stop the comparison after this time, such as 25m.")
]


def ab(
    a: Side = None,
    b: Side = None,
    inventory: Annotated[
        Path | None, typer.Option("--inventory", "-i", help="Inventory file.")
    ] = None,
    limit: opt.Limit = None,
    playbook: Playbook = None,
    gate: Annotated[
        list[str] | None,
        typer.Option(help="Fail if B is worse than A by this much: 'decode_tps<-5%'. Repeatable."),
    ] = None,
    boots: Boots = 1,
    budget: Budget = None,
    resume: Annotated[
        str | None, typer.Option(help="Continue the comparison with this run id.")
    ] = None,
    output_dir: opt.Records = None,
    offline: opt.Offline = False,
    parallel: opt.Parallel = None,
    as_json: opt.Json = False,
) -> None:
    """Run A and B alternately on each device until it is clear whether B is worse.

    Example: fleet ab previous current --playbook playbooks/tiny-genie.yaml -i inventories/lab.yaml
    """
    from fleet.cli import ab_gates  # noqa: PLC0415 - numpy, for this alone
    from fleet.engine.ab.journal import AbJournal  # noqa: PLC0415

    inventory = inventory or project.supplied("inventory")
    store = RunStore(output_dir)
    if resume is not None:
        journal = AbJournal.reopen(store, resume)
        ab_gates.refuse_others(journal, gate or [])
    elif a is None or b is None or inventory is None:
        raise InputError(
            "`fleet ab` needs two playbooks, bundles or releases to compare (A and B), and an "
            "inventory",
            hint="fleet ab A B -i INVENTORY --playbook PLAYBOOK",
        )
    else:
        names = tuple(host.name for host in hosts_of(inventory, limit))
        journal = _begun(store, (a, b), playbook, inventory, names, gate or [], boots)
    results = _measured(journal, budget, offline=offline, parallel=parallel, as_json=as_json)
    journal.close()
    show(journal, results, as_json=as_json)
    if not as_json:
        _tell_ended(results, budget)
        show_errors(results)
    end(journal, results)


def _begun(
    store: RunStore, sides: tuple[str, str], playbook: Path | None, inventory: Path,
    names: tuple[str, ...], gates: list[str], boots: int,
) -> AbJournal:  # fmt: skip
    """A new one; paths as they are from everywhere."""
    from fleet.cli import ab_gates  # noqa: PLC0415
    from fleet.engine.ab.journal import AbJournal, Asked  # noqa: PLC0415

    limits = ab_gates.asked(gates, (*sides, playbook))
    path = str(playbook.resolve()) if playbook else ""
    a, b = (str(Path(word).resolve()) if Path(word).exists() else word for word in sides)
    asked = Asked(a, b, path, str(inventory.resolve()), names, limits, boots)
    return AbJournal.begin(store, new_run_id(), asked)


def _measured(
    journal: AbJournal, budget: str | None, *, offline: bool, parallel: int | None, as_json: bool
) -> list[DeviceResult]:
    """On every board that was asked."""
    from fleet.engine.ab.measuring import measure, settle  # noqa: PLC0415
    from fleet.engine.ab.sides import not_measured, side_of  # noqa: PLC0415
    from fleet.engine.pool import on_every_device  # noqa: PLC0415
    from fleet.runtimes.store import RuntimeStore  # noqa: PLC0415

    asked = journal.asked
    hosts = hosts_of(Path(asked.inventory), list(asked.hosts))
    time_left = Deadline(parse_duration(budget)) if budget else None
    with listening(as_json=as_json) as listener:
        sides = [
            side_of(word, asked.playbook, RuntimeStore(), listener, offline=offline)
            for word in (asked.a, asked.b)
        ]
        for text in not_measured(sides):
            output.note(text)
        work = partial(measure, journal, sides, budget=time_left)
        results = on_every_device(hosts, work, listener, parallel=parallel or PARALLEL)
    settle(journal, results)
    return results


def _rows(results: list[DeviceResult]) -> list[tuple[DeviceResult, Judged]]:
    from fleet.engine.ab.measuring import answers_of  # noqa: PLC0415

    return [(result, item) for result in results for item in answers_of(result)]


def show(journal: AbJournal, results: list[DeviceResult], *, as_json: bool) -> None:
    """One row a board and metric."""
    from fleet.profiles.compare.gates import percent  # noqa: PLC0415
    from fleet.profiles.compare.writing import number  # noqa: PLC0415

    rows = _rows(results)
    if as_json:
        ended = [result.host.name for result in _out_of_time(results)]
        plain = [_plain(*row) for row in rows]
        output.emit_json({"ab": journal.run_id, "rows": plain, "ended_by_budget": ended})
        return
    cells = []
    for result, item in rows:
        found = item.decision
        span = "-" if found.low is None else f"{percent(found.low)} to {percent(found.high)}"
        cells.append((
            result.host.name, item.metric, number(item.a), number(item.b), percent(found.mid), span,
            found.pairs, _said(item), "yes" if _emulated(result) else "no",
        ))  # fmt: skip
    if cells:
        title = f"A {from_here(journal.asked.a)}, B {from_here(journal.asked.b)}"
        output.table(title, COLUMNS, cells, ("emulated", "pairs"))
        for text in _below(journal, [item for _, item in rows]):
            output.note(text)
    for result, item in rows:
        if step := item.decision.step:
            place = f"{result.host.name} {item.metric}"
            output.note(
                f"{place}: the program rounds its values to {step:g}, so the interval is wider "
                "by the rounding error"
            )
        if item.between_boots is not None:
            share = item.change_between
            text = f" and {share:.0%} of the variance of the change" if share is not None else ""
            output.note(
                f"{result.host.name} {item.metric}, {item.boots} boots: differences between "
                f"boots cause {item.between_boots:.0%} of the variance of the runs{text}"
            )
    if any(_emulated(result) for result, _ in rows):
        output.note("the devices are emulated, so this result says nothing about real hardware")


def _said(item: Judged) -> str:
    """The answer; `fine (B faster)` where the whole interval says so."""
    from fleet.profiles.compare.metrics import KNOWN  # noqa: PLC0415 - its lists
    from fleet.profiles.compare.sequential import better  # noqa: PLC0415 - numpy

    found = item.decision
    speed = item.metric in KNOWN or item.metric.endswith(("_ms", "_us", "_s", "_tps"))
    word = f" (B {'faster' if speed else 'better'})"
    return str(found.answer) + word * better(found, item.limit)


def _below(journal: AbJournal, items: list[Judged]) -> list[str]:
    """What the table means: the gates, what `fine` is, and of what the change is the middle."""
    from fleet.profiles.compare.metrics import limit_text  # noqa: PLC0415 - its lists
    from fleet.profiles.compare.sequential import Answer  # noqa: PLC0415 - numpy
    from fleet.profiles.stats.difference import SEEN, UNLIKE_MIDDLES  # noqa: PLC0415 - numpy

    gates = dict.fromkeys(limit_text(item.metric, item.limit) for item in items)
    default = "" if journal.asked.limits else " (default; change it with --gate)"
    fine = any(item.decision.answer is Answer.FINE for item in items)
    found = [f"gate: {', '.join(gates)}{default}" + "; `fine`: B stays within it" * fine]
    if any(
        item.a and item.b and item.decision.mid is not None
        and abs(item.b / item.a - 1 - item.decision.mid) >= SEEN
        for item in items
    ):  # fmt: skip
        found.append(UNLIKE_MIDDLES)
    return [
        *found,
        f"to print this table again (measures nothing): fleet ab --resume {journal.run_id}",
    ]


def _out_of_time(results: list[DeviceResult]) -> list[DeviceResult]:
    return [result for result in results if result.details.get("in_time") is False]


def _tell_ended(results: list[DeviceResult], budget: str | None) -> None:
    """Which comparisons the budget ended."""
    for result in _out_of_time(results):
        pairs = result.details["pairs"]
        output.note(
            f"{result.host.name}: stopped, because the budget of {budget} is over after {pairs} "
            f"pair{'s' * (pairs != 1)}"
        )


def _emulated(result: DeviceResult) -> bool:
    return bool(result.plan and result.plan.facts.emulated)


def _plain(result: DeviceResult, item: Judged) -> dict[str, object]:
    decision = vars(item.decision) | {"answer": str(item.decision.answer)}
    return {"device": result.host.name, **vars(item), "decision": decision,
            "emulated": _emulated(result)}  # fmt: skip


def end(journal: AbJournal, results: list[DeviceResult]) -> None:
    """Raise what the exit code says: 1 worse, 4 undecided, else that of the devices."""
    from fleet.profiles.compare.sequential import LOOKS, Answer  # noqa: PLC0415

    words: dict[str, list[str]] = {"worse": [], "undecided": []}
    for result, item in _rows(results):
        text = f"{result.host.name} {item.metric}" + " (emulated)" * _emulated(result)
        words.setdefault(str(item.decision.answer), []).append(text)
    if words["worse"]:
        raise GateError(
            f"B is worse than the gates allow: {', '.join(words['worse'])}",
            hint=f"keep A ({from_here(journal.asked.a)}); or allow a larger loss with --gate, then "
            "run the command again",
        )
    end_devices(results)
    if words["undecided"]:
        left = [item.decision for _, item in _rows(results)]
        most = max(item.pairs for item in left) == LOOKS[-1]
        hint = "compare fewer devices at once (-l), or allow a larger loss (--gate)"
        if any(item.step and item.answer is Answer.UNDECIDED for item in left):
            hint = (
                "use a metric that the program rounds less, such as a time: --gate 'decode_ms>+5%'"
            )
        raise NotComparableError(
            "fleet needs more runs to tell whether B is worse than A: "
            f"{', '.join(words['undecided'])}",
            hint=hint if most else f"fleet ab --resume {journal.run_id} (continues to measure)",
        )
