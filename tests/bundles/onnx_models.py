"""ONNX models as exporters leave them: twelve that QNN takes, eighteen that it does not.

`python -m tests.bundles.onnx_models FOLDER` writes them. `REFUSED` says by which rule each of the
eighteen is refused, and a word of the message: the node, the input or the dimension.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import ModelProto, NodeProto, TensorProto, helper, numpy_helper

F, F16, F64, I8, U8, I32, I64 = (
    TensorProto.FLOAT,
    TensorProto.FLOAT16,
    TensorProto.DOUBLE,
    TensorProto.INT8,
    TensorProto.UINT8,
    TensorProto.INT32,
    TensorProto.INT64,
)
Node = tuple[str, str, str] | tuple[str, str, str, dict[str, Any]]
RNG = np.random.default_rng(45)
WEIGHT = (RNG.random((8, 8), np.float32) - 0.5).astype(np.float32)


def node(row: Node) -> NodeProto:
    kind, inputs, outputs, *more = row
    domain, _, kind = kind.rpartition(":")
    name = f"the_{kind}_of_{outputs.split(' ')[0]}"
    return helper.make_node(
        kind, inputs.split(" "), outputs.split(" "), name=name, domain=domain, **dict(*more)
    )


def model(
    nodes: Sequence[Node],
    x: tuple[int, Sequence[Any]] = (F, (1, 8)),
    y: tuple[int, Sequence[Any]] = (F, (1, 8)),
    *,
    ir: int = 10,
    opset: int = 17,
    **weights: Any,
) -> ModelProto:
    domains = {row[0].rpartition(":")[0] for row in nodes} - {""}
    graph = helper.make_graph(
        [node(row) for row in nodes],
        "g",
        [helper.make_tensor_value_info("x", *x)],
        [helper.make_tensor_value_info("y", *y)],
        [numpy_helper.from_array(value, name) for name, value in weights.items()],
    )
    opsets = [helper.make_opsetid("", opset), *(helper.make_opsetid(one, 1) for one in domains)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=ir)


def _pair(name: str, into: str, scale: str = "s", zero: str = "z") -> list[Node]:
    return [
        ("QuantizeLinear", f"{name} {scale} {zero}", f"{into}_q"),
        ("DequantizeLinear", f"{into}_q {scale} {zero}", into),
    ]


SCALE: dict[str, Any] = {"s": np.array(0.02, np.float32), "z": np.array(128, np.uint8)}
STEP: dict[str, Any] = {"w": WEIGHT}
_INT: dict[str, Any] = {"wq": (WEIGHT * 100).astype(np.int8)}
SPLIT = {"n": np.array([-1, 8], np.int64)}


def _branch(value: float) -> Any:
    constant = numpy_helper.from_array(np.full((1, 8), value, np.float32), "c")
    made = helper.make_node("Constant", [], ["b"], value=constant)
    return helper.make_graph([made], "b", [], [helper.make_tensor_value_info("b", F, (1, 8))])


def _body() -> Any:
    names = (("i", TensorProto.INT64, ()), ("go", TensorProto.BOOL, ()), ("a", F, (1, 8)))
    values = [helper.make_tensor_value_info(*row) for row in names]
    nodes = [
        helper.make_node("Identity", ["go"], ["go_on"]),
        helper.make_node("Relu", ["a"], ["b"]),
    ]
    outs = (("go_on", TensorProto.BOOL, ()), ("b", F, (1, 8)))
    return helper.make_graph(
        nodes, "body", values, [helper.make_tensor_value_info(*row) for row in outs]
    )


QDQ = [*_pair("x", "a"), *_pair("w", "v"), ("MatMul", "a v", "m"), *_pair("m", "y")]
CONV: dict[str, Any] = {"k": RNG.random((4, 1, 3, 3), np.float32)}
RIGHT: dict[str, Callable[[], ModelProto]] = {
    "matmul-float": lambda: model([("MatMul", "x w", "y")], **STEP),
    "matmul-qdq": lambda: model(QDQ, **STEP, **SCALE),
    "dynamic-quantised": lambda: model(
        [
            ("DynamicQuantizeLinear", "x", "q qs qz"),
            ("MatMulInteger", "q wq qz zi", "i"),
            ("Cast", "i", "f", {"to": F}),
            ("Mul", "qs ws", "fs"),
            ("Mul", "f fs", "y"),
        ],
        zi=np.array(0, np.int8),
        ws=np.array(0.01, np.float32),
        **_INT,
    ),
    "conv-float": lambda: model(
        [("Conv", "x k", "y", {"pads": [1, 1, 1, 1]})], (F, (1, 1, 8, 8)), (F, (1, 4, 8, 8)), **CONV
    ),
    "softmax": lambda: model([("Softmax", "x", "y", {"axis": -1})]),
    "layer-norm": lambda: model([("LayerNormalization", "x g", "y")], g=np.ones(8, np.float32)),
    "gather-ids": lambda: model([("Gather", "w x", "y")], (I64, (1, 4)), (F, (1, 4, 8)), **STEP),
    "shape-folded": lambda: model(
        [("Shape", "x", "n0"), ("Reshape", "x n0", "h"), ("Relu", "h", "y")]
    ),
    "gelu-by-erf": lambda: model(
        [
            ("Div", "x root", "d"),
            ("Erf", "d", "e"),
            ("Add", "e one", "a"),
            ("Mul", "x a", "m"),
            ("Mul", "m half", "y"),
        ],
        root=np.array(2**0.5, np.float32),
        one=np.array(1, np.float32),
        half=np.array(0.5, np.float32),
    ),
    "float16": lambda: model([("Relu", "x", "y")], (F16, (1, 8)), (F16, (1, 8))),
    "qlinear-matmul": lambda: model(
        [("QLinearMatMul", "x s z wq s zi s z", "y")],
        (U8, (1, 8)),
        (U8, (1, 8)),
        zi=np.array(0, np.int8),
        **SCALE,
        **_INT,
    ),
    "old-opset": lambda: model([("Relu", "x", "y")], opset=11, ir=6),
}
WRONG: dict[str, tuple[Callable[[], ModelProto], str, str]] = {
    "free-batch": (
        lambda: model([("Relu", "x", "y")], (F, ("batch", 8)), (F, ("batch", 8))),
        "onnx-free-dimension",
        "batch",
    ),
    "free-sequence": (
        lambda: model([("Relu", "x", "y")], (F, (1, "seq")), (F, (1, "seq"))),
        "onnx-free-dimension",
        "seq",
    ),
    "free-without-name": (
        lambda: model([("Relu", "x", "y")], (F, (None, 8)), (F, (None, 8))),
        "onnx-free-dimension",
        "dimension 0",
    ),
    "dynamic-quantised-otherwise": (
        lambda: model(
            [
                ("DynamicQuantizeLinear", "x", "q qs qz"),
                ("MatMulInteger", "q wq qz", "i"),
                ("Cast", "i", "f", {"to": F}),
                ("Mul", "f qs", "y"),
            ],
            **_INT,
        ),
        "onnx-operator",
        "the_DynamicQuantizeLinear",
    ),
    "matmul-integer": (
        lambda: model([("MatMulInteger", "x wq", "y")], (U8, (1, 8)), (I32, (1, 8)), **_INT),
        "onnx-operator",
        "the_MatMulInteger",
    ),
    "conv-integer": (
        lambda: model(
            [("ConvInteger", "x k", "y")],
            (U8, (1, 1, 8, 8)),
            (I32, (1, 4, 6, 6)),
            k=RNG.integers(0, 9, (4, 1, 3, 3)).astype(np.uint8),
        ),
        "onnx-operator",
        "the_ConvInteger",
    ),
    "trilu": (
        lambda: model([("Trilu", "x", "y")], (F, (8, 8)), (F, (8, 8))),
        "onnx-operator",
        "the_Trilu",
    ),
    "if": (
        lambda: model(
            [
                ("ReduceSum", "x", "r", {"keepdims": 0}),
                ("Cast", "r", "c", {"to": TensorProto.BOOL}),
                ("If", "c", "y", {"then_branch": _branch(1), "else_branch": _branch(2)}),
            ]
        ),
        "onnx-operator",
        "the_If",
    ),
    "loop": (
        lambda: model(
            [("Loop", "n go x", "y", {"body": _body()})],
            n=np.array(3, np.int64),
            go=np.array(True),
        ),
        "onnx-operator",
        "the_Loop",
    ),
    "double": (
        lambda: model([("Relu", "x", "y")], (F64, (1, 8)), (F64, (1, 8))),
        "onnx-type",
        "double",
    ),
    "bfloat16": (
        lambda: model(
            [("Identity", "x", "y")], (TensorProto.BFLOAT16, (1, 8)), (TensorProto.BFLOAT16, (1, 8))
        ),
        "onnx-type",
        "bfloat16",
    ),
    "string": (
        lambda: model(
            [("Identity", "x", "y")], (TensorProto.STRING, (1, 8)), (TensorProto.STRING, (1, 8))
        ),
        "onnx-type",
        "string",
    ),
    "unknown-domain": (
        lambda: model([("my.ops:Sparkle", "x", "y")]),
        "onnx-operator",
        "my.ops",
    ),
    "opset-of-the-future": (
        lambda: model([("Relu", "x", "y")], opset=99),
        "onnx-opset",
        "99",
    ),
    "ir-of-the-future": (lambda: model([("Relu", "x", "y")], ir=99), "onnx-ir-too-new", "99"),
    "unique": (
        lambda: model([("Unique", "x", "y")], (F, (8,)), (F, ("u",))),
        "onnx-operator",
        "the_Unique",
    ),
    "determinant": (
        lambda: model([("Det", "x", "y")], (F, (1, 8, 8)), (F, (1,))),
        "onnx-operator",
        "the_Det",
    ),
    "rank-6": (
        lambda: model([("Softmax", "x", "y")], (F, (1, 2, 1, 2, 1, 2)), (F, (1, 2, 1, 2, 1, 2))),
        "onnx-operator",
        "the_Softmax",
    ),
}


def write(folder: Path) -> None:
    """Write all of them."""
    for name, make in {**RIGHT, **{name: row[0] for name, row in WRONG.items()}}.items():
        (folder / name).mkdir(parents=True, exist_ok=True)
        onnx.save(make(), str(folder / name / "model.onnx"))


if __name__ == "__main__":
    write(Path(sys.argv[1]))
