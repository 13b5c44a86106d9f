"""Quantise to 16-bit activations and 8-bit weights, with quantised inputs and outputs.

Genie hands the graph raw integers and reads raw integers back; it takes scale and offset of
each from the context binary. A past key or value must have the same scale going in and coming
out, because Genie copies it from one to the other.
"""

import math
import tempfile
from pathlib import Path

import numpy as np
import onnx
from graph import float_inputs
from onnx import TensorProto, helper, numpy_helper
from onnxruntime.quantization import CalibrationDataReader, QuantType, quantize
from onnxruntime.quantization.execution_providers.qnn import get_qnn_qdq_config
from replay import Feed, Replay
from shape import MASKED, Shape

_TOP = 65535


def _encoding(low: float, high: float) -> list[dict[str, object]]:
    scale = (high - low) / _TOP
    zero = math.ceil(-low / scale - 0.25)  # 32767.5 gives 32768, Genie's empty cache
    return [
        {
            "quant_type": QuantType.QUInt16,
            "scale": np.array(scale, np.float32),
            "zero_point": np.array(zero, np.uint16),
        }
    ]


def _overrides(shape: Shape, reach: dict[str, float]) -> dict[str, list[dict[str, object]]]:
    """Fix the encodings that Genie writes by itself: mask, positions and the cache."""
    fixed = {
        "attention_mask": _encoding(MASKED, 0.0),
        "position_ids_cos": _encoding(-1.001, 1.001),
        "position_ids_sin": _encoding(-1.001, 1.001),
    }
    before = {"key": ("turned",), "value": ("flat", "split")}
    for layer in range(shape.layers):
        for kind, steps in before.items():
            # A Reshape or Transpose hands on the encoding of what goes in, so an encoding for
            # what comes out alone would be passed over without a word.
            high = reach[f"past_{kind}_{layer}_out"] * 1.1
            for name in (f"past_{kind}_{layer}_in", f"past_{kind}_{layer}_out"):
                fixed[name] = _encoding(-high, high)
            for step in steps:
                fixed[f"{kind}_{layer}_{step}"] = _encoding(-high, high)
    return fixed


class _Reader(CalibrationDataReader):
    def __init__(self, feeds: list[Feed]) -> None:
        self._feeds = iter(feeds)

    def get_next(self) -> Feed | None:
        """Give the next feed, or None after the last."""
        return next(self._feeds, None)


def quantise(shape: Shape, model: onnx.ModelProto, sequences: list[list[int]]) -> onnx.ModelProto:
    """Calibrate on whole sequences of tokens and give the quantised model, float at its ends."""
    feeds: list[Feed] = []
    reach: dict[str, float] = {}
    replay = Replay(shape, model.SerializeToString())
    for tokens in sequences:
        for feed, made in replay.feeds(tokens):
            feeds.append(feed)
            for name, value in made.items():
                reach[name] = max(reach.get(name, 0.0), float(np.abs(value).max()))
    with tempfile.TemporaryDirectory() as folder:
        source, target = Path(folder) / "float.onnx", Path(folder) / "qdq.onnx"
        onnx.save(model, source)
        config = get_qnn_qdq_config(
            source,
            _Reader(feeds),
            activation_type=QuantType.QUInt16,
            weight_type=QuantType.QUInt8,
            init_overrides=_overrides(shape, reach),
        )
        quantize(source, target, config)
        return onnx.load(target)


def _users(graph: onnx.GraphProto) -> dict[str, list[onnx.NodeProto]]:
    users: dict[str, list[onnx.NodeProto]] = {}
    for node in graph.node:
        for name in node.input:
            users.setdefault(name, []).append(node)
    return users


def _rename_input(nodes: list[onnx.NodeProto], old: str, new: str) -> None:
    for node in nodes:
        for place, name in enumerate(node.input):
            if name == old:
                node.input[place] = new


def _open_input(graph: onnx.GraphProto, value: onnx.ValueInfoProto) -> None:
    """Drop the QuantizeLinear after an input; the input becomes 16-bit."""
    users = _users(graph)
    (quant,) = users[value.name]
    assert quant.op_type == "QuantizeLinear", value.name
    _rename_input(users[quant.output[0]], quant.output[0], value.name)
    value.type.tensor_type.elem_type = TensorProto.UINT16
    graph.node.remove(quant)


def _open_output(graph: onnx.GraphProto, value: onnx.ValueInfoProto) -> None:
    """Drop the DequantizeLinear before an output; other users get one of their own."""
    users = _users(graph)
    made = {name: node for node in graph.node for name in node.output}
    dequant = made[value.name]
    assert dequant.op_type == "DequantizeLinear", value.name
    quant = made[dequant.input[0]]
    raw = quant.output[0]
    others = users.get(value.name, [])
    if others:
        inner = f"{value.name}_float"
        graph.node.append(
            helper.make_node(
                "DequantizeLinear", [value.name, *dequant.input[1:]], [inner], name=inner
            )
        )
        _rename_input(others, value.name, inner)
    graph.node.remove(dequant)
    quant.output[0] = value.name
    _rename_input([node for node in users[raw] if node is not dequant], raw, value.name)
    value.type.tensor_type.elem_type = TensorProto.UINT16


def _sort(graph: onnx.GraphProto) -> None:
    known = {"", *(item.name for item in graph.initializer), *(i.name for i in graph.input)}
    waiting, ordered = list(graph.node), []
    while waiting:
        ready = [node for node in waiting if known.issuperset(node.input)]
        assert ready, "the graph has a cycle"
        for node in ready:
            known.update(node.output)
        ordered += ready
        waiting = [node for node in waiting if node not in ready]
    del graph.node[:]
    graph.node.extend(ordered)


def _end_encodings(graph: onnx.GraphProto) -> dict[str, tuple[float, int]]:
    """Give scale and zero point of every 16-bit input and output."""
    value = {item.name: numpy_helper.to_array(item) for item in graph.initializer}
    found: dict[str, tuple[float, int]] = {}
    for node in graph.node:
        if node.op_type in {"QuantizeLinear", "DequantizeLinear"}:
            end = node.output[0] if node.op_type == "QuantizeLinear" else node.input[0]
            found[end] = (value[node.input[1]].item(), value[node.input[2]].item())
    return found


def _check_cache(shape: Shape, graph: onnx.GraphProto) -> None:
    encodings = _end_encodings(graph)
    for layer in range(shape.layers):
        for kind in ("key", "value"):
            name = f"past_{kind}_{layer}"
            into, out = encodings[f"{name}_in"], encodings[f"{name}_out"]
            assert into == out, f"{name}: {into} going in, {out} coming out"


def open_ends(shape: Shape, model: onnx.ModelProto, ar: int) -> onnx.ModelProto:
    """Give a copy of a quantised model whose inputs and outputs are 16-bit integers."""
    result = onnx.ModelProto()
    result.CopyFrom(model)
    graph = result.graph
    for value in graph.input:
        if value.name in float_inputs(shape, ar):
            _open_input(graph, value)
    for value in graph.output:
        _open_output(graph, value)
    _sort(graph)
    _check_cache(shape, graph)
    onnx.checker.check_model(result)
    return result
