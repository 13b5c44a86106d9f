"""`fleet profiles`: the records of runs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from fleet.cli import output, profiles_compare
from fleet.cli.common import JsonOption
from fleet.cli.results import show_records
from fleet.engine.records import RunStore

StoreOption = Annotated[Path | None, typer.Option("--store", help="Folder of the records.")]


def register(root: typer.Typer) -> None:
    """Add the group `profiles`."""
    group = typer.Typer(no_args_is_help=True, help="Records of runs.")
    group.command("list")(list_runs)
    group.command("show")(show)
    profiles_compare.register_in(group)
    root.add_typer(group, name="profiles")


def list_runs(store: StoreOption = None, as_json: JsonOption = False) -> None:
    """List runs, newest first.

    Example: fleet profiles list
    """
    runs = RunStore(store)
    found = []
    for run_id in runs.runs():
        records = runs.load(run_id)
        names = sorted({record["name"] for record in records})
        hosts = {record["host"] for record in records}
        counted = sum(1 for record in records if record["counts"])
        found.append((run_id, ", ".join(names), len(hosts), len(records), counted))
    if as_json:
        keys = ("run", "name", "devices", "records", "counted")
        output.emit_json([dict(zip(keys, row, strict=True)) for row in found])
    else:
        output.table("runs", ("run", "name", "devices", "records", "counted"), found)


def show(
    run_id: Annotated[str, typer.Argument(help="Run id, or `last`.")] = "last",
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show one run: medians a device, what does not count, and what was said.

    Example: fleet profiles show last
    """
    records = RunStore(store).load(run_id)
    if as_json:
        output.emit_json(records)
        return
    title = records[0]["run_id"] if records else run_id
    show_records(f"run {title}", records)
    for text in sorted({record["text"].strip() for record in records if record["text"].strip()}):
        output.say(f"  said: {text}")
