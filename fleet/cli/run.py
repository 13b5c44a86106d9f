"""`fleet run`: a measurement of the deployed release."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fleet.cli import options as opt
from fleet.cli import output
from fleet.cli.common import end_devices, hosts_of, working_on
from fleet.cli.deploy import show_measured
from fleet.cli.live import listening
from fleet.cli.options import house
from fleet.cli.results import show_devices
from fleet.config.playbook import load_playbook
from fleet.engine.deploy.operation import Operation, Resources
from fleet.engine.options import DeployOptions
from fleet.model.deadline import parse_duration
from fleet.model.errors import FleetError, InputError
from fleet.model.files import file_errors
from fleet.model.gates import (
    DEFAULT_METRIC,
    LEAST_REPEATS,
    CoolSpec,
    UntilSpec,
    parse_celsius,
    parse_percent,
)
from fleet.model.playbook import Playbook, RunSpec
from fleet.profiles.runs import RunStore

if TYPE_CHECKING:
    from fleet.profiles.compare.verdict import MetricRow


# An interval needs at least five runs. docs/measuring.md explains the warm-ups.
UNSAID: dict[str, dict[str, object]] = {
    "repeats": {"repeats": LEAST_REPEATS}, "warmups": {"warmups": 2, "settle": 2}
}  # fmt: skip


def measured(
    playbook: Playbook, changes: dict[str, object], *, sustained: bool
) -> dict[str, object]:
    """Return the changes with default counts, for a `sustained` run without `repeats`."""
    run = playbook.run or RunSpec()
    for name in run.unsaid:
        if changes[name] is None and not (name == "repeats" and (sustained or run.sustained)):
            changes = changes | UNSAID[name]
    return changes


def prompt_of(text: str | None, path: Path | None) -> str | None:
    """Return the prompt of the command line. Raises InputError."""
    if text is not None and path is not None:
        raise InputError(
            "--prompt and --prompt-file cannot be combined", hint="remove one of the two"
        )
    if path is None:
        return text
    with file_errors(path):
        return path.read_text("utf-8")


def changed(playbook: Playbook, changes: dict[str, object]) -> Playbook:
    """Return the playbook with these values in its `run:`; None leaves a value unchanged."""
    given = {name: value for name, value in changes.items() if value is not None}
    if not playbook.run and "prompt" not in given:
        return playbook
    return replace(playbook, run=replace(playbook.run or RunSpec(), **given))  # type: ignore[arg-type]


@dataclass(frozen=True)
class RunFlags:
    """The options of `fleet run` as typed, in the order of its help."""

    prompt: Annotated[
        str | None, typer.Option(help="Text of the prompt; default: the prompt of the playbook.")
    ] = None
    prompt_file: Annotated[Path | None, typer.Option(help="File that contains the prompt.")] = None
    repeats: Annotated[
        int | None,
        typer.Option(
            min=1, help="Number of measured runs on each device.", callback=house("repeats")
        ),
    ] = None
    warmups: Annotated[
        int | None, typer.Option(min=0, help="Number of warm-up runs before the measured ones.")
    ] = None
    max_tokens: Annotated[
        int | None, typer.Option(min=1, help="Generate at most this many tokens.")
    ] = None
    timeout: Annotated[str | None, typer.Option(help="Time limit of one run: 90s, 5m.")] = None
    cool_below: Annotated[
        str | None, typer.Option(help="Wait before each run until the device is cooler: 45C.")
    ] = None
    until: Annotated[
        str | None,
        typer.Option(
            help="Repeat the run until the 95 % confidence interval of the main metric is "
            "narrower than "
            "this share of its median, like 3%."
        ),
    ] = None
    sustained: Annotated[
        str | None,
        typer.Option(
            help="Repeat the run without pauses for this long, like 10m (shows thermal throttling)."
        ),
    ] = None
    tags: Annotated[
        list[str] | None,
        typer.Option(
            "--tag", help="Give the results this tag, to select them by tag:NAME. Repeatable."
        ),
    ] = None
    output_dir: opt.Records = None
    stream: Annotated[bool, typer.Option("--stream", help="Show the program's output.")] = False
    parallel: opt.Parallel = None
    executor: opt.Executor = None


def gated(playbook: Playbook, flags: RunFlags) -> Playbook:
    """Return the playbook with these gates in its `run:`. Raises InputError."""
    cool, until, sustained = flags.cool_below, flags.until, flags.sustained
    if until is not None and sustained is not None:
        raise InputError("--until and --sustained cannot be combined", hint="remove one of the two")
    run = playbook.run
    if run is None:
        return playbook
    if cool is not None:
        below = parse_celsius(cool)
        run = replace(run, cool=replace(run.cool or CoolSpec(below), below=below))
    if until is not None:
        narrower = parse_percent(until)
        spec = replace(run.until or UntilSpec(narrower), narrower=narrower)
        spec = replace(spec, at_most=max(spec.at_most, run.repeats))
        run = replace(run, until=spec, sustained=None)
    if sustained is not None:
        run = replace(run, until=None, sustained=parse_duration(sustained))
    if run.until is not None and run.until.at_most < run.repeats:
        raise InputError(
            f"`until: at_most:` in the playbook allows {run.until.at_most} runs, but --repeats "
            f"asks for {run.repeats}",
            hint="raise `until: at_most:` in the playbook, or give a smaller --repeats",
        )
    return replace(playbook, run=run)


@opt.spread
def run(
    playbook: opt.Playbook,
    inventory: opt.Inventory,
    limit: opt.Limit = None,
    *,
    flags: RunFlags,
    as_json: opt.Json = False,
) -> None:
    """Run the deployed release on the devices and collect the profiles.

    Example: fleet run -i inventories/lab.yaml playbooks/tiny-genie.yaml --repeats 5
    """
    changes: dict[str, object] = {"repeats": flags.repeats, "warmups": flags.warmups}
    changes["max_tokens"] = flags.max_tokens
    changes["prompt"] = prompt_of(flags.prompt, flags.prompt_file)
    changes["timeout"] = parse_duration(flags.timeout) if flags.timeout else None
    loaded = load_playbook(playbook)
    changes = measured(loaded, changes, sustained=flags.sustained is not None)
    loaded = gated(changed(loaded, changes), flags)
    if flags.tags:
        from fleet.profiles.store.select import named  # noqa: PLC0415 - sqlite, only for tags

        for tag in flags.tags:
            named(tag, "tag")
    hosts = hosts_of(inventory, limit)
    with (
        listening(as_json=as_json, show_output=flags.stream, total=len(hosts)) as listener,
        working_on(flags.executor, flags.parallel) as remote,
    ):
        runs = RunStore(flags.output_dir) if flags.output_dir else None
        how = DeployOptions(run="always", parallel=flags.parallel, tags=tuple(flags.tags or ()))
        stores = Resources(runs=runs, executor=remote)
        operation = Operation(loaded, hosts, listener, options=how, resources=stores)
        results = operation.run()
    if not as_json:
        show_devices(f"run {loaded.name}", results)
        show_measured(operation, results)
        against_previous(operation)
    end_devices(results)


def against_previous(operation: Operation) -> None:
    """Print one line about the changes since the previous run of this playbook, if there is one."""
    from fleet.cli import compared  # noqa: PLC0415 - numpy, after the work is done
    from fleet.profiles.compare.selecting import compare_groups  # noqa: PLC0415

    store = operation.runs.root if operation.runs.root != RunStore().root else None
    try:
        sides = compared.group_of("prev", store), compared.group_of(operation.run_id, store)
    except FleetError:
        return
    every = compare_groups(sides).rows
    rows = [row for row in every if row.metric.name == DEFAULT_METRIC]
    if not rows:
        return
    text = changes_text(rows)
    emulated = " (emulated)" * any(row.emulated for row in every)
    output.note(f"compared with run {sides[0].records[0].run_id}{emulated}: {text}")


def changes_text(rows: Sequence[MetricRow]) -> str:
    """Return the change of each board. A reason that all boards share appears once, at the end."""
    from fleet.profiles.compare.gates import percent  # noqa: PLC0415 - numpy

    verdicts = {row.verdict_text for row in rows}
    shared = verdicts.pop() if len(verdicts) == 1 else ""
    changes = (
        f"{row.board} {percent(row.difference.mid)}" + f" {row.verdict_text}" * (not shared)
        for row in rows
    )
    return f"{rows[0].metric.shown} {', '.join(changes)}" + f"; {shared}" * bool(shared)
