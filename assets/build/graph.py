"""Write the model as an ONNX graph with the tensor names and shapes that Genie looks for.

The graph sees `ar` new tokens (1 for a token generator) and the keys and values of the
`context - ar` tokens before them, and gives back the keys and values of the new ones.
"""

from collections.abc import Mapping

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper
from shape import Shape


class GraphWriter:
    """Collect nodes and constants of one graph."""

    def __init__(self, shape: Shape, weights: Mapping[str, np.ndarray], ar: int) -> None:
        self.shape, self.weights, self.ar = shape, weights, ar
        self.nodes: list[onnx.NodeProto] = []
        self.constants: dict[str, onnx.TensorProto] = {}

    def constant(self, name: str, value: np.ndarray) -> str:
        """Keep a constant and give its name."""
        self.constants[name] = numpy_helper.from_array(value, name)
        return name

    def ints(self, *values: int) -> str:
        """Keep a list of integers, such as a shape."""
        return self.constant("ints_" + "_".join(map(str, values)), np.array(values, np.int64))

    def weight(self, name: str) -> str:
        """Keep a trained weight."""
        return self.constant(name, np.ascontiguousarray(self.weights[name], np.float32))

    def node(self, kind: str, *inputs: str, out: str = "", **attributes: object) -> str:
        """Add a node with one output and give the output's name."""
        out = out or f"{kind.lower()}_{len(self.nodes)}"
        self.nodes.append(helper.make_node(kind, list(inputs), [out], name=out, **attributes))
        return out

    def norm(self, x: str, name: str) -> str:
        """Normalise the last axis."""
        scale, bias = self.weight(f"{name}_scale"), self.weight(f"{name}_bias")
        return self.node("LayerNormalization", x, scale, bias, axis=-1, epsilon=1e-5)

    def matmul(self, x: str, name: str, out: str = "") -> str:
        """Multiply with a trained matrix."""
        return self.node("MatMul", x, self.weight(name), out=out)

    def heads(self, x: str, out: str = "", split: str = "") -> str:
        """(1, ar, width) to (heads, 1, ar, head)."""
        s = self.shape
        split = self.node("Reshape", x, self.ints(1, self.ar, s.heads, s.head), out=split)
        return self.node("Transpose", split, out=out, perm=[2, 0, 1, 3])

    def rotate(self, x: str, out: str = "") -> str:
        """Turn both halves of a head by the angles that Genie feeds."""
        half, head = self.shape.half, self.shape.head
        cos, sin = "position_ids_cos", "position_ids_sin"
        a = self.node("Slice", x, self.ints(0), self.ints(half), self.ints(3))
        b = self.node("Slice", x, self.ints(half), self.ints(head), self.ints(3))
        first = self.node("Sub", self.node("Mul", a, cos), self.node("Mul", b, sin))
        second = self.node("Add", self.node("Mul", b, cos), self.node("Mul", a, sin))
        return self.node("Concat", first, second, out=out, axis=3)

    def attention(self, x: str, layer: int) -> str:
        """Look at the tokens before and at the new ones; the cache takes the new ones."""
        s = self.shape
        q = self.rotate(self.heads(self.matmul(x, f"q{layer}")))
        k = self.rotate(self.heads(self.matmul(x, f"k{layer}")), out=f"key_{layer}_turned")
        k = self.node("Transpose", k, out=f"past_key_{layer}_out", perm=[0, 1, 3, 2])
        v = self.matmul(x, f"v{layer}", out=f"value_{layer}_flat")
        v = self.heads(v, out=f"past_value_{layer}_out", split=f"value_{layer}_split")
        keys = self.node("Concat", f"past_key_{layer}_in", k, axis=3)
        values = self.node("Concat", f"past_value_{layer}_in", v, axis=2)
        scale = self.constant("attention_scale", np.array(s.head**-0.5, np.float32))
        scores = self.node("Mul", self.node("MatMul", q, keys), scale)
        seen = self.node("Softmax", self.node("Add", scores, "attention_mask"), axis=3)
        y = self.node("Transpose", self.node("MatMul", seen, values), perm=[1, 2, 0, 3])
        y = self.node("Reshape", y, self.ints(1, self.ar, s.width))
        return self.matmul(y, f"o{layer}")

    def body(self) -> None:
        """Write the whole model."""
        x = self.node("Gather", self.weight("embedding"), "input_ids")
        for layer in range(self.shape.layers):
            x = self.node("Add", x, self.attention(self.norm(x, f"attention_norm{layer}"), layer))
            up = self.node("Relu", self.matmul(self.norm(x, f"mlp_norm{layer}"), f"up{layer}"))
            x = self.node("Add", x, self.matmul(up, f"down{layer}"))
        self.matmul(self.norm(x, "final_norm"), "logits_matrix", out="logits")


def float_inputs(shape: Shape, ar: int) -> dict[str, list[int]]:
    """Give names and shapes of the inputs other than `input_ids`."""
    past = shape.context - ar
    inputs = {
        "attention_mask": [1, 1, ar, shape.context],
        "position_ids_cos": [1, 1, ar, shape.half],
        "position_ids_sin": [1, 1, ar, shape.half],
    }
    for layer in range(shape.layers):
        inputs[f"past_key_{layer}_in"] = [shape.heads, 1, shape.head, past]
        inputs[f"past_value_{layer}_in"] = [shape.heads, 1, past, shape.head]
    return inputs


def _outputs(shape: Shape, ar: int) -> dict[str, list[int]]:
    outputs = {"logits": [1, ar, shape.vocab]}
    for layer in range(shape.layers):
        outputs[f"past_key_{layer}_out"] = [shape.heads, 1, shape.head, ar]
        outputs[f"past_value_{layer}_out"] = [shape.heads, 1, ar, shape.head]
    return outputs


def build_graph(shape: Shape, weights: Mapping[str, np.ndarray], ar: int) -> onnx.ModelProto:
    """Give the checked float model."""
    writer = GraphWriter(shape, weights, ar)
    writer.body()
    floats = [
        helper.make_tensor_value_info(name, TensorProto.FLOAT, sizes)
        for name, sizes in float_inputs(shape, ar).items()
    ]
    outputs = [
        helper.make_tensor_value_info(name, TensorProto.FLOAT, sizes)
        for name, sizes in _outputs(shape, ar).items()
    ]
    ids = helper.make_tensor_value_info("input_ids", TensorProto.INT32, [1, ar])
    graph = helper.make_graph(
        writer.nodes,
        f"ar{ar}_cl{shape.context}_1_of_1",
        [ids, *floats],
        outputs,
        list(writer.constants.values()),
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
    onnx.checker.check_model(model)
    return model
