"""A small quantised network, right or with a fault."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper

Change = Callable[[dict[str, Any]], None]
SEED = 5


def network(path: Path, change: Change | None = None, *, quantised: bool = True) -> Path:
    """Write x → MatMul a → Add b → Relu → Reshape r → MatMul c, with 8 bits between the nodes."""
    rng = np.random.default_rng(SEED)
    values: dict[str, Any] = {
        "a_w": rng.normal(size=(8, 8)).astype("f"), "b_w": rng.normal(size=8).astype("f"),
        "r_s": np.array([2, 16]), "c_w": rng.normal(size=(16, 4)).astype("f"),
    }  # fmt: skip
    for name in ("x", "a", "b", "r", "c"):
        values |= {f"{name}_scale": np.array(0.06, "f"), f"{name}_zero": np.array(128, np.uint8)}
    if change is not None:
        change(values)
    made: list[Any] = []

    def stored(name: str, value: str) -> str:
        if not quantised:
            return value
        how = [f"{name}_scale", f"{name}_zero"]
        made.append(helper.make_node("QuantizeLinear", [value, *how], [f"{name}_q"], f"{name}_q"))
        made.append(helper.make_node("DequantizeLinear", [f"{name}_q", *how], [f"{name}_d"]))
        return f"{name}_d"

    source = stored("x", "x")
    for kind, name, weight in (("MatMul", "a", "a_w"), ("Add", "b", "b_w"), ("Relu", "relu", ""),
                               ("Reshape", "r", "r_s"), ("MatMul", "c", "c_w")):  # fmt: skip
        made.append(helper.make_node(kind, [source, weight][: 1 + bool(weight)], [name], name))
        source = name if name == "b" else stored("b" if name == "relu" else name, name)
    made[-1].output[0] = "y"
    graph = helper.make_graph(
        made,
        "g",
        [helper.make_tensor_value_info("x", 1, [4, 8])],
        [helper.make_tensor_value_info("y", 1, [2, 4])],
        [numpy_helper.from_array(value, name) for name, value in values.items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 19)], ir_version=10)
    onnx.save(model, path)
    return path
