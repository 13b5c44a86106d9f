"""The first wrong node of a network: every node of an ONNX graph, on the device and here.

The device runs the deployed model with the tensors between its nodes as additional outputs. Each
node is then computed here again, from the inputs that the node had on the device. A node whose
output differs from this result is wrong by itself. A node that only passes on the error of its
inputs is not wrong. So the first wrong node is named even if the noise of quantisation grows from
node to node.

A tensor is read after its quantisation, because providers run DequantizeLinear, operator and
QuantizeLinear as one operation (onnxruntime, onnxruntime/core/optimizer/qdq_transformer). An output
between them would split this operation.

A node is wrong if its output differs from the expected output by more than `WRONG_STEPS` steps, or
if it has another shape. A step is one of 8 bits over the range of the encoding, or over the own
range of a float tensor. The reason is that the HTP computes products of 16-bit activations and
8-bit weights no finer. On the HTP emulator, nodes without a fault differ by at most 2 such steps
(benchmarks/verify_nodes.py).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from msgspec.structs import replace

from fleet.model.errors import SuiteError, reason
from fleet.model.extras import loaded
from fleet.model.suite import EQUAL_DB, NodeDifference, TensorLimits
from fleet.verify.tensors import Array, Reference, difference

WRONG_STEPS = 4.0
_STEPS = 255  # of a range
GROUP_BYTES = 256 << 20  # of the tensors that the device returns in one run
_QUANTISE, _DEQUANTISE = "QuantizeLinear", "DequantizeLinear"
_FUSED = {"Relu", "Clip"}  # providers fuse them with the preceding node
_UNSEEN = {"Shape", "Size", "ConstantOfShape", "Range"}  # not computed on the device
_LOOSE = TensorLimits(max_abs=math.inf)


@dataclass(frozen=True)
class Encoding:
    """The quantisation of one tensor. `axis` is the axis of scales by channel."""

    scale: Array
    zero_point: Array
    axis: int = 1

    def real(self, stored: Array) -> Array:
        """Return the real numbers for the stored integers."""
        shape = [1] * stored.ndim
        if self.scale.size > 1:
            shape[self.axis] = -1
        zero = self.zero_point.astype(np.float32).reshape(shape if self.scale.size > 1 else ())
        scale = self.scale.reshape(shape if self.scale.size > 1 else ())
        return (stored.astype(np.float32) - zero) * scale

    def rounded(self, numbers: Array) -> Array:
        """Return the numbers after quantisation and dequantisation.

        The encoding must have one scale for the whole tensor.
        """
        limits = np.iinfo(self.zero_point.dtype)
        stored = np.rint(numbers / self.scale) + self.zero_point
        return self.real(np.clip(stored, limits.min, limits.max)).astype(numbers.dtype)

    @property
    def step(self) -> float:
        """The size of a step of 8 bits over the range, or of the encoding if it has fewer bits."""
        limits = np.iinfo(self.zero_point.dtype)
        return float(self.scale.max()) * max(1.0, (limits.max - limits.min) / _STEPS)

    @property
    def text(self) -> str:
        """The encoding as a text, such as `uint8, scale 0.0123, zero 128`."""
        zero = f"zero {int(self.zero_point.flat[0])}" if self.zero_point.size == 1 else "by channel"
        return f"{self.zero_point.dtype}, scale {float(self.scale.max()):.4g}, {zero}"


@dataclass(frozen=True)
class NetworkNode:
    """A node whose output can be read.

    `value` is the output of the operator. `tensor` is the name under which the value is stored,
    quantised or not. `reads` are the values and the inputs of the network that the node uses.
    """

    name: str
    kind: str
    value: str
    tensor: str
    reads: tuple[str, ...]
    encoding: Encoding | None = None

    def real(self, stored: Array) -> Array:
        """Return the real numbers of the stored tensor."""
        return stored if self.encoding is None else self.encoding.real(stored)


GIVEN = "/given"


class Network:
    """An ONNX graph: its nodes in order, and variants with other inputs and outputs."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._onnx = loaded("onnx", "onnx", "comparing the nodes of a network")
        try:
            self._model = self._onnx.load(str(path), load_external_data=False)
        except Exception as error:  # protobuf and onnx have their own exceptions
            raise SuiteError(
                f"cannot read the ONNX model {path}: {reason(error)}",
                hint="name an ONNX file whose graph was not compiled",
            ) from error
        graph = self._model.graph
        self._constants = {item.name: item for item in graph.initializer}
        self._makers = {name: node for node in graph.node for name in node.output}
        self._users: dict[str, list[Any]] = {}
        for node in graph.node:
            for name in node.input:
                self._users.setdefault(name, []).append(node)
        self.inputs = [e.name for e in graph.input if e.name not in self._constants]

    @cached_property
    def nodes(self) -> tuple[NetworkNode, ...]:
        """The nodes whose output depends on an input of the network, in the order of the graph."""
        entries: dict[str, NetworkNode] = {}
        through: dict[str, tuple[str, ...]] = {name: (name,) for name in self.inputs}
        for node in self._ordered():
            reads = tuple(dict.fromkeys(v for i in node.input for v in through.get(i, ())))
            if not reads:
                continue
            for output in filter(None, node.output):
                entry = self._node_seen(node, output, reads)
                through[output] = reads if entry is None else (entry.value,)
                if entry is not None:
                    entries[output] = entry
        return tuple(entries.values())

    def taken(self, inputs: Mapping[str, Array]) -> dict[str, Array]:
        """Return the inputs as the first nodes get them: rounded if they are quantised."""
        values = dict(inputs)
        for name, value in inputs.items():
            encoding = self._encoding(name)
            if encoding is not None and encoding.scale.size == 1:
                values[name] = encoding.rounded(value)
        return values

    def _ordered(self) -> list[Any]:
        """Return the nodes so that each node follows the nodes whose outputs it reads."""
        ready = {*self.inputs, *self._constants, ""}
        left, done = list(self._model.graph.node), list[Any]()
        while left:
            now = [node for node in left if all(name in ready for name in node.input)]
            if not now:  # an input comes from an enclosing graph
                return [*done, *left]
            done += now
            ready.update(name for node in now for name in node.output)
            left = [node for node in left if not all(name in ready for name in node.output)]
        return done

    def _node_seen(self, node: Any, value: str, reads: tuple[str, ...]) -> NetworkNode | None:  # noqa: ANN401
        if node.op_type in {_QUANTISE, _DEQUANTISE, *_UNSEEN}:
            return None
        users = self._users.get(value, [])
        stored = next((user for user in users if user.op_type == _QUANTISE), None)
        fused = stored is None and len(users) == 1 and users[0].op_type in _FUSED
        if fused and self._encoding(users[0].output[0]) is not None:
            return None
        name = node.name or value
        if stored is None:
            return NetworkNode(name, node.op_type, value, value, reads)
        return NetworkNode(
            name, node.op_type, value, stored.output[0], reads, self._encoding(value)
        )

    def _encoding(self, value: str) -> Encoding | None:
        users = self._users.get(value, [])
        node = next((user for user in users if user.op_type == _QUANTISE), None)
        if node is None:
            return None
        scale = self._constant(node.input[1])
        zero = self._constant(node.input[2]) if len(node.input) > 2 else np.zeros((), np.uint8)
        if scale is None or zero is None:
            return None
        axis = next((a.i for a in node.attribute if a.name == "axis"), 1)
        return Encoding(scale.astype(np.float32), zero, axis)

    def _constant(self, name: str) -> Array | None:
        item = self._constants.get(name)
        if item is None:
            return None
        made: Array = self._onnx.numpy_helper.to_array(item, str(self.path.parent))
        return made

    def whole(self, nodes: Iterable[NetworkNode]) -> bytes:
        """Return the model as bytes, with the tensors of `nodes` as additional outputs."""
        model = self._onnx.ModelProto()
        model.CopyFrom(self._model)
        there = {end.name for end in model.graph.output}
        names = dict.fromkeys(node.tensor for node in nodes if node.tensor not in there)
        model.graph.output.extend(self._onnx.ValueInfoProto(name=name) for name in names)
        return bytes(model.SerializeToString())

    def apart(self, nodes: Sequence[NetworkNode], given: Mapping[str, Array]) -> bytes:
        """Return a model that computes each of `nodes` from the values `given`, by their names.

        A value that is not given is computed from the given values. The inputs of the model have
        the names of the values with the suffix `GIVEN`.
        """
        stored = {node.tensor: node.value for node in self.nodes if node.value in given}
        wanted, used = [node.tensor for node in nodes], set[str]()
        while wanted:
            name = wanted.pop()
            if name not in used and name in self._makers:
                maker = self._makers[name]
                used.update(maker.output)
                wanted += [source for source in maker.input if source not in stored]
        helper, model = self._onnx.helper, self._onnx.ModelProto()
        model.CopyFrom(self._model)
        graph = model.graph
        ends = {end.name: end for end in self._model.graph.input}
        for field in ("node", "input", "output", "value_info"):
            graph.ClearField(field)
        for node in self._ordered():
            if used.isdisjoint(node.output):
                continue
            sources = [stored[s] + GIVEN if s in stored else s for s in node.input]
            copy = graph.node.add()
            if node.op_type == _DEQUANTISE and node.input[0] in stored:
                copy.CopyFrom(helper.make_node("Identity", sources[:1], list(node.output)))
                continue
            copy.CopyFrom(node)
            copy.input[:] = sources
        reads = {name for node in graph.node for name in node.input}
        graph.input.extend(end for name, end in ends.items() if name in reads)
        for value, array in given.items():
            if value + GIVEN in reads:
                kind = helper.np_dtype_to_tensor_dtype(array.dtype)
                graph.input.append(helper.make_tensor_value_info(value + GIVEN, kind, array.shape))
        outputs = dict.fromkeys(node.tensor for node in nodes)
        graph.output.extend(self._onnx.ValueInfoProto(name=name) for name in outputs)
        return bytes(model.SerializeToString())


