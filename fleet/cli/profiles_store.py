"""`fleet profiles import|export|tag` and `fleet profiles baseline`."""

from __future__ import annotations

import shutil
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Literal

import typer
from rich.progress import Progress

from fleet.cli import options as opt
from fleet.cli import output
from fleet.cli.options import App
from fleet.model.errors import InputError
from fleet.model.plain import to_plain
from fleet.profiles.exports import export
from fleet.profiles.imports import BadFile, Importer, Labels
from fleet.profiles.store import ProfileStore, select

SelectionArgument = Annotated[str, typer.Argument(help="Which runs: a run id, last, tag:NAME, ...")]
baseline = App(
    no_args_is_help=True, help="Keep results under a name, to compare later results with them."
)
MOST_BAD = 50


def opened(path: Path | None, *, look: bool = True) -> ProfileStore:
    """Return the store, updated with the latest runs unless `look` is off; report
    unreadable files.
    """
    store = ProfileStore(path)
    for bad in store.look() if look else ():
        output.note(f"warning: {bad.path}: {bad.message}")
    return store


def import_files(
    paths: Annotated[list[Path], typer.Argument(help="Files, or folders with all files in them.")],
    host: Annotated[str, typer.Option(help="Device name for files that do not contain one.")] = "",
    name: Annotated[str, typer.Option(help="Model name for files that do not contain one.")] = "",
    tags: Annotated[
        list[str] | None,
        typer.Option("--tag", help="Add this tag to all imported results. Repeatable."),
    ] = None,
    emulated: Annotated[
        bool | None,
        typer.Option(
            "--emulated/--hardware",
            help="For files that do not say it: the runs were emulated (--emulated), or ran "
            "on a real NPU.",
        ),
    ] = None,
    store: opt.Store = None,
    as_json: opt.Json = False,
) -> None:
    """Import profiles: record.json, JSON Lines, Genie, QNN and ORT CSV, llama-bench, and more.

    A file that was imported before changes nothing. Bad files are listed at the end (exit
    code 1); the others are imported. In a folder, files that are no profiles are skipped; if
    all are, they are listed, and the exit code is 1.

    Example: fleet profiles import results/ --host evk-07 --hardware --tag before-update
    """
    labels = Labels(host, name, tuple(tags or ()), emulated)
    with (
        opened(store, look=False) as profiles,
        Progress(console=output.errors, transient=True) as view,
    ):
        view.disable = not output.errors.is_terminal
        job = view.add_task("import", total=None)
        done = Importer(profiles, labels).take(
            paths, lambda now, of: view.update(job, completed=now, total=of)
        )
        where = profiles.path
    if as_json:
        output.emit_json(done)
    else:
        damaged = sum(not file.unknown for file in done.bad)
        output.say(
            f"{done.files} files read: {done.new} new results, {done.known} already stored; "
            f"{done.unknown} {_are('file', done.unknown)} not profiles, {damaged} "
            f"{_are('', damaged)} damaged; stored in {where}"
        )
        _tell_bad([*done.bad, *(done.skipped if done.is_empty else ())])
    if done.bad or done.is_empty:
        raise typer.Exit(1)


def _tell_bad(bad: Sequence[BadFile]) -> None:
    for file in bad[:MOST_BAD]:
        output.note(f"bad: {file.path}: {file.message}")
        if file.hint:
            output.advise(f"  try: {file.hint}")
    if len(bad) > MOST_BAD:
        output.note(f"and {len(bad) - MOST_BAD} more bad files; --json lists all of them")


def _are(what: str, count: int) -> str:
    """Return `files are` or `is`."""
    single = count == 1
    return " ".join(filter(None, (what and what + "s" * (not single), "is" if single else "are")))


