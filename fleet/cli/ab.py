"""`fleet ab`: a comparison of two releases in alternating runs, which shows whether B is worse."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing
from difflib import get_close_matches
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
from fleet.model.errors import FleetError, GateError, InputError, NotComparableError, TransportError
from fleet.model.metrics import KNOWN, LOSS, TIME_LOSS, limit_text
from fleet.model.plain import to_plain
from fleet.model.text import from_here
from fleet.profiles.compare.metrics import every, lacking, loss_text
from fleet.profiles.runs import RunStore, new_run_id

if TYPE_CHECKING:
    from fleet.engine.pool import DeviceResult
    from fleet.engine.run.ab.journal import AbJournal
    from fleet.engine.run.ab.measuring import AbReport, Judged
    from fleet.engine.run.ab.verdict import AbFailures, AbRow, AbVerdict
    from fleet.model.record import Record

PARALLEL = 16
COLUMNS = ("device", "metric", "B is", "95 %, table", "answer", "A", "B", "pairs", "emulated")
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


Gate = Annotated[
    list[str] | None,
    typer.Option(help=f"Fail if B is worse than A by this much: '{LOSS}'. Repeatable."),
]
Resume = Annotated[str | None, typer.Option(help="Continue the comparison with this run id.")]
Sustained = Annotated[
    str | None,
    typer.Option(
        help="Run A and B this long in turns, such as 5m, and compare the rates at which they "
        "settle: shows a B that is slower only when hot."
    ),
]


Inventory = Annotated[Path | None, typer.Option("--inventory", "-i", help="Inventory file.")]


def ab(
    a: Side = None,
    b: Side = None,
    inventory: Inventory = None,
    limit: opt.Limit = None,
    playbook: Playbook = None,
    gate: Gate = None,
    boots: Boots = 1,
    sustained: Sustained = None,
    budget: Budget = None,
    resume: Resume = None,
    output_dir: opt.Records = None,
    offline: opt.Offline = False,
    parallel: opt.Parallel = None,
    as_json: opt.Json = False,
) -> None:
    """Run A and B alternately on each device until it is clear whether B is worse.

    Example: fleet ab previous current --playbook playbooks/tiny-genie.yaml -i inventories/lab.yaml
    """
    from fleet.engine.run.ab.journal import AbJournal, Asked  # noqa: PLC0415 - numpy
    from fleet.engine.run.ab.verdict import verdict  # noqa: PLC0415

    inventory = inventory or project.supplied("inventory")
    store = RunStore(output_dir)
    if resume is not None:
        journal = AbJournal.reopen(store, resume)
        refuse_other_gates(journal, gate or [], limit)
    elif a is None or b is None or inventory is None:
        raise InputError(
            "`fleet ab` needs two playbooks, bundles or releases to compare (A and B), and an "
            "inventory",
            hint="fleet ab A B -i INVENTORY --playbook PLAYBOOK",
        )
    else:
        names = tuple(host.name for host in hosts_of(inventory, limit))
        limits = checked_limits(gate or [], (a, b, playbook))
        seconds = parse_duration(sustained) if sustained else 0.0
        path = str(playbook.resolve()) if playbook else ""
        sides = _absolute(a), _absolute(b)
        asked = Asked(*sides, path, str(inventory.resolve()), names, limits, boots, seconds)
        journal = AbJournal.begin(store, new_run_id(), asked)
    with closing(journal), output.interruptible(partial(_interrupted, journal)):
        results = _measured(journal, budget, offline=offline, parallel=parallel, as_json=as_json)
    decision = verdict(journal, results)
    show(journal, decision, budget, as_json=as_json)
    if not as_json:
        _show_errors(journal, results)
    end(journal, decision, results)


def _interrupted(journal: AbJournal) -> str:
    pairs = sum(len(journal.pairs(host)) for host in journal.asked.hosts)
    return (
        f"the comparison {journal.run_id} keeps its {_many(pairs)}; to continue: "
        f"{journal.resume_line}"
    )


def _absolute(word: str) -> str:
    """Return the word, or the absolute path if the word is an existing path."""
    return str(Path(word).resolve()) if Path(word).exists() else word


def _measured(
    journal: AbJournal, budget: str | None, *, offline: bool, parallel: int | None, as_json: bool
) -> list[DeviceResult[AbReport]]:
    """Measure on every board of the comparison until `budget` ends; return the results."""
    from fleet.engine.pool import PoolOptions, on_every_device  # noqa: PLC0415
    from fleet.engine.run.ab.measuring import measure  # noqa: PLC0415
    from fleet.engine.run.ab.sides import not_measured, side_of  # noqa: PLC0415
    from fleet.engine.run.ab.verdict import settle  # noqa: PLC0415
    from fleet.runtimes.store import RuntimeStore  # noqa: PLC0415

    asked = journal.asked
    hosts = hosts_of(Path(asked.inventory), list(asked.hosts))
    time_left = Deadline(parse_duration(budget)) if budget else None
    with listening(as_json=as_json) as listener:
        sides = [
            side_of(word, asked.playbook, RuntimeStore(), listener, offline=offline)
            for word in (asked.a, asked.b)
        ]
        journal.hold({word: side.settings for word, side in zip("AB", sides, strict=True)})
        for text in not_measured(sides):
            output.note(text)
        work = partial(measure, journal, sides, budget=time_left)
        results = on_every_device(hosts, work, listener, PoolOptions(parallel=parallel or PARALLEL))
    settle(journal, results)
    return results


def _show_errors(journal: AbJournal, results: list[DeviceResult[AbReport]]) -> None:
    """Show the errors of devices. Those of lost devices get the command that continues the
    comparison.

    The same command line again would begin a new comparison.
    """
    for result in results:
        if isinstance(result.error, TransportError):
            result.error.hint = (
                "check the power and the cable of the device; then "
                f"{journal.resume_line} (continues after the last whole pair)"
            )
    show_errors(results)


def end(journal: AbJournal, decision: AbVerdict, results: list[DeviceResult[AbReport]]) -> None:
    """Raise what the exit code says: 1 for fail, 4 for undecided, else that of the devices."""
    if decision.reasons:
        raise GateError(
            "; ".join(decision.reasons),
            hint=f"keep A ({from_here(journal.asked.a)}); or allow a larger loss with --gate, then "
            "run the command again",
        )
    end_devices(results)
    if decision.undecided:
        raise NotComparableError(
            "fleet needs more runs to tell whether B is worse than A: "
            + ", ".join(decision.undecided),
            hint=decision.exhausted or f"{journal.resume_line} (continues to measure)",
        )


def _many(pairs: int) -> str:
    return f"{pairs} pair{'s' * (pairs != 1)}"


def show(
    journal: AbJournal, decision: AbVerdict, budget: str | None = None, *, as_json: bool
) -> None:
    """Print one row for each device and metric, one for each device with failed runs, and notes;
    or one line of JSON.
    """
    if as_json:
        output.emit_line({"event": "AbDone", "host": "", **to_plain(decision)})
        return
    together = decision.over.rows
    place = f"all {len(decision.over.devices)}"
    cells = [_cells(row.device or place, row) for row in (*decision.rows, *together)]
    cells += [_failed_cells(item) for item in decision.failures]
    if cells:
        title = f"A {from_here(journal.asked.a)}, B {from_here(journal.asked.b)}"
        output.table(title, COLUMNS, cells, ("emulated", "pairs"))
        items = [row.judged for row in decision.rows]
        for text in [*_below(journal, items), *_of_devices(decision)]:
            output.note(text)
        if together:
            others = sorted({row.device for row in decision.rows} - set(decision.over.devices))
            output.note(
                f"`{place}`: all pairs of these devices as one sample"
                + f"; without {', '.join(others)} (too few pairs)" * bool(others)
            )
        for answers in decision.answers:
            output.note(f"{answers.board}: B: {answers.text}")
        if not decision.undecided or decision.exhausted:  # otherwise --resume measures on
            output.note(f"to print this table again (measures nothing): {journal.resume_line}")
    if any(row.emulated for row in decision.rows):
        output.note("the devices are emulated, so this result says nothing about real hardware")
    for device, pairs in decision.ended_by_budget.items():
        output.note(
            f"{device}: stopped, because the budget of {budget} is over after {_many(pairs)}"
        )


def _cells(place: str, row: AbRow) -> tuple[object, ...]:
    from fleet.profiles.compare.writing import number  # noqa: PLC0415

    item = row.judged
    mids = ["-" if mid is None else number(mid) for mid in (item.a, item.b)]
    answer = f"{item.decision.answer}{', size open' * item.open_size}"
    return (
        place, item.metric, item.ratio, item.interval, answer, *mids, item.decision.pairs,
        "yes" if row.emulated else "no",
    )  # fmt: skip


def _failed_cells(item: AbFailures) -> tuple[object, ...]:
    runs = item.failures
    return (
        item.device, "failed runs", "-", "-", str(runs.answer), f"{runs.a} of {runs.a_runs}",
        f"{runs.b} of {runs.b_runs}", item.pairs, "yes" if item.emulated else "no",
    )  # fmt: skip


def _below(journal: AbJournal, items: list[Judged]) -> Iterator[str]:
    """Return what the table means: the gates, the answers, and the median that the ratio is."""
    from fleet.model.metrics import limit_text  # noqa: PLC0415
    from fleet.profiles.compare.sequential import Answer  # noqa: PLC0415 - numpy
    from fleet.profiles.stats.difference import UNLIKE_MIDDLES  # noqa: PLC0415 - numpy

    gates = dict.fromkeys(limit_text(item.metric, item.limit) for item in items)
    default = "" if journal.asked.limits else " (default; change it with --gate)"
    passed = any(item.decision.answer is Answer.PASS for item in items)
    yield f"gate: {', '.join(gates)}{default}" + "; `pass`: B stays within it" * passed
    if journal.asked.sustained:
        yield (
            f"each side ran {journal.asked.sustained / 60:g} min without a pause; its value is the "
            "median of the last third of its runs; heat that takes longer than "
            f"{journal.asked.sustained / 120:.2g} min to build up is not seen"
        )
    elif passed:
        yield (
            "A and B share the heat of the chip here, so a B that is slower only when hot is not "
            "seen; fleet ab A B --sustained 5m (measures that)"
        )
    if any(item.open_size for item in items):
        yield (
            "`fail, size open`: B is worse than A, and the change is beyond the gate, but the "
            "interval includes the gate, so the loss may be smaller than the gate"
        )
    if any(item.unlike_medians for item in items):
        yield UNLIKE_MIDDLES


def _of_devices(decision: AbVerdict) -> Iterator[str]:
    """Return the remarks about single devices: failures, conditions, steps, boots."""
    from fleet.profiles.compare.sequential import unseen_share  # noqa: PLC0415 - numpy

    for failed in decision.failures:
        yield f"{failed.device}: {failed.failures.text}"
    for pairs, names in decision.without_failures.items():
        yield (
            f"{', '.join(names)}: 0 of {pairs} runs of B failed; a B that fails in up to "
            f"{unseen_share(pairs):.0%} of its runs can pass this comparison"
        )
    for device, conditions in decision.conditions.items():
        for text in conditions:
            yield f"{device}: conditions differ: {text}"
    for row in decision.rows:
        item, place = row.judged, f"{row.device} {row.judged.metric}"
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


# The gates, checked before a device is contacted.

_EXAMPLES = f"--gate '{LOSS}' or --gate '{TIME_LOSS}'"
_EARLIER = 200  # the newest records that are searched


def limits_of(texts: list[str]) -> dict[str, float]:
    """Return the share of each metric in the `--gate` texts.

    Raises InputError for a text without a share, and for a share in the direction of an
    improvement. Also raises it for a fall of 100 % or more, and for two gates on one metric.
    """
    from fleet.profiles.compare.gates import parse, refuse_wrong_way  # noqa: PLC0415 - numpy

    limits: dict[str, float] = {}
    for text in texts:
        gate = parse(text, "--gate", _EXAMPLES)
        share = gate.word is None and gate.unit == "%"
        if share:
            refuse_wrong_way(gate, option="--gate")
        if not share or gate.below != (gate.limit < 0) or gate.limit <= -1:
            raise InputError(
                f"--gate {text!r} is not valid; write METRIC<-N% to fail if the metric falls by "
                "more than N% (below 100), or METRIC>+N% to fail if it rises by more than N%",
                hint=f"for example {_EXAMPLES}",
            )
        if gate.metric in limits:
            strict = min(gate.limit, limits[gate.metric], key=abs)
            raise InputError(
                f"--gate {text!r} is the second gate on {gate.metric}; one metric has one gate",
                hint=f"keep the stricter gate: {_typed(strict, gate.metric)}",
            )
        limits[gate.metric] = gate.limit
    return limits


def checked_limits(texts: list[str], words: Sequence[str | Path | None]) -> dict[str, float]:
    """Return the gates, checked against earlier runs of the playbooks among the words.

    Raises InputError for an invalid gate. Also raises it for a metric that no earlier run has, if
    its name is similar to one that they have. Any other unknown name is accepted, because the first
    run may introduce it.
    """
    from fleet.profiles.compare.gates import parse, refuse_wrong_way  # noqa: PLC0415 - numpy

    limits = limits_of(texts)
    playbooks = [Path(word) for word in words if word and Path(word).is_file()]
    unsure = [name for name in limits if name not in KNOWN]
    earlier = _earlier(playbooks) if unsure else []
    there = every(earlier)
    for name in unsure:
        refuse_wrong_way(parse(limit_text(name, limits[name])), earlier, "--gate")
        if name not in there and get_close_matches(name, there, n=1):
            option = partial(_loss, earlier, limits[name])
            raise lacking(name, earlier, "earlier run", option)
    return limits


def _typed(share: float, metric: str) -> str:
    return f"--gate '{limit_text(metric, share)}'"


def _loss(records: Sequence[Record], share: float, metric: str) -> str:
    return f"--gate '{loss_text(metric, share, records)}'"


def _earlier(playbooks: list[Path]) -> list[Record]:
    from fleet.cli.profiles_store import opened  # noqa: PLC0415 - the database
    from fleet.config.playbook import load_playbook  # noqa: PLC0415
    from fleet.profiles.store import select  # noqa: PLC0415

    names = set()
    try:
        for path in playbooks:
            names.add(f"name:{load_playbook(path).name}")
        query = select.parse(",".join(["counted:yes", *sorted(names)]))
    except FleetError:  # the error is reported when the playbook is needed
        return []
    with opened(None) as store:
        return store.records(query, _EARLIER)


def refuse_other_gates(
    journal: AbJournal, texts: list[str], limit: Sequence[str] | None = None
) -> None:
    """Raise InputError if `--resume` comes with other gates than before, or with a choice of
    devices.

    Gates and devices decided how long fleet measures, so they cannot change.
    """
    if limit:
        journal.close()
        raise InputError(
            f"the comparison {journal.run_id} has the devices {', '.join(journal.asked.hosts)}; "
            "they cannot be changed",
            hint=f"fleet ab --resume {journal.run_id} (continues with all of them)",
        )
    held = dict(journal.asked.limits)
    if not texts or limits_of(texts) == held:
        return
    typed = " ".join(f"--gate {text!r}" for text in texts)
    has = " ".join(_typed(share, name) for name, share in held.items()) or "the default gate"
    journal.close()
    raise InputError(
        f"the comparison {journal.run_id} has {has}, not {typed}; its gates cannot be changed, "
        "because they decided how long fleet measured",
        hint=f"fleet ab --resume {journal.run_id} (continues with {has}); or begin a new "
        "comparison with the other gate",
    )
