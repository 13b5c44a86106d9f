"""ONNX models of a bundle, with the context binaries and other files that they name.

EPContext is described in onnxruntime.ai/docs/execution-providers/EP-Context-Design.html.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from types import ModuleType
from typing import TYPE_CHECKING, Any

from fleet.bundles.ep.onnxlib import onnx_package
from fleet.bundles.ep.wrapping import COMPATIBILITY, DOMAIN
from fleet.data import load
from fleet.model.errors import BundleError

if TYPE_CHECKING:  # an optional package
    from onnx import GraphProto, ModelProto, NodeProto, ValueInfoProto


# Obstacles: parts of a model that ONNX Runtime's QNN provider does not accept. They are reported
# before fleet sends any data.
#
# A session of fleet has no fallback to the CPU, so a single node that QNN does not accept ends the
# session. Nodes that onnxruntime computes itself while it loads (constants, shapes) and operators
# that are defined by other operators are not judged.

FREE, OPERATOR, TYPE, OPSET = "onnx-free-dimension", "onnx-operator", "onnx-type", "onnx-opset"
_OWN_DOMAINS = ("", "ai.onnx", "com.microsoft", "com.ms.internal.nhwc")
_QUANTISE = "quantise it statically: onnxruntime.quantization.quantize(model, out, qnn_config)"


@dataclass(frozen=True)
class Obstacle:
    """A part of a model that QNN does not accept.

    `dimension` is the name of a free dimension, to which a playbook can give a number; ""
    otherwise.
    """

    rule: str
    message: str
    have: str
    need: str
    cure: str
    dimension: str = ""


def obstacles(onnx: ModuleType, model: ModelProto) -> tuple[Obstacle, ...]:
    """Return all obstacles of a model, in the order of its inputs and nodes."""
    weights = {tensor.name for tensor in model.graph.initializer}
    inputs = [value for value in model.graph.input if value.name not in weights]
    return (
        *_opset(model),
        *(item for value in inputs for item in _free(value)),
        *(item for value in (*inputs, *model.graph.output) for item in _type(onnx, value)),
        *_nodes(onnx, model),
    )


def _table() -> Mapping[str, Any]:
    return load("qnn_operators")


def _opset(model: ModelProto) -> Iterator[Obstacle]:
    newest = int(_table()["opset"])
    for entry in model.opset_import:
        if entry.domain in ("", "ai.onnx") and entry.version > newest:
            yield Obstacle(
                OPSET,
                f"uses the ONNX opset {entry.version}, but onnxruntime reads at most {newest}",
                f"opset {entry.version}",
                f"opset {newest} or older",
                f"export it again with opset_version={newest} or older",
            )


def _free(value: ValueInfoProto) -> Iterator[Obstacle]:
    for place, dim in enumerate(value.type.tensor_type.shape.dim):
        if dim.HasField("dim_value") and dim.dim_value > 0:
            continue
        name = dim.dim_param
        fixed = (
            f"write `run: options: dimensions: {{{name}: 1}}` with the number that you run"
            if name
            else "write the shape into the model: python -m onnxruntime.tools."
            f"make_dynamic_shape_fixed --input_name {value.name} --input_shape ... in.onnx out.onnx"
        )
        yield Obstacle(
            FREE,
            f"has the input {value.name} with the free dimension {place}"
            + (f" ({name})" if name else "")
            + ", but QNN compiles fixed shapes only",
            name or "no number",
            "a number",
            fixed,
            name,
        )


def _type(onnx: ModuleType, value: ValueInfoProto) -> Iterator[Obstacle]:
    kind = onnx.TensorProto.DataType.Name(value.type.tensor_type.elem_type).lower()
    if value.type.HasField("tensor_type") and kind not in _table()["types"]:
        yield Obstacle(
            TYPE,
            f"has the tensor {value.name} of the type {kind}, which QNN does not have",
            kind,
            "float, float16 or an integer type",
            "export it again in float32, or convert it: onnxconverter_common.float16",
        )


@dataclass
class _Graph:
    """The constant values of a graph, and the nodes that make and read each value."""

    constants: set[str]
    makers: dict[str, NodeProto] = field(default_factory=dict)
    readers: dict[str, list[NodeProto]] = field(default_factory=dict)

    def readers_of(self, node: NodeProto, kind: str) -> list[NodeProto]:
        """Return the nodes of one kind that read the first output of a node."""
        return [other for other in self.readers.get(node.output[0], []) if other.op_type == kind]


def _nodes(onnx: ModuleType, model: ModelProto) -> Iterator[Obstacle]:
    graph, table = model.graph, _table()
    relations = _Graph({tensor.name for tensor in graph.initializer})
    for node in graph.node:
        relations.makers.update(dict.fromkeys(node.output, node))
        for name in node.input:
            relations.readers.setdefault(name, []).append(node)
    ranks = _ranks(model)
    functions = {(function.domain, function.name) for function in model.functions}
    for node in graph.node:
        if all(name in relations.constants for name in node.input if name) and not _has_graph(node):
            relations.constants.update(node.output)
        elif (node.domain, node.op_type) in functions:
            continue
        elif reason := _refused(onnx, node, relations, table):
            yield _of_node(node, *reason)
        elif deep := [n for n in (*node.input, *node.output) if ranks.get(n, 0) > table["rank"]]:
            have = f"{deep[0]} has {ranks[deep[0]]} dimensions"
            cure = "reshape the tensors of this node before the export"
            yield _of_node(node, have, f"at most {table['rank']} dimensions", cure)


def _of_node(node: NodeProto, have: str, need: str, cure: str) -> Obstacle:
    name = node.name or f"that makes {', '.join(node.output)}"
    return Obstacle(
        OPERATOR,
        f"has the node {name} ({node.op_type}), which QNN does not take: {have}",
        f"{node.name or node.op_type}: {have}",
        need,
        cure,
    )


def _refused(
    onnx: ModuleType, node: NodeProto, relations: _Graph, table: Mapping[str, Any]
) -> tuple[str, str, str] | None:
    """Return the problem of a node, what QNN needs, and the cure.

    Returns None if no problem is known.
    """
    kind, ours = node.op_type, "an operator that QNN has"
    if node.domain not in _OWN_DOMAINS:
        cure = "export it again without this operator, or use an op package with QAIRT's own tools"
        return f"its domain {node.domain} is not ONNX Runtime's", ours, cure
    if kind in table["integer"]:
        if _is_dynamic_pattern(node, relations):
            return None
        return "the operator is one of dynamic quantisation", ours, _QUANTISE
    known = kind in table["operators"] or kind in table["fused"] or _is_function(onnx, node)
    if known and kind not in table["refused"]:
        return None
    if _has_graph(node):
        cure = "export it again without the branch or loop: torch.onnx.export of one fixed path"
        return "the operator has a graph of its own", ours, cure
    return "QNN has no such operator", ours, "export it again with operators that QNN has"


def _has_graph(node: NodeProto) -> bool:
    return any(attribute.HasField("g") or attribute.graphs for attribute in node.attribute)


def _is_function(onnx: ModuleType, node: NodeProto) -> bool:
    """Return True if ONNX defines the operator by others, which onnxruntime may use instead."""
    try:
        schema = onnx.defs.get_schema(node.op_type, domain=node.domain.replace("ai.onnx", ""))
    except onnx.defs.SchemaError:
        return node.domain == "com.microsoft"  # unknown here, so it is not judged
    return bool(schema.has_function or schema.has_context_dependent_function)


def _is_dynamic_pattern(node: NodeProto, relations: _Graph) -> bool:
    """Return True if the node is part of a known pattern of dynamic quantisation.

    The pattern is DynamicQuantizeLinear → MatMulInteger → Cast → Mul by the product of the scales.
    """
    if node.op_type == "DynamicQuantizeLinear":
        readers = relations.readers.get(node.output[0], [])
        return bool(readers) and all(_is_dynamic_pattern(reader, relations) for reader in readers)
    muls = [
        mul
        for cast in relations.readers_of(node, "Cast")
        for mul in relations.readers_of(cast, "Mul")
        if node.op_type == "MatMulInteger"
    ]
    makers = [relations.makers.get(name) for mul in muls for name in mul.input]
    return any(maker is not None and maker.op_type == "Mul" for maker in makers)


def _ranks(model: ModelProto) -> dict[str, int]:
    values = (*model.graph.input, *model.graph.output, *model.graph.value_info)
    return {value.name: len(value.type.tensor_type.shape.dim) for value in values}


SOURCES = {"qnn", "qnnexecutionprovider"}  # compared without case by onnxruntime-qnn
LARGEST = 2**31 - 1  # bytes, the limit of protobuf; larger models have their weights in other files


@dataclass(frozen=True)
class EpNode:
    """An EPContext node. `context` is a path relative to the model.

    `context` is "" if the context is embedded, or if another node of the model has it.
    """

    name: str
    context: str
    embedded: bool
    sdk_version: str
    partition: str
    source: str


@dataclass(frozen=True)
class OnnxModel:
    """The inputs, outputs, EPContext nodes and file names of an ONNX model.

    A dimension of a shape is a number, or the name of a free dimension. `others` counts the nodes
    that are not EPContext: the device compiles them, or runs them on its CPU. `external` are files
    with weights. `compatibility` is the record that `bundles.ep.compatibility` reads, "" without a
    record. `ir_version` is the version of the ONNX format. `obstacles` are the parts that QNN does
    not accept.
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
    """Read an ONNX model, without the weights in other files.

    Raises BundleError if the file is not an ONNX model or is larger than 2 GiB, and if it names a
    file outside its folder.
    """
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
    """Return the path of a file that a model names, relative to the bundle.

    Raises BundleError if the path leads out of the folder of the model.
    """
    path = PurePosixPath(named)
    if not named or path.is_absolute() or ".." in path.parts or "\\" in named:
        raise BundleError(
            f"{model}: {key} is '{named[:200]}'; ONNX Runtime accepts only relative "
            "paths inside the folder of the model, with / between folders",
            hint="put the binary beside the model, then wrap it again: fleet bundle wrap-ep FILE",
        )
    return str(PurePosixPath(model).parent / path)