def groups(
    device: Network, reference: Network, inputs: Mapping[str, Array]
) -> tuple[tuple[str, ...], ...]:
    """Return the tensors to request from a device, in groups of `GROUP_BYTES`.

    The sizes are those of the reference. Raises SuiteError if the two networks share no tensor, and
    if the reference refuses the inputs.
    """
    pairs = _pairs(device, reference)
    here = Reference(reference.path, reference.whole([own for _, own in pairs]))
    sizes = {name: value.nbytes for name, value in here.outputs(inputs).items()}
    batches, room = list[list[str]](), 0
    for node, own in pairs:
        room -= sizes[own.tensor]
        if not batches or room < 0:
            batches, room = [*batches, []], GROUP_BYTES - sizes[own.tensor]
        batches[-1].append(node.tensor)
    return tuple(tuple(group) for group in batches)


def _pairs(device: Network, reference: Network) -> list[tuple[NetworkNode, NetworkNode]]:
    theirs = {node.value: node for node in reference.nodes}
    pairs = [(node, theirs[node.value]) for node in device.nodes if node.value in theirs]
    if not pairs:
        raise SuiteError(
            f"{reference.path.name} has no tensor with a name of {device.path.name}, so no node "
            "can be compared",
            hint="name the model before it was quantised, with the same names of tensors",
        )
    return pairs


