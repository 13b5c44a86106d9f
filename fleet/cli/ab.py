"""`fleet ab`: which of two is worse, measured in turns."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fleet.cli import ab_table, output, project
from fleet.cli import options as opt
from fleet.cli.common import end_devices, hosts_of
from fleet.cli.live import listening
from fleet.cli.results import show_errors
from fleet.model.deadline import Deadline, parse_duration
from fleet.model.errors import GateError, InputError, NotComparableError, TransportError
from fleet.model.metrics import LOSS
from fleet.model.text import from_here
from fleet.profiles.runs import RunStore, new_run_id

if TYPE_CHECKING:
    from fleet.engine.pool import DeviceResult
    from fleet.engine.run.ab.journal import AbJournal
    from fleet.engine.run.ab.measuring import AbReport

PARALLEL = 16
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
    from fleet.cli import ab_gates  # noqa: PLC0415 - numpy, for this alone
    from fleet.engine.run.ab.journal import AbJournal, Asked  # noqa: PLC0415

    inventory = inventory or project.supplied("inventory")
    store = RunStore(output_dir)
    if resume is not None:
        journal = AbJournal.reopen(store, resume)
        ab_gates.refuse_others(journal, gate or [], limit)
    elif a is None or b is None or inventory is None:
        raise InputError(
            "`fleet ab` needs two playbooks, bundles or releases to compare (A and B), and an "
            "inventory",
            hint="fleet ab A B -i INVENTORY --playbook PLAYBOOK",
        )
    else:
        names = tuple(host.name for host in hosts_of(inventory, limit))
        limits = ab_gates.asked(gate or [], (a, b, playbook))
        seconds = parse_duration(sustained) if sustained else 0.0
        path = str(playbook.resolve()) if playbook else ""
        sides = _absolute(a), _absolute(b)
        asked = Asked(*sides, path, str(inventory.resolve()), names, limits, boots, seconds)
        journal = AbJournal.begin(store, new_run_id(), asked)
    with _held(journal):
        results = _measured(journal, budget, offline=offline, parallel=parallel, as_json=as_json)
    ab_table.show(journal, results, as_json=as_json)
    if not as_json:
        ab_table.tell_ended(results, budget)
        _show_errors(journal, results)
    end(journal, results)


@contextmanager
def _held(journal: AbJournal) -> Iterator[None]:
    """Close the journal at the end; a person who stops the command reads how to continue it."""
    try:
        yield
    except KeyboardInterrupt:
        pairs = sum(len(journal.pairs(host)) for host in journal.asked.hosts)
        output.note(ab_table.kept(journal, pairs))
        raise
    finally:
        journal.close()


def _absolute(word: str) -> str:
    """The word; a path as it is from everywhere."""
    return str(Path(word).resolve()) if Path(word).exists() else word


def _measured(
    journal: AbJournal, budget: str | None, *, offline: bool, parallel: int | None, as_json: bool
) -> list[DeviceResult[AbReport]]:
    """On every board that was asked."""
    from fleet.engine.pool import PoolOptions, on_every_device  # noqa: PLC0415
    from fleet.engine.run.ab.measuring import measure, settle  # noqa: PLC0415
    from fleet.engine.run.ab.sides import not_measured, side_of  # noqa: PLC0415
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
    """Show the errors of devices; those of lost ones with the command that continues.

    The same command line again would begin a new comparison.
    """
    for result in results:
        if isinstance(result.error, TransportError):
            result.error.hint = (
                "check the power and the cable of the device; then "
                f"{ab_table.resume_line(journal)} (continues after the last whole pair)"
            )
    show_errors(results)


def end(journal: AbJournal, results: list[DeviceResult[AbReport]]) -> None:
    """Raise what the exit code says: 1 worse or failing, 4 undecided, else that of the devices."""
    worse = ab_table.worse(journal, results)
    if worse:
        raise GateError(
            "; ".join(worse),
            hint=f"keep A ({from_here(journal.asked.a)}); or allow a larger loss with --gate, then "
            "run the command again",
        )
    end_devices(results)
    undecided = ab_table.undecided(results)
    if undecided:
        last = ab_table.last_look(journal, results)
        raise NotComparableError(
            f"fleet needs more runs to tell whether B is worse than A: {', '.join(undecided)}",
            hint=last or f"{ab_table.resume_line(journal)} (continues to measure)",
        )
