"""`fleet bundle wrap-ep`."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Annotated

import typer

from fleet.bundles.ep.genai import surroundings
from fleet.bundles.ep.graphs import read_graphs
from fleet.bundles.ep.wrapping import Wrapper, write_wrappers
from fleet.bundles.system_library import TARGET, system_library
from fleet.cli import options as opt
from fleet.cli import output
from fleet.model.errors import BundleError
from fleet.model.plain import to_plain
from fleet.runtimes.store import RuntimeStore


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
    _show(written, more)


def _show(written: Sequence[Wrapper], more: Iterable[Path]) -> None:
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
