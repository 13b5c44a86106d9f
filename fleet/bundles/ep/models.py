"""ONNX models of a bundle: which context binaries and other files they name.

EPContext is described in onnxruntime.ai/docs/execution-providers/EP-Context-Design.html.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from types import ModuleType
from typing import TYPE_CHECKING, Any

from fleet.bundles.ep.onnxlib import onnx_package
from fleet.bundles.ep.wrapping import COMPATIBILITY, DOMAIN
from fleet.data import load
from fleet.model.errors import BundleError

if TYPE_CHECKING:  # an optional package
    from collections.abc import Iterable

    from onnx import GraphProto, NodeProto, ValueInfoProto
if TYPE_CHECKING:
    from onnx import ModelProto, NodeProto, ValueInfoProto


# What ONNX Runtime's QNN provider does not take of a model, told before a byte is sent.
#
# A session of fleet has no fallback to the CPU, so one node that QNN does not take ends it. Nodes
# that onnxruntime computes itself while it loads (constants, shapes) and operators that are
# functions
# of others are left out: nothing is claimed of them.

FREE, OPERATOR, TYPE, OPSET = "onnx-free-dimension", "onnx-operator", "onnx-type", "onnx-opset"
_OWN_DOMAINS = ("", "ai.onnx", "com.microsoft", "com.ms.internal.nhwc")
_QUANTISE = "quantise it statically: onnxruntime.quantization.quantize(model, out, qnn_config)"


@dataclass(frozen=True)
class Obstacle:
    """One thing in a model that QNN does not take. `dimension` is its name if a playbook can
    give it a number.
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
        *(found for value in inputs for found in _free(value)),
        *(found for value in (*inputs, *model.graph.output) for found in _type(onnx, value)),
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
    """Which values of a graph are constant, and which nodes make and read each value."""

    constants: set[str]
    makers: dict[str, NodeProto] = field(default_factory=dict)
    readers: dict[str, list[NodeProto]] = field(default_factory=dict)

    def readers_of(self, node: NodeProto, kind: str) -> list[NodeProto]:
        """The nodes of one kind that read the first output of a node."""
        return [other for other in self.readers.get(node.output[0], []) if other.op_type == kind]


def _nodes(onnx: ModuleType, model: ModelProto) -> Iterator[Obstacle]:
    graph, table = model.graph, _table()
    seen = _Graph({tensor.name for tensor in graph.initializer})
    for node in graph.node:
        seen.makers.update(dict.fromkeys(node.output, node))
        for name in node.input:
            seen.readers.setdefault(name, []).append(node)
    ranks = _ranks(model)
    functions = {(function.domain, function.name) for function in model.functions}
    for node in graph.node:
        if all(name in seen.constants for name in node.input if name) and not _has_graph(node):
            seen.constants.update(node.output)
        elif (node.domain, node.op_type) in functions:
            continue
        elif reason := _refused(onnx, node, seen, table):
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
    onnx: ModuleType, node: NodeProto, seen: _Graph, table: Mapping[str, Any]
) -> tuple[str, str, str] | None:
    """Return what is wrong with a node, what QNN wants, and the cure; None if nothing is known."""
    kind, ours = node.op_type, "an operator that QNN has"
    if node.domain not in _OWN_DOMAINS:
        cure = "export it again without this operator, or use an op package with QAIRT's own tools"
        return f"its domain {node.domain} is not ONNX Runtime's", ours, cure
    if kind in table["integer"]:
        if _is_dynamic_pattern(node, seen):
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
    """True if ONNX defines the operator by others, which onnxruntime may put in its place."""
    try:
        schema = onnx.defs.get_schema(node.op_type, domain=node.domain.replace("ai.onnx", ""))
    except onnx.defs.SchemaError:
        return node.domain == "com.microsoft"  # unknown here, so nothing is claimed
    return bool(schema.has_function or schema.has_context_dependent_function)


def _is_dynamic_pattern(node: NodeProto, seen: _Graph) -> bool:
    """True in DynamicQuantizeLinear → MatMulInteger → Cast → Mul by the product of the scales."""
    if node.op_type == "DynamicQuantizeLinear":
        readers = seen.readers.get(node.output[0], [])
        return bool(readers) and all(_is_dynamic_pattern(reader, seen) for reader in readers)
    muls = [
        mul
        for cast in seen.readers_of(node, "Cast")
        for mul in seen.readers_of(cast, "Mul")
        if node.op_type == "MatMulInteger"
    ]
    makers = [seen.makers.get(name) for mul in muls for name in mul.input]
    return any(maker is not None and maker.op_type == "Mul" for maker in makers)


def _ranks(model: ModelProto) -> dict[str, int]:
    values = (*model.graph.input, *model.graph.output, *model.graph.value_info)
    return {value.name: len(value.type.tensor_type.shape.dim) for value in values}


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