def _ep_node(onnx: ModuleType, node: NodeProto, model: str) -> EpNode:
    attributes = {
        attribute.name: onnx.helper.get_attribute_value(attribute) for attribute in node.attribute
    }

    def text(key: str) -> str:
        value = attributes.get(key, b"")
        return value.decode("utf-8", "replace") if isinstance(value, bytes) else ""

    embedded = bool(attributes.get("embed_mode", 1))
    source = text("source")
    if source and source.lower() not in SOURCES:
        raise BundleError(
            f"{model} was compiled for another execution provider than QNN: its "
            f"EPContext node has source '{source[:80]}'",
            hint="compile the model with the QNN execution provider of ONNX Runtime",
        )
    main = bool(attributes.get("main_context", 1))
    context = "" if embedded or not main else text("ep_cache_context")
    if main and not embedded:
        beside(model, context, "ep_cache_context")
    return EpNode(
        node.name, context, embedded, text("ep_sdk_version"), text("partition_name"), source
    )


def _values(
    onnx: ModuleType, values: Iterable[ValueInfoProto]
) -> dict[str, tuple[str, tuple[int | str, ...]]]:
    rows = {}
    for value in values:
        kind = value.type.tensor_type
        shape = tuple(
            int(dim.dim_value) if dim.HasField("dim_value") else str(dim.dim_param)
            for dim in kind.shape.dim
        )
        rows[value.name] = (onnx.TensorProto.DataType.Name(kind.elem_type).lower(), shape)
    return rows


def _external(onnx: ModuleType, graph: GraphProto, model: str) -> tuple[str, ...]:
    names: list[str] = []
    for tensor in graph.initializer:
        if tensor.data_location == onnx.TensorProto.EXTERNAL:
            for pair in tensor.external_data:
                if pair.key == "location" and pair.value not in names:
                    beside(model, pair.value, "external_data")
                    names.append(pair.value)
    return tuple(names)
