"""`fleet run`: measure what is deployed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from fleet.cli import options as opt
from fleet.cli import output, run_options
from fleet.cli.common import end_devices, hosts_of, working_on
from fleet.cli.deploy import show_measured
from fleet.cli.live import listening
from fleet.cli.results import show_devices
from fleet.config.playbook import load_playbook
from fleet.engine.operation import Operation
from fleet.engine.options import DeployOptions
from fleet.model.deadline import parse_duration
from fleet.model.errors import FleetError
from fleet.model.gates import DEFAULT_METRIC
from fleet.profiles.runs import RunStore

if TYPE_CHECKING:
    from fleet.profiles.compare.verdict import MetricRow


def run(
    playbook: opt.Playbook,
    inventory: opt.Inventory,
    limit: opt.Limit = None,
    prompt: run_options.Prompt = None,
    prompt_file: run_options.PromptFile = None,
    repeats: run_options.Repeats = None,
    warmups: run_options.Warmups = None,
    max_tokens: run_options.MaxTokens = None,
    timeout: run_options.Timeout = None,
    cool_below: run_options.Cool = None,
    until: run_options.Until = None,
    sustained: run_options.Sustained = None,
    tags: run_options.Tags = None,
    output_dir: opt.Records = None,
    stream: Annotated[bool, typer.Option("--stream", help="Show the program's output.")] = False,
    parallel: opt.Parallel = None,
    executor: opt.Executor = None,
    as_json: opt.Json = False,
) -> None:
    """Run the deployed release on the devices and collect the profiles.

    Example: fleet run -i inventories/lab.yaml playbooks/tiny-genie.yaml --repeats 5
    """
    changes: dict[str, object] = {"repeats": repeats, "warmups": warmups}
    changes |= {"max_tokens": max_tokens, "prompt": run_options.prompt_of(prompt, prompt_file)}
    changes["timeout"] = parse_duration(timeout) if timeout else None
    loaded = load_playbook(playbook)
    changes = run_options.measured(loaded, changes, sustained=sustained is not None)
    loaded = run_options.gated(run_options.changed(loaded, changes), cool_below, until, sustained)
    if tags:
        from fleet.profiles.store.select import named  # noqa: PLC0415 - sqlite, for tags alone

        for tag in tags:
            named(tag, "tag")
    hosts = hosts_of(inventory, limit)
    with (
        listening(as_json=as_json, show_output=stream, total=len(hosts)) as listener,
        working_on(executor, parallel) as remote,
    ):
        runs = RunStore(output_dir) if output_dir else None
        how = DeployOptions(run="always", parallel=parallel, tags=tuple(tags or ()))
        operation = Operation(loaded, hosts, listener, options=how, runs=runs, executor=remote)
        results = operation.run()
    if not as_json:
        show_devices(f"run {loaded.name}", results)
        show_measured(operation, results)
        against_previous(operation)
    end_devices(results)


def against_previous(operation: Operation) -> None:
    """One line: what changed since the run of this playbook before; nothing where there is none."""
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
    """Return the change of each board; a reason that all share stands once, at the end."""
    from fleet.profiles.compare.gates import percent  # noqa: PLC0415 - numpy

    said = {row.said for row in rows}
    shared = said.pop() if len(said) == 1 else ""
    changes = (
        f"{row.board} {percent(row.difference.mid)}" + f" {row.said}" * (not shared) for row in rows
    )
    return f"{rows[0].metric.shown} {', '.join(changes)}" + f"; {shared}" * bool(shared)
