"""ONNX wrappers for context binaries: one EPContext node for each graph, next to the binary."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

from fleet.bundles.ep.graphs import Graph, GraphFile, Tensor
from fleet.bundles.ep.onnxlib import onnx_package
from fleet.model.errors import BundleError, reason

if TYPE_CHECKING:  # an optional package
    from onnx import ValueInfoProto

DOMAIN = "com.microsoft"
PROVIDER = "QNNExecutionProvider"
COMPATIBILITY = f"ep_compatibility_info.{PROVIDER}"
IR_VERSION = 10  # read by every onnxruntime that has a QNN provider as a package (1.22 and later)
OPSET = 21
_UNFIT = re.compile(r"[^A-Za-z0-9._-]+")


@dataclass(frozen=True)
class Wrapper:
    """A wrapper that was written to `path`."""

    path: Path
    file: GraphFile
    graph: Graph


def wrapper_names(file: GraphFile) -> dict[str, Graph]:
    """Return the graphs by the file names of their wrappers.

    The name is `<stem>.onnx` for a binary with one graph, and `<graph>.onnx` for several graphs. AI
    Hub also names the wrappers of its parts after the graphs. Raises BundleError if two graphs
    would get the same name.
    """
    if len(file.graphs) == 1:
        return {f"{file.path.stem}.onnx": file.graphs[0]}
    wrappers: dict[str, Graph] = {}
    for graph in file.graphs:
        name = f"{_UNFIT.sub('_', graph.name).strip('._') or 'graph'}.onnx"
        if name.lower() in {other.lower() for other in wrappers}:
            raise BundleError(
                f"two graphs of {file.path} have names that lead to the same file {name}",
                hint="compile the model again with other graph names",
            )
        wrappers[name] = graph
    return wrappers


def wrapper(file: GraphFile, graph: Graph) -> bytes:
    """Return the ONNX model of a graph as bytes.

    Its inputs and outputs have the stored types of the graph. Raises BundleError if the package
    onnx is not installed.
    """
    onnx = onnx_package("to write a wrapper")
    helper = onnx.helper
    node = helper.make_node(
        "EPContext",
        [tensor.name for tensor in graph.inputs],
        [tensor.name for tensor in graph.outputs],
        name=graph.name,
        domain=DOMAIN,
        main_context=1,
        embed_mode=0,
        ep_cache_context=file.path.name,
        ep_sdk_version=file.build_id,
        partition_name=graph.name,
        source=PROVIDER,
    )
    model = helper.make_model(
        helper.make_graph(
            [node],
            graph.name,
            [_value(onnx, tensor) for tensor in graph.inputs],
            [_value(onnx, tensor) for tensor in graph.outputs],
        ),
        opset_imports=[helper.make_opsetid("", OPSET), helper.make_opsetid(DOMAIN, 1)],
        producer_name="fleet",
        ir_version=IR_VERSION,
    )
    if file.compatibility:
        helper.set_model_props(model, {COMPATIBILITY: file.compatibility})
    return bytes(model.SerializeToString(deterministic=True))


def write_wrappers(
    files: Sequence[GraphFile],
    folder: Path | None = None,
    more: Mapping[Path, bytes] | None = None,
) -> list[Wrapper]:
    """Write the wrappers next to their binaries, or into `folder`, and the files `more`.

    `folder` must then contain the binaries. An existing file with other content is not overwritten.
    Raises BundleError for such a file, for two wrappers of one name, for a folder without the
    binaries, and if a file cannot be written.
    """
    planned: dict[Path, bytes] = dict(more or {})
    made: list[Wrapper] = []
    for file in files:
        target = folder or file.path.parent
        if not (target / file.path.name).is_file():
            raise BundleError(
                f"the folder {target} does not contain {file.path.name}, but a context binary "
                "must be in the same folder as its ONNX file",
                hint=f"cp '{file.path}' '{target}', or run the command without --output",
            )
        for name, graph in wrapper_names(file).items():
            path = target / name
            if path in planned:
                raise BundleError(
                    f"two graphs would both be written to {path}",
                    hint="give each binary an --output folder of its own",
                )
            planned[path] = wrapper(file, graph)
            made.append(Wrapper(path, file, graph))
    try:
        for path, content in planned.items():
            if path.exists() and path.read_bytes() != content:
                raise BundleError(
                    f"the file {path} already exists with other content, and fleet does not "
                    "overwrite it",
                    hint=f"mv '{path}' '{path}.old' (then run the command again)",
                )
        for path, content in planned.items():
            _write(path, content)
    except OSError as error:
        raise BundleError(
            f"cannot write the ONNX files: {reason(error)}",
            hint="name a folder that you can write to: --output FOLDER",
        ) from error
    return made


def _write(path: Path, content: bytes) -> None:
    part = path.with_name(f".{path.name}.{os.getpid()}.part")
    part.write_bytes(content)
    part.replace(path)


def _value(onnx: ModuleType, tensor: Tensor) -> ValueInfoProto:
    kind = getattr(onnx.TensorProto, tensor.element)
    made: ValueInfoProto = onnx.helper.make_tensor_value_info(tensor.name, kind, list(tensor.shape))
    return made
