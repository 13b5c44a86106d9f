"""`fleet profiles import|export|tag` and `fleet profiles baseline`."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer
from rich.progress import Progress

from fleet.cli import output
from fleet.cli.options import JsonOption
from fleet.cli.profiles_opened import opened
from fleet.model.errors import InputError
from fleet.profiles.exports import WRITERS, export
from fleet.profiles.imports import Importer, Labels
from fleet.profiles.store import select

Format = StrEnum("Format", list(WRITERS))  # type: ignore[misc]
SelectionArgument = Annotated[
    str, typer.Argument(help="Which records; as of `fleet profiles list`.")
]
StoreOption = Annotated[
    Path | None,
    typer.Option("--store", help="Folder of records (--output of `fleet run`), or a .db file."),
]
MOST_BAD = 50


def register_in(group: typer.Typer) -> None:
    """Add the commands to the group `profiles`."""
    group.command("import")(import_files)
    group.command("export")(export_records)
    group.command("tag")(tag)
    baseline = typer.Typer(no_args_is_help=True, help="Records kept under a name to compare with.")
    baseline.command("save")(save)
    baseline.command("list")(list_baselines)
    baseline.command("remove")(remove)
    group.add_typer(baseline, name="baseline")


def import_files(
    paths: Annotated[list[Path], typer.Argument(help="Files, or folders with all below them.")],
    host: Annotated[str, typer.Option("--host", help="Device, where a file does not say.")] = "",
    name: Annotated[str, typer.Option("--name", help="Model, where a file does not say.")] = "",
    tags: Annotated[list[str] | None, typer.Option("--tag", help="Put a tag on all.")] = None,
    emulated: Annotated[
        bool | None,
        typer.Option(
            "--emulated/--hardware", help="Where a file does not say: emulated, or a true NPU."
        ),
    ] = None,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """Take in profiles: record.json, JSON Lines, Genie, QNN and ORT CSV, llama-bench, and more.

    What neither the file nor an option says is unknown. A file that is there already changes
    nothing. Bad files are named at the end (exit code 1); the others are in.

    Example: fleet profiles import results/ --host evk-07 --hardware --tag before-update
    """
    labels = Labels(host, name, tuple(tags or ()), emulated)
    with (
        opened(store, look=False) as found,
        Progress(console=output.errors, transient=True) as view,
    ):
        view.disable = not output.errors.is_terminal
        job = view.add_task("import", total=None)
        done = Importer(found, labels).take(
            paths, lambda now, of: view.update(job, completed=now, total=of)
        )
        where = found.path
    if as_json:
        output.emit_json(done.as_dict())
    else:
        output.say(
            f"{done.files} files: {done.new} new records, {done.known} known, "
            f"{done.passed} files are no profiles, {len(done.bad)} bad; store {where}"
        )
        for bad in done.bad[:MOST_BAD]:
            output.note(f"bad: {bad.path}: {bad.message}" + (f"; {bad.hint}" * bool(bad.hint)))
        if len(done.bad) > MOST_BAD:
            output.note(f"and {len(done.bad) - MOST_BAD} more; all of them: --json")
    if done.bad:
        raise typer.Exit(1)


def export_records(
    selection: SelectionArgument,
    target: Annotated[Path, typer.Option("--to", help="File to write, whole or not at all.")],
    kind: Annotated[
        Format | None,
        typer.Option("--format", help="Where the suffix does not say; trace is Chrome's JSON."),
    ] = None,
    clock_mhz: Annotated[
        float | None,
        typer.Option("--clock-mhz", min=0.001, help="For a trace: the clock that cycles count."),
    ] = None,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """Write records for other programs: .jsonl, .csv, .parquet, .trace (Perfetto).

    Example: fleet profiles export tag:before-update --to before.csv
    """
    query = select.parse(selection)
    with opened(store) as found:
        clock = None if clock_mhz is None else clock_mhz * 1e6
        count = export(found, query, target, str(kind or ""), clock)
    if as_json:
        output.emit_json({"file": target, "records": count})
    else:
        output.say(f"{count} records in {target}")


def tag(
    selection: SelectionArgument,
    name: Annotated[str, typer.Argument(help="The tag.")],
    remove_it: Annotated[bool, typer.Option("--remove", help="Take it away.")] = False,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """Put a tag on records, to select them with tag:NAME.

    Example: fleet profiles tag last before-update
    """
    query = select.parse(selection)
    with opened(store) as found:
        if not found.count(query):
            raise InputError(f"'{selection}' selects no records", hint="fleet profiles list")
        changed = found.tag(query, name, away=remove_it)
    if as_json:
        output.emit_json({"tag": name, "changed": changed})
    else:
        output.say(f"{changed} records {'lost' if remove_it else 'got'} the tag {name}")


def save(
    name: Annotated[str, typer.Argument(help="The name.")],
    selection: SelectionArgument,
    replace: Annotated[bool, typer.Option("--replace", help="Write over one there is.")] = False,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """Keep the records that are selected now, to compare later ones with baseline:NAME.

    Example: fleet profiles baseline save good last
    """
    query = select.parse(selection)
    with opened(store) as found:
        count = found.save_baseline(name, query, replace=replace)
    if as_json:
        output.emit_json({"baseline": name, "records": count})
    else:
        output.say(f"baseline {name}: {count} records")


def list_baselines(store: StoreOption = None, as_json: JsonOption = False) -> None:
    """List baselines.

    Example: fleet profiles baseline list
    """
    with opened(store, look=False) as found:
        rows = [one.as_dict() for one in found.baselines()]
    if as_json:
        output.emit_json(rows)
    else:
        keys = ("name", "records", "selection", "made")
        output.table("baselines", keys, [[row[key] for key in keys] for row in rows])


def remove(
    name: Annotated[str, typer.Argument(help="The name.")],
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """Forget a baseline; its records stay.

    Example: fleet profiles baseline remove good
    """
    with opened(store, look=False) as found:
        found.remove_baseline(name)
    if as_json:
        output.emit_json({"removed": name})
    else:
        output.say(f"baseline {name} is forgotten")
