"""What ONNX Runtime's QNN provider does not take of a model, told before a byte is sent.

A session of fleet has no fallback to the CPU, so one node that QNN does not take ends it. Nodes
that onnxruntime computes itself while it loads (constants, shapes) and operators that are functions
of others are left out: nothing is claimed of them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from types import ModuleType
from typing import TYPE_CHECKING, Any

from fleet.data import load

if TYPE_CHECKING:  # an optional package
    from onnx import ModelProto, NodeProto, ValueInfoProto

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
