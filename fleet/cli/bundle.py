"""`fleet bundle`: what is in a bundle folder, and whether it can be deployed."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from fleet.bundles.inspect import guessed, inspect_bundle
from fleet.bundles.op_packages import read_library
from fleet.bundles.system_library import TARGET, system_library
from fleet.cli import bundle_ep, bundle_pull, output
from fleet.cli import options as opt
from fleet.cli.options import App
from fleet.model.bundle import KINDS, Bundle, ContextBinary
from fleet.model.errors import BundleError, InputError
from fleet.model.files import human_bytes
from fleet.model.op_package import CPU, HTP, OpLibrary
from fleet.model.plain import to_plain
from fleet.runtimes.store import RuntimeStore

app = App(no_args_is_help=True, help="Inspect bundles (compiled models), or get them from AI Hub.")


@app.command()
def inspect(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="A bundle folder.")],
    kind: Annotated[str | None, typer.Option(help=f"Kind of bundle: {', '.join(KINDS)}.")] = None,
    as_json: opt.Json = False,
    no_hash: Annotated[
        bool, typer.Option("--no-hash", help="Do not compare the SHA-256 of the files (faster).")
    ] = False,
) -> None:
    """Check a bundle: context binaries, needed QAIRT, files, damage. Exit 1 if unusable.

    Examples:
      fleet bundle inspect assets/tiny-genie
      fleet bundle inspect ~/llama_v3_1_8b-genie-w4a16-qualcomm_qcs9075 --json
    """
    if kind is not None and kind not in KINDS:
        raise InputError(
            f"'{kind}' is not a kind of bundle", hint="use one of: " + ", ".join(KINDS)
        )
    library, kind = system_library(RuntimeStore()), kind or guessed(folder.expanduser())
    bundle = inspect_bundle(folder, library, hashes=not no_hash, kind=kind)
    if as_json:
        output.emit_json(bundle)
    else:
        _show(bundle)
    if not bundle.usable:
        raise typer.Exit(1)


@app.command(name="op-package")
def op_package(
    files: Annotated[
        list[Path], typer.Argument(metavar="FILE...", help="Op package libraries (.so).")
    ],
    as_json: opt.Json = False,
) -> None:
    """Read op package libraries: machine, Hexagon arch, QAIRT build, interface provider.

    Exit 1 if fleet cannot read one of the libraries.

    Examples:
      fleet bundle op-package build/*/libQnnLLaMAPackage.so
    """
    read: list[OpLibrary] = []
    failed: list[BundleError] = []
    for path in files:
        try:
            library = read_library(path, CPU, path.name)
        except BundleError as error:
            failed.append(error)
        else:
            read.append(replace(library, role=HTP) if library.machine == "hexagon" else library)
    if as_json:
        libraries = [to_plain(library) | {"kind": library.kind} for library in read]
        output.emit_json({"libraries": libraries, "errors": failed})
    else:
        _show_libraries(read)
        for problem in failed:
            output.show_error(problem)
    if failed:
        raise typer.Exit(1)


def _show_libraries(read: list[OpLibrary]) -> None:
    columns = ("file", "playbook key", "machine", "system", "QAIRT build", "provider", "size")
    rows = [
        (
            library.file.source,
            f"{library.role.lower()}:",
            library.kind,
            "DSP" if library.role == HTP else library.system,
            ", ".join(library.builds) or None,
            ", ".join(library.providers) or "none exported",
            human_bytes(library.file.size),
        )
        for library in read
    ]
    if rows:
        output.table("Op package libraries", columns, rows, ("provider", "system", "machine"))
        output.note(
            "next: add these libraries under `op_packages:` in the playbook (docs/op-packages.md)"
        )


def _show(bundle: Bundle) -> None:
    output.table(
        f"{bundle.name} ({bundle.kind})",
        ("context binary", "QAIRT build", "SoC", "arch", "VTCM", "graphs", "size", "read by"),
        [_context_row(item) for item in bundle.contexts],
        ("read by", "VTCM", "graphs", "size", "arch", "SoC"),
    )
    genie: list[tuple[str, object]] = [("configuration", bundle.config_name)]
    genie += [(f"backend {engine.role}".strip(), engine.backend) for engine in bundle.engines] or [
        ("backend", bundle.backend)
    ]
    genie.append(("context size", bundle.context_size))
    rows: list[tuple[str, object]] = [
        *(genie if bundle.kind == "genie" else ()),
        ("QAIRT", f"{bundle.qairt} (from {bundle.qairt_source})" if bundle.qairt else None),
        ("to send", f"{len(bundle.files)} files, {human_bytes(bundle.size)}"),
        ("hashes", f"compared with {bundle.checked_by}" if bundle.checked_by else "not compared"),
    ]
    output.table("Bundle", ("", ""), rows)
    for text in bundle.problems:
        output.note(f"problem: {text}")
    for text in bundle.warnings:
        output.note(f"note: {text}")
    if any(item.read_by == "markers" for item in bundle.contexts):
        output.note(
            "note: fleet cannot check for truncated context binaries without libQnnSystem; to "
            f"get this library: fleet runtime fetch --target {TARGET}"
        )
    if bundle.usable:
        output.note("next: fleet plan -i INVENTORY PLAYBOOK, with `bundle:` set to this folder")
    else:
        output.note(
            "next: copy or export the missing and damaged files again, then run this command again"
        )


def _context_row(item: ContextBinary) -> tuple[object, ...]:
    soc = item.soc_type or "unknown"
    return (
        item.name,
        item.build_id,
        f"{soc} ({item.soc_model})" if item.soc_model else soc,
        item.hexagon_arch,
        f"{item.vtcm_mb} MB" if item.vtcm_mb else None,
        len(item.graphs) or None,
        human_bytes(item.size),
        item.read_by,
    )


app.command("wrap-ep")(bundle_ep.wrap_ep)
app.command("pull")(bundle_pull.pull)
