"""`fleet run`: measure what is deployed."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from fleet.cli.common import end_devices, hosts_of, working_on
from fleet.cli.deploy import show_measured
from fleet.cli.live import listening
from fleet.cli.options import (
    ExecutorOption,
    InventoryOption,
    JsonOption,
    LimitOption,
    ParallelOption,
    PlaybookArgument,
)
from fleet.cli.results import show_devices
from fleet.cli.run_options import (
    CoolOption,
    MaxTokensOption,
    PromptFileOption,
    PromptOption,
    RepeatsOption,
    SustainedOption,
    TimeoutOption,
    UntilOption,
    WarmupsOption,
    changed,
    gated,
    prompt_of,
)
from fleet.config.playbook import load_playbook
from fleet.engine.operation import Operation
from fleet.engine.options import Options
from fleet.model.deadline import parse_duration
from fleet.profiles.runs import RunStore


def register(root: typer.Typer) -> None:
    """Add `run`."""
    root.command()(run)


def run(
    playbook: PlaybookArgument,
    inventory: InventoryOption,
    limit: LimitOption = None,
    prompt: PromptOption = None,
    prompt_file: PromptFileOption = None,
    repeats: RepeatsOption = None,
    warmups: WarmupsOption = None,
    max_tokens: MaxTokensOption = None,
    timeout: TimeoutOption = None,
    cool_below: CoolOption = None,
    until: UntilOption = None,
    sustained: SustainedOption = None,
    output_dir: Annotated[Path | None, typer.Option("--output", help="Folder for records.")] = None,
    stream: Annotated[bool, typer.Option("--stream", help="Show what the runner prints.")] = False,
    parallel: ParallelOption = None,
    executor: ExecutorOption = None,
    as_json: JsonOption = False,
) -> None:
    """Run the deployed release on the devices and bring the profiles back.

    Example: fleet run -i inventories/lab.yaml playbooks/tiny-genie.yaml --repeats 5
    """
    changes: dict[str, object] = {
        "prompt": prompt_of(prompt, prompt_file),
        "repeats": repeats,
        "warmups": warmups,
        "max_tokens": max_tokens,
        "timeout": parse_duration(timeout) if timeout else None,
    }
    loaded = gated(changed(load_playbook(playbook), changes), cool_below, until, sustained)
    hosts = hosts_of(inventory, limit)
    with (
        listening(as_json=as_json, show_output=stream) as listener,
        working_on(executor, parallel) as remote,
    ):
        operation = Operation(
            loaded,
            hosts,
            listener,
            options=Options(run="always", parallel=parallel),
            runs=RunStore(output_dir) if output_dir else None,
            executor=remote,
        )
        results = operation.run()
    if not as_json:
        show_devices(f"run {loaded.name}", results)
        show_measured(operation, results)
    end_devices(results)
