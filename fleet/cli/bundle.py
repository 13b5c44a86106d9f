"""`fleet bundle`: inspect a bundle folder, download one from AI Hub, make ONNX wrappers."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from fleet.bundles.aihub.pull import Pulled
from fleet.bundles.aihub.pull import pull as pull_model
from fleet.bundles.chips import NamedChip, named_chips
from fleet.bundles.ep.genai import surroundings
from fleet.bundles.ep.graphs import read_graphs
from fleet.bundles.ep.wrapping import Wrapper, write_wrappers
from fleet.bundles.genie import has_genie_configs
from fleet.bundles.inspect import guessed, inspect_bundle
from fleet.bundles.op_packages import read_library
from fleet.bundles.system_library import TARGET, system_library
from fleet.cli import options as opt
from fleet.cli import output
from fleet.cli.options import App
from fleet.model.bundle import KINDS, Bundle, ContextBinary
from fleet.model.errors import BundleError, InputError
from fleet.model.files import human_bytes
from fleet.model.op_package import CPU, HTP, OpLibrary
from fleet.model.plain import to_plain
from fleet.runners.rehearsal import Rehearsal, rehearse
from fleet.runtimes.store import RuntimeStore

app = App(no_args_is_help=True, help="Inspect bundles (compiled models), or get them from AI Hub.")


@app.command()
def inspect(
    folder: Annotated[
        Path, typer.Argument(metavar="DIR", help="A bundle folder, or its Genie configuration.")
    ],
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
    folder, config = folder.expanduser(), None
    if folder.is_file():
        folder, config = _of_file(folder)
    library, kind = system_library(RuntimeStore()), kind or guessed(folder)
    bundle = inspect_bundle(folder, library, hashes=not no_hash, kind=kind, config=config)
    start, chips = rehearse(bundle), named_chips(bundle)
    usable = bundle.usable and (start is None or start.possible)
    if as_json:
        more = {"usable": usable, "start": start, "chips": chips}
        output.emit_json({**to_plain(bundle), **more})
    else:
        _show(bundle, start, chips, usable=usable)
    if not usable:
        raise typer.Exit(1)


def _of_file(file: Path) -> tuple[Path, str | None]:
    """Return the folder of a configuration, and its name if it is Genie's. Raises InputError."""
    if file.suffix != ".json":
        new, old = shlex.quote(f"{file.stem}-bundle"), shlex.quote(str(file))
        raise InputError(
            f"{file} is a file, and a bundle is a folder",
            hint=f"mkdir {new} && cp {old} {new} && fleet bundle inspect {new}",
        )
    return file.parent, file.name if has_genie_configs(file.parent, file.name) else None


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


def _show(bundle: Bundle, start: Rehearsal | None, chips: list[NamedChip], *, usable: bool) -> None:
    if bundle.contexts:
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
        ("kind", bundle.kind),
        ("runner", start.described if start else "exec, with a command of your own"),
        *(genie if bundle.kind == "genie" else ()),
        ("chip", "\n".join(map(_chip, chips)) or "unknown: no file names one"),
        *((item.name, item.about) for item in bundle.contents if item.about),
        ("QAIRT", f"{bundle.qairt} (from {bundle.qairt_source})" if bundle.qairt else None),
        ("to send", f"{len(bundle.files)} files, {human_bytes(bundle.size)}"),
        ("hashes", f"compared with {bundle.checked_by}" if bundle.checked_by else "not compared"),
    ]
    output.table("Bundle", ("", ""), rows)
    findings = start.findings if start else ()
    problems = [*bundle.problems]
    problems += [f"{item.message}; {item.cure}" for item in findings if item.refuses]
    notes = [f"{item.message}; {item.cure}" for item in findings if not item.refuses]
    notes += [f"before a run: {start.undecided}"] if start and start.undecided else []
    for text in problems:
        output.note(f"problem: {text}")
    for text in (*bundle.warnings, *notes):
        output.note(f"note: {text}")
    if any(item.read_by == "markers" for item in bundle.contexts):
        output.note(
            "note: fleet cannot check for truncated context binaries without libQnnSystem; to "
            f"get this library: fleet runtime fetch --target {TARGET}"
        )
    if usable:
        output.note("next: fleet plan -i INVENTORY PLAYBOOK, with `bundle:` set to this folder")
    else:
        output.note(
            "next: correct the problems above (copy or export missing and damaged files again), "
            "then run this command again"
        )


def _chip(item: NamedChip) -> str:
    known = " ".join(filter(None, [item.chip, item.arch]))
    return f"{known} (from {item.source})"


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