FormatOption = Annotated[
    Literal["jsonl", "csv", "parquet", "trace", "json"] | None,
    typer.Option(
        "--format",
        "-o",
        metavar="FORMAT",
        help="jsonl (JSON Lines; json means the same), csv, parquet or trace (Chrome's "
        "tracing, for Perfetto). Default: by the name of the file, else jsonl.",
    ),
]
TargetOption = Annotated[
    Path | None, typer.Option("--output", help="File to write instead of standard output.")
]
ClockOption = Annotated[
    float | None,
    typer.Option(
        min=0.001,
        help="With -o trace: clock rate of the NPU in MHz, if the profile counts cycles.",
    ),
]


def export_records(
    selection: SelectionArgument,
    kind: FormatOption = None,
    target: TargetOption = None,
    clock_mhz: ClockOption = None,
    store: opt.Store = None,
    as_json: opt.Json = False,
) -> None:
    """Write records for other programs, to standard output or a file.

    Example: fleet profiles export tag:before-update -o csv > before.csv
    Example: fleet profiles export last --output last.parquet
    """
    query = select.parse(selection)
    clock = None if clock_mhz is None else clock_mhz * 1e6
    wanted = "jsonl" if as_json or kind == "json" else kind or ""
    if target is None and wanted == "parquet" and sys.stdout.isatty():
        raise InputError("Parquet is not text for a terminal", hint="add --output FILE.parquet")
    with opened(store) as profiles:
        if target is not None:
            count = export(profiles, query, target, wanted, clock)
            output.note(f"wrote {count} results to {target}")
            return
        with tempfile.TemporaryDirectory(prefix="fleet-export-") as folder:
            part = Path(folder) / "records"
            export(profiles, query, part, wanted or "jsonl", clock)
            with part.open("rb") as stream:
                shutil.copyfileobj(stream, sys.stdout.buffer)
    sys.stdout.buffer.flush()


def tag(
    selection: SelectionArgument,
    name: Annotated[str, typer.Argument(help="Name for the runs, to select them later: tag:NAME.")],
    remove_it: Annotated[bool, typer.Option("--remove", help="Remove the tag.")] = False,
    store: opt.Store = None,
    as_json: opt.Json = False,
) -> None:
    """Tag records, to select them with tag:NAME.

    Example: fleet profiles tag last before-update
    """
    query = select.parse(selection)
    with opened(store) as profiles:
        if not profiles.count(query):
            raise InputError(f"no stored result matches '{selection}'", hint="fleet profiles list")
        changed = profiles.tag(query, name, away=remove_it)
    text = f"the tag {name} was {('removed from' if remove_it else 'added to')} {changed} results"
    output.answer({"tag": name, "changed": changed}, text, as_json=as_json)


@baseline.command()
def save(
    name: Annotated[str, typer.Argument(help="Name of the baseline.")],
    selection: SelectionArgument,
    replace: Annotated[
        bool, typer.Option("--replace", help="Overwrite an existing baseline.")
    ] = False,
    store: opt.Store = None,
    as_json: opt.Json = False,
) -> None:
    """Save the selected records, to compare later records with baseline:NAME.

    Example: fleet profiles baseline save good last
    """
    query = select.parse(selection)
    with opened(store) as profiles:
        count = profiles.save_baseline(name, query, replace=replace)
    text = f"saved baseline {name} with {count} results"
    output.answer({"baseline": name, "records": count}, text, as_json=as_json)


@baseline.command("list")
def list_baselines(store: opt.Store = None, as_json: opt.Json = False) -> None:
    """List baselines.

    Example: fleet profiles baseline list
    """
    with opened(store, look=False) as profiles:
        rows = [to_plain(baseline) for baseline in profiles.baselines()]
    if as_json:
        output.emit_json(rows)
    else:
        keys = ("name", "records", "selection", "made")
        output.table("baselines", keys, [[row[key] for key in keys] for row in rows])


@baseline.command()
def remove(
    name: Annotated[str, typer.Argument(help="Name of the baseline.")],
    store: opt.Store = None,
    as_json: opt.Json = False,
) -> None:
    """Delete a baseline. Its records stay.

    Example: fleet profiles baseline remove good
    """
    with opened(store, look=False) as profiles:
        profiles.remove_baseline(name)
    output.answer({"removed": name}, f"removed baseline {name}", as_json=as_json)
