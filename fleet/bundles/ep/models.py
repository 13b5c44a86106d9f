"""ONNX models of a bundle: which context binaries and other files they name.

EPContext is described in onnxruntime.ai/docs/execution-providers/EP-Context-Design.html.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from types import ModuleType
from typing import TYPE_CHECKING

from fleet.bundles.ep.onnxlib import onnx_package
from fleet.bundles.ep.operators import Obstacle, obstacles
from fleet.bundles.ep.wrapping import COMPATIBILITY, DOMAIN
from fleet.model.errors import BundleError

if TYPE_CHECKING:  # an optional package
    from collections.abc import Iterable

    from onnx import GraphProto, NodeProto, ValueInfoProto

SOURCES = {"qnn", "qnnexecutionprovider"}  # compared without case by onnxruntime-qnn
LARGEST = 2**31 - 1  # bytes: protobuf ends there; larger models have their weights outside


@dataclass(frozen=True)
class EpNode:
    """One EPContext node. `context` is relative to the model; "" where it is embedded."""

    name: str
    context: str
    embedded: bool
    sdk_version: str
    partition: str
    source: str


@dataclass(frozen=True)
class OnnxModel:
    """What a model says of itself. Shapes: a number, or the name of a free dimension.

    `others` counts nodes that are no EPContext: they are compiled on the device, or run on its
    CPU. `external` are files with weights. `compatibility` is the record that
    `bundles.ep.compatibility` reads, "" without one. `ir_version` is that of ONNX's format,
    `obstacles` what QNN does not take of it.
    """

    name: str
    inputs: dict[str, tuple[str, tuple[int | str, ...]]]
    outputs: dict[str, tuple[str, tuple[int | str, ...]]]
    nodes: tuple[EpNode, ...]
    others: int
    external: tuple[str, ...]
    compatibility: str
    ir_version: int
    obstacles: tuple[Obstacle, ...] = ()


def read_model(path: Path, name: str) -> OnnxModel:
    """Raises BundleError: no ONNX model, or a name in it that leads out of its folder."""
    onnx = onnx_package("to read ONNX models")
    if path.stat().st_size > LARGEST:
        raise BundleError(
            f"{name} is larger than 2 GiB, the limit of an ONNX file",
            hint="export it again with onnx.save(model, path, save_as_external_data=True)",
        )
    try:
        model = onnx.load(str(path), load_external_data=False)
        inputs = _values(onnx, model.graph.input)
        outputs = _values(onnx, model.graph.output)
    except Exception as error:
        raise BundleError(
            f"{name} is not an ONNX model, or is damaged: {str(error).splitlines()[0][:200]}",
            hint="export or copy it again",
        ) from error
    if not model.graph.node:
        raise BundleError(f"{name} is empty or not an ONNX model", hint="export or copy it again")
    nodes = tuple(
        _ep_node(onnx, node, name)
        for node in model.graph.node
        if node.op_type == "EPContext" and node.domain == DOMAIN
    )
    weights = {tensor.name for tensor in model.graph.initializer}
    return OnnxModel(
        name,
        {key: value for key, value in inputs.items() if key not in weights},
        outputs,
        nodes,
        len(model.graph.node) - len(nodes),
        _external(onnx, model.graph, name),
        next((entry.value for entry in model.metadata_props if entry.key == COMPATIBILITY), ""),
        model.ir_version,
        obstacles(onnx, model),
    )


def beside(model: str, named: str, key: str) -> str:
    """A file that a model names, relative to the bundle. Raises BundleError: it leads out."""
    path = PurePosixPath(named)
    if not named or path.is_absolute() or ".." in path.parts or "\\" in named:
        raise BundleError(
            f"{model}: {key} is '{named[:200]}'; ONNX Runtime accepts only relative "
            "paths inside the folder of the model, with / between folders",
            hint="put the binary beside the model, then wrap it again: fleet bundle wrap-ep FILE",
        )
    return str(PurePosixPath(model).parent / path)


def _ep_node(onnx: ModuleType, node: NodeProto, model: str) -> EpNode:
    found = {
        attribute.name: onnx.helper.get_attribute_value(attribute) for attribute in node.attribute
    }

    def text(key: str) -> str:
        value = found.get(key, b"")
        return value.decode("utf-8", "replace") if isinstance(value, bytes) else ""

    embedded = bool(found.get("embed_mode", 1))
    source = text("source")
    if source and source.lower() not in SOURCES:
        raise BundleError(
            f"{model} was compiled for another execution provider than QNN: its "
            f"EPContext node has source '{source[:80]}'",
            hint="compile the model with the QNN execution provider of ONNX Runtime",
        )
    main = bool(found.get("main_context", 1))
    context = "" if embedded or not main else text("ep_cache_context")
    if main and not embedded:
        beside(model, context, "ep_cache_context")
    return EpNode(
        node.name, context, embedded, text("ep_sdk_version"), text("partition_name"), source
    )


def _values(
    onnx: ModuleType, values: Iterable[ValueInfoProto]
) -> dict[str, tuple[str, tuple[int | str, ...]]]:
    found = {}
    for value in values:
        kind = value.type.tensor_type
        shape = tuple(
            int(dim.dim_value) if dim.HasField("dim_value") else str(dim.dim_param)
            for dim in kind.shape.dim
        )
        found[value.name] = (onnx.TensorProto.DataType.Name(kind.elem_type).lower(), shape)
    return found


def _external(onnx: ModuleType, graph: GraphProto, model: str) -> tuple[str, ...]:
    names: list[str] = []
    for tensor in graph.initializer:
        if tensor.data_location == onnx.TensorProto.EXTERNAL:
            for pair in tensor.external_data:
                if pair.key == "location" and pair.value not in names:
                    beside(model, pair.value, "external_data")
                    names.append(pair.value)
    return tuple(names)