def compare_nodes(
    device: Network,
    reference: Network,
    inputs: Mapping[str, Array],
    stored: Mapping[str, Array],
) -> tuple[NodeDifference, ...]:
    """Compare the tensors of a device (`stored`, by name) with a reference, node by node.

    Raises SuiteError if the two networks share no tensor, and if the reference refuses the inputs.
    """
    pairs = [pair for pair in _pairs(device, reference) if pair[0].tensor in stored]
    here = Reference(reference.path, reference.whole([own for _, own in pairs]))
    wanted = here.outputs(inputs)
    outputs = {node.value: node.real(stored[node.tensor]) for node, _ in pairs}
    right = {own.value: own.real(wanted[own.tensor]) for _, own in pairs}
    same = [outputs[node.value].shape == right[node.value].shape for node, _ in pairs]
    first = pairs[: same.index(False)] if False in same else pairs
    alone = _alone(reference, [own for _, own in first], outputs, device.taken(inputs))
    rows, errors = list[NodeDifference](), dict[str, float | None]()
    for node, own in pairs:
        known = [errors.get(name, EQUAL_DB) for name in node.reads]
        sure = [number for number in known if number is not None]
        before = min(sure, default=EQUAL_DB) if len(sure) == len(known) else None
        row = _row(
            (node, own), outputs[node.value], right[node.value], alone.get(node.value), before
        )
        errors[node.value] = row.after_db
        rows.append(row)
    return tuple(rows)


def _alone(
    reference: Network,
    nodes: Sequence[NetworkNode],
    actual: Mapping[str, Array],
    inputs: Mapping[str, Array],
) -> dict[str, Array]:
    """Return the output of each node for the inputs that the node had on the device."""
    given = {node.value: actual[node.value] for node in nodes}
    run = Reference(reference.path, reference.apart(nodes, given))
    fed = {**inputs, **{value + GIVEN: array for value, array in given.items()}}
    made = run.outputs({name: fed[name] for name in run.inputs})
    return {node.value: node.real(made[node.tensor]) for node in nodes}


def _row(
    pair: tuple[NetworkNode, NetworkNode],
    actual: Array,
    right: Array,
    alone: Array | None,
    before: float | None,
) -> NodeDifference:
    node, own = pair
    shapes = [list(actual.shape), list(right.shape)]
    row = NodeDifference(
        node.name, node.kind, node.value, tuple(actual.shape),
        node.encoding.text if node.encoding else str(actual.dtype),
        before_db=before,
    )  # fmt: skip
    if own.encoding and node.encoding and own.encoding.text != node.encoding.text:
        row = replace(row, reference_encoding=own.encoding.text)
    if actual.shape != right.shape:
        return replace(row, fault=f"the shape is {shapes[0]}, in the reference {shapes[1]}")
    if not np.isfinite(actual).all() and np.isfinite(right).all():
        return replace(row, fault="the output has values that are NaN or infinite")
    after = difference(node.value, right, actual, _LOOSE)
    row = replace(row, after_db=_capped(after.sqnr_db))
    if alone is None:  # after a node of another shape
        return row
    by_itself = difference(node.value, alone, actual, _LOOSE)
    steps = [each.encoding.step for each in (node, own) if each.encoding is not None]
    step = max(steps, default=by_itself.span / _STEPS)
    size = by_itself.max_abs / step if step else 0.0
    row = replace(row, own_db=_capped(by_itself.sqnr_db), own_steps=round(size, 3))
    if size > WRONG_STEPS or (by_itself.max_abs and not step):
        return replace(row, fault=f"the output differs by up to {size:.3g} steps of 8 "
                       f"bits from what its inputs give")  # fmt: skip
    return row


def _capped(decibel: float) -> float:
    return round(max(-EQUAL_DB, min(EQUAL_DB, decibel)), 2)
