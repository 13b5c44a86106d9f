"""`fleet run`: measure what is deployed."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from fleet.cli.common import (
    ExecutorOption,
    InventoryOption,
    JsonOption,
    LimitOption,
    ParallelOption,
    PlaybookArgument,
    end_devices,
    hosts_of,
    working_on,
)
from fleet.cli.deploy import show_measured
from fleet.cli.live import listening
from fleet.cli.results import show_devices
from fleet.config.playbook import load_playbook
from fleet.engine.operation import Operation, Options
from fleet.engine.records import RunStore
from fleet.model.deadline import parse_duration
from fleet.model.errors import InputError
from fleet.model.playbook import Playbook, RunSpec


def register(root: typer.Typer) -> None:
    """Add `run`."""
    root.command()(run)


def run(
    playbook: PlaybookArgument,
    inventory: InventoryOption,
    limit: LimitOption = None,
    prompt: Annotated[
        str | None, typer.Option(help="Prompt text instead of the playbook's.")
    ] = None,
    prompt_file: Annotated[Path | None, typer.Option(help="File with the prompt.")] = None,
    repeats: Annotated[int | None, typer.Option(min=1, help="Counted runs a device.")] = None,
    warmups: Annotated[int | None, typer.Option(min=0, help="Runs that are not counted.")] = None,
    max_tokens: Annotated[int | None, typer.Option(min=1, help="Token limit.")] = None,
    timeout: Annotated[str | None, typer.Option(help="Limit of one run: 90s, 5m.")] = None,
    output_dir: Annotated[Path | None, typer.Option("--output", help="Folder for records.")] = None,
    stream: Annotated[bool, typer.Option("--stream", help="Show what the runner prints.")] = False,
    parallel: ParallelOption = None,
    executor: ExecutorOption = None,
    as_json: JsonOption = False,
) -> None:
    """Run the deployed release on the devices and bring the profiles back.

    Example: fleet run -i inventories/lab.yaml playbooks/tiny-genie.yaml --repeats 5
    """
    loaded = load_playbook(playbook)
    changes = {
        "prompt": _prompt(prompt, prompt_file),
        "repeats": repeats,
        "warmups": warmups,
        "max_tokens": max_tokens,
        "timeout": parse_duration(timeout) if timeout else None,
    }
    loaded = _changed(loaded, {k: v for k, v in changes.items() if v is not None})
    with (
        listening(as_json=as_json, show_output=stream) as listener,
        working_on(executor, parallel) as remote,
    ):
        operation = Operation(
            loaded,
            hosts_of(inventory, limit),
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


def _prompt(text: str | None, path: Path | None) -> str | None:
    if text is not None and path is not None:
        raise InputError("--prompt and --prompt-file are two ways to say the same")
    if path is None:
        return text
    try:
        return path.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"cannot read {path}: {error}") from error


def _changed(playbook: Playbook, changes: dict[str, object]) -> Playbook:
    base = playbook.run or RunSpec()
    if not playbook.run and "prompt" not in changes:
        return playbook
    return replace(playbook, run=replace(base, **changes))  # type: ignore[arg-type]