@app.command("wrap-ep")
def wrap_ep(
    files: Annotated[list[Path], typer.Argument(metavar="FILE...", help="Context binaries.")],
    folder: Annotated[
        Path | None,
        typer.Option(
            "--output",
            help="Folder to write the ONNX files to; the context binaries must be in it.",
        ),
    ] = None,
    genai: Annotated[
        bool,
        typer.Option(
            "--genai",
            help="Also make what onnxruntime-genai needs around a language model: "
            "genai_config.json, position-processor, quantizer, dequantizer.",
        ),
    ] = False,
    as_json: opt.Json = False,
) -> None:
    """Make ONNX wrappers (EPContext) for context binaries, for ONNX Runtime's QNN provider.

    One for each graph, beside its binary. Inputs and outputs keep the types of the graph.

    Examples:
      fleet bundle wrap-ep resnet50.bin
      fleet bundle wrap-ep --genai llama32/*.bin
    """
    library = system_library(RuntimeStore())
    if library is None:
        raise BundleError(
            "fleet reads context binaries with libQnnSystem, but the runtime store has no "
            "libQnnSystem for this computer (x86_64 Linux)",
            hint=f"fleet runtime fetch --target {TARGET}",
        )
    read = [read_graphs(path, library) for path in files]
    more = surroundings(read, folder) if genai else {}
    written = write_wrappers(read, folder, more)
    if as_json:
        wrappers = [
            {"wrapper": w.path, "context_binary": w.file.path}
            | to_plain(w.file)
            | to_plain(w.graph)
            for w in written
        ]
        output.emit_json({"wrappers": wrappers, "files": list(more)} if genai else wrappers)
        return
    _show_wrappers(written, more)


def _show_wrappers(written: Sequence[Wrapper], more: Iterable[Path]) -> None:
    columns = ("wrapper", "context binary", "QAIRT build", "inputs", "outputs")
    rows = [
        (
            wrapper.path.name,
            wrapper.file.path.name,
            wrapper.file.build_id,
            *(
                "\n".join(f"{t.name} {t.element.lower()} {_shape(t.shape)}" for t in tensors)
                for tensors in (wrapper.graph.inputs, wrapper.graph.outputs)
            ),
        )
        for wrapper in written
    ]
    output.table("Wrappers", columns, rows)
    for path in more:
        output.note(f"made: {path.name}")
    output.note(f"next: fleet bundle inspect --kind ort {written[0].path.parent}")


def _shape(shape: tuple[int, ...]) -> str:
    return "x".join(map(str, shape)) or "scalar"


@app.command()
def pull(
    reference: Annotated[
        str,
        typer.Argument(
            metavar="aihub:ID",
            help="Id of a compile job or model on Qualcomm AI Hub, such as aihub:jp4k9xzqg.",
        ),
    ],
    folder: Annotated[
        Path | None,
        typer.Option(
            "--output",
            help="New folder for the bundle. Default: a folder with the name of the model.",
        ),
    ] = None,
    wait: Annotated[
        float, typer.Option(min=0, help="Seconds to wait for a job that is still running.")
    ] = 0,
    as_json: opt.Json = False,
) -> None:
    """Download a model that Qualcomm AI Hub compiled, as a bundle folder. Needs npu-fleet\\[aihub].

    Examples:
      fleet bundle pull aihub:jabc123 --output resnet50
      fleet bundle pull aihub:jabc123 --wait 3600
    """
    done = pull_model(
        reference, folder, wait_seconds=wait, verbose=output.errors.is_terminal, say=output.note
    )
    if as_json:
        output.emit_json(
            {"folder": done.folder.absolute(), **done.record, "next": done.next_commands}
        )
    else:
        _show_pulled(done)


def _show_pulled(done: Pulled) -> None:
    record = done.record
    job = record["job"]
    chip = [record["chip"] or "unknown chip", record["hexagon_arch"] or "unknown arch"]
    if record["soc_model"]:
        chip.append(f"soc_model {record['soc_model']}")
    qairt = record["qairt"]
    rows: list[tuple[str, object]] = [
        ("job", f"{job['id']} ({job['kind']}), {job['finished'] or 'unknown date'}" if job else ""),
        ("model", f"{record['model']['id']} {record['model']['name']}"),
        ("runtime", record["runtime"]),
        ("device", record["device"]["name"] or None),
        ("chip", ", ".join(chip)),
        ("QAIRT", f"{qairt} (from {record['qairt_source']})" if qairt else None),
        ("variant", record["qairt_variant"] or "none named"),
        ("options", job["options"] if job else ""),
        ("kind of bundle", record["kind"]),
    ]
    output.table(str(done.folder), ("", ""), rows)
    files = [(f["name"], human_bytes(f["size"]), f["sha256"][:16]) for f in record["files"]]
    output.table("Files", ("file", "size", "SHA-256"), files)
    for text in done.notes:
        output.note(f"note: {text}")
    for command in done.next_commands:
        output.note(f"next: {command}")
