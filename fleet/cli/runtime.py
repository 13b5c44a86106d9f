"""`fleet runtime`: the QAIRT runtimes on this computer."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer
from rich.progress import BarColumn, DownloadColumn, TaskID, TextColumn, TransferSpeedColumn
from rich.progress import Progress as Bars

from fleet.cli import options as opt
from fleet.cli import output
from fleet.cli.options import App
from fleet.model.errors import InputError
from fleet.model.files import human_bytes
from fleet.model.plain import to_plain
from fleet.model.runtime import Runtime
from fleet.runtimes.programs import remove_program, stored_programs
from fleet.runtimes.releases import DEFAULT_SPEC
from fleet.runtimes.select import select_files
from fleet.runtimes.stage import Progress, silent
from fleet.runtimes.store import RuntimeStore

app = App(
    no_args_is_help=True, help="Add, download, list and remove QAIRT runtimes on this computer."
)

_Name = Annotated[str, typer.Argument(metavar="ID", help="Runtime id, build id or version.")]


@app.command()
def add(
    source: Annotated[
        str, typer.Argument(metavar="PATH|URL", help="SDK folder, SDK zip, wheel, or a URL.")
    ],
    sha256: Annotated[
        str | None, typer.Option(help="SHA-256 of the file; required for a URL.")
    ] = None,
    target: Annotated[
        list[str] | None,
        typer.Option(
            help="Add only the libraries for this target, like aarch64-oe-linux-gcc11.2 (a "
            "folder in lib/ "
            "of the SDK). Repeatable."
        ),
    ] = None,
) -> None:
    """Add a runtime to the store. From an SDK, fleet copies only the files that a board needs.

    Examples:
      fleet runtime add ~/qairt/2.51.0.260929 --target aarch64-oe-linux-gcc11.2
      fleet runtime add v2.51.0.260929.zip
      fleet runtime add https://example.com/sdk.zip --sha256 HEX
    """
    with _bars() as progress:
        runtime = RuntimeStore().add(
            source, sha256=sha256, targets=tuple(target or ()), progress=progress
        )
    _say(runtime)


@app.command()
def fetch(
    spec: Annotated[
        str,
        typer.Argument(metavar="[VERSION|onnxruntime-qnn==X]", help="Version; default: newest."),
    ] = DEFAULT_SPEC,
    *,
    target: Annotated[str, typer.Option(help="QAIRT target, such as x86_64-linux-clang.")],
    sdk: Annotated[
        bool,
        typer.Option(
            "--sdk",
            help="Download the files of the target from Qualcomm's SDK instead of a wheel; "
            "VERSION then has a date, like 2.45.0.260326.",
        ),
    ] = False,
    sha256: Annotated[
        str | None, typer.Option(help="SHA-256 of the SDK's zip; downloads the whole zip.")
    ] = None,
    offline: Annotated[bool, typer.Option("--offline", help="Never use the network.")] = False,
) -> None:
    """Download a runtime: an onnxruntime-qnn wheel with your own pip, or a part of an SDK.

    Examples:
      fleet runtime fetch 2.51.0 --target aarch64-oe-linux-gcc11.2
      fleet runtime fetch onnxruntime-qnn==2.7.0 --target x86_64-linux-clang
      fleet runtime fetch 2.45.0.260326 --sdk --target aarch64-oe-linux-gcc11.2
    """
    if sha256 and not sdk:
        raise InputError(
            "--sha256 has no effect without --sdk", hint="pip checks the wheel; or add --sdk"
        )
    store = RuntimeStore()
    with _bars() as progress:
        if sdk:
            runtime = store.fetch_sdk(
                spec, target=target, sha256=sha256, progress=progress, offline=offline
            )
        else:
            runtime = store.fetch(spec, target=target, progress=progress, offline=offline)
    _say(runtime)


@app.command("list")
def list_(as_json: opt.Json = False) -> None:
    """List the runtimes in the store, newest first.

    Example:
      fleet runtime list --json
    """
    store = RuntimeStore()
    runtimes = store.list()
    if as_json:
        output.emit_json(runtimes)
    elif runtimes:
        rows = [
            (
                item.id,
                ", ".join(item.targets),
                ", ".join(item.hexagon_archs),
                human_bytes(item.size),
            )
            for item in runtimes
        ]
        output.table(f"Runtimes in {store.root}", ("id", "targets", "Hexagon", "size"), rows)
    else:
        output.note(
            f"no runtimes in {store.root}; to get one: fleet runtime fetch --target <TARGET>"
        )
    for problem in store.problems():
        output.note(f"damaged: {problem}")


@app.command()
def show(
    name: _Name,
    as_json: opt.Json = False,
    files: Annotated[bool, typer.Option("--files", help="List all files.")] = False,
    check: Annotated[
        bool,
        typer.Option("--check", help="Check the SHA-256 of all files of the runtime first (slow)."),
    ] = False,
) -> None:
    """Show one runtime: its source and its contents.

    Example:
      fleet runtime show 2.51.0 --files
    """
    store = RuntimeStore()
    runtime = store.get(name)
    if check:
        store.verify(runtime, deep=True)
    if as_json:
        output.emit_json(
            to_plain(runtime) | ({"files": to_plain(runtime.libraries)} if files else {})
        )
        return
    rows = [
        ("build id", runtime.build_id),
        ("targets", ", ".join(runtime.targets)),
        ("Hexagon archs", ", ".join(runtime.hexagon_archs) or "none"),
        ("files", f"{len(runtime.libraries)}, {human_bytes(runtime.size)}"),
        ("folder", runtime.root),
        *((item.kind, f"{item.name}: {', '.join(item.provides)}") for item in runtime.sources),
    ]
    output.table(runtime.id, ("", ""), rows)
    if files:
        output.table(
            "Files",
            ("file", "machine", "arch", "build id or version", "size"),
            [
                (item.path, item.machine, item.hexagon_arch or "",
                 item.build_id or item.aisw_version, human_bytes(item.size))
                for item in runtime.libraries
            ],
        )  # fmt: skip


@app.command()
def remove(name: _Name) -> None:
    """Delete a runtime from the store. Deployed copies stay on the devices.

    Example:
      fleet runtime remove qairt-2.47.0.260601114230
    """
    runtime = RuntimeStore().remove(name)
    output.note(f"removed {runtime.id if runtime else name}")


@app.command()
def programs(
    remove: Annotated[
        str | None, typer.Option(help="Delete the archive with this SHA-256, or its beginning.")
    ] = None,
    as_json: opt.Json = False,
) -> None:
    """List the unpacked archives of programs, with the playbooks in this folder that use them.

    Example:
      fleet runtime programs --json
    """
    if remove is not None:
        output.note(f"removed {remove_program(remove)}")
        return
    rows = stored_programs(Path())
    if as_json:
        output.emit_json(rows)
    else:
        cells = [(row["sha256"][:16], human_bytes(row["size"]), ", ".join(row["used_by"]))
                 for row in rows]  # fmt: skip
        output.table("Programs", ("SHA-256", "size", "used by, in this folder"), cells)


@app.command()
def files(
    name: _Name,
    target: Annotated[str, typer.Option(help="QAIRT target of the device.")],
    arch: Annotated[str | None, typer.Option(help="Hexagon arch, such as v73.")] = None,
    runner: Annotated[
        str, typer.Option(help="Runner for which to list the files, such as genie or ort.")
    ] = "genie",
    as_json: opt.Json = False,
) -> None:
    """List the files that fleet would send to a device.

    Example:
      fleet runtime files 2.51.0 --target aarch64-oe-linux-gcc11.2 --arch v73
    """
    selection = select_files(RuntimeStore().get(name), target, arch, runner)
    if as_json:
        output.emit_json(to_plain(selection) | {"size": selection.size})
        return
    output.table(
        f"{runner} on {target}: {human_bytes(selection.size)}",
        ("file", "size", "from"),
        [(item.name, human_bytes(item.size), item.source) for item in selection.files],
    )
    for item in selection.missing:
        output.note(f"missing: {item}")
    if selection.arch_problem:
        output.note(f"{selection.arch_problem}; give the Hexagon arch with --arch")


def _say(runtime: Runtime) -> None:
    done = "added" if runtime.changed else "the store already has this runtime, nothing changed:"
    output.note(f"{done} {runtime.id} ({', '.join(runtime.targets)})")


@contextmanager
def _bars() -> Iterator[Progress]:
    """Show progress bars on standard error, but only on a terminal."""
    if not output.errors.is_terminal:
        yield silent
        return
    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn())
    with Bars(*columns, TransferSpeedColumn(), console=output.errors, transient=True) as bars:
        tasks: dict[str, TaskID] = {}

        def show_progress(doing: str, done: int, total: int | None) -> None:
            if doing not in tasks:
                tasks[doing] = bars.add_task(doing, total=total)
            bars.update(tasks[doing], completed=done, total=total)

        yield show_progress
