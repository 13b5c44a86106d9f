"""Writes a tiny network as .tflite for LiteRT: make_litert.py FOLDER [FOLDER QAIRT].

Two linear layers with random weights, a ReLU and an arcus tangent of two, which Qualcomm's plugin
does not take, with an input and what numpy gives for it. Needs ai-edge-litert 2.3.0. QAIRT is a
folder with the x86_64 libraries of 2.51.0: then the plugin of the package compiles the network
ahead of time for SM8750 (Hexagon v79), with a part left for the CPU, into the second folder.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import ai_edge_litert
import flatbuffers
import numpy as np
from ai_edge_litert import schema_py_generated as schema

WIDTH, INNER, OUT, CHIP = 16, 32, 8, "SM8750"
PACKAGE = Path(ai_edge_litert.__file__).parent
PLUGINS = PACKAGE / "vendors" / "qualcomm" / "compiler"
# The plugin is linked against it and does not use it for this network.
UNUSED = "libQnnLpai.so"


class Network:
    """Tensors and operations as they come; both forms: the flatbuffer's and numpy's."""

    def __init__(self) -> None:
        self.buffers = [schema.BufferT()]  # the first is empty by definition
        self.tensors: list[schema.TensorT] = []
        self.operations: list[schema.OperatorT] = []
        self.codes: list[schema.OperatorCodeT] = []
        self._random = np.random.default_rng(0)

    def tensor(self, name: str, shape: tuple[int, ...], buffer: int = 0) -> int:
        made = schema.TensorT()
        made.name, made.shape, made.buffer = name.encode(), list(shape), buffer
        made.type = schema.TensorType.FLOAT32
        self.tensors.append(made)
        return len(self.tensors) - 1

    def weights(self, name: str, *shape: int) -> tuple[int, np.ndarray]:
        values = (self._random.standard_normal(shape) * 0.3).astype(np.float32)
        buffer = schema.BufferT()
        buffer.data = np.frombuffer(values.tobytes(), np.uint8)
        self.buffers.append(buffer)
        return self.tensor(name, shape, len(self.buffers) - 1), values

    def operation(self, code: int, inputs: list[int], output: int, **options: object) -> None:
        made, kind = schema.OperatorT(), schema.OperatorCodeT()
        kind.builtinCode, kind.version = code, 1
        kind.deprecatedBuiltinCode = min(
            code, schema.BuiltinOperator.PLACEHOLDER_FOR_GREATER_OP_CODES
        )
        self.codes.append(kind)
        made.opcodeIndex = len(self.codes) - 1
        made.inputs, made.outputs = inputs, [output]
        for name, value in options.items():
            setattr(made, name, value)
        self.operations.append(made)

    def packed(self, source: int, target: int) -> bytes:
        graph, model = schema.SubGraphT(), schema.ModelT()
        graph.tensors, graph.operators, graph.name = self.tensors, self.operations, b"main"
        graph.inputs, graph.outputs = [source], [target]
        model.version, model.subgraphs, model.buffers = 3, [graph], self.buffers
        model.operatorCodes, model.description = self.codes, b"fleet's tiny network"
        builder = flatbuffers.Builder(4096)
        builder.Finish(model.Pack(builder), b"TFL3")
        return bytes(builder.Output())


def made(x: np.ndarray) -> tuple[bytes, np.ndarray]:
    """The model, and what it gives for `x`."""
    network, kinds = Network(), schema.BuiltinOperator
    linear = {
        "builtinOptionsType": schema.BuiltinOptions.FullyConnectedOptions,
        "builtinOptions": schema.FullyConnectedOptionsT(),
    }
    source = network.tensor("x", (1, WIDTH))
    first, first_values = network.weights("first", INNER, WIDTH)
    second, second_values = network.weights("second", OUT, INNER)
    inner, bent = network.tensor("inner", (1, INNER)), network.tensor("bent", (1, INNER))
    scores, target = network.tensor("scores", (1, OUT)), network.tensor("y", (1, OUT))
    one, one_values = network.weights("turn", 1, OUT)
    network.operation(kinds.FULLY_CONNECTED, [source, first, -1], inner, **linear)
    network.operation(kinds.RELU, [inner], bent)
    network.operation(kinds.FULLY_CONNECTED, [bent, second, -1], scores, **linear)
    network.operation(kinds.ATAN2, [scores, one], target)
    y = np.arctan2(np.maximum(x @ first_values.T, 0) @ second_values.T, one_values)
    return network.packed(source, target), y.astype(np.float32)


def compile_to(source: Path, target: Path, qairt: Path) -> None:
    """What the plugin takes becomes one operation for the NPU; the rest stays as it is."""
    with tempfile.TemporaryDirectory() as folder:
        empty = ("cc", "-shared", "-x", "c", "/dev/null", "-o", str(Path(folder, UNUSED)))
        subprocess.run(empty, check=True)
        argv = (
            *(str(PACKAGE / "tools" / "apply_plugin_main"), "--cmd=apply", f"--model={source}"),
            *(f"--o={target}", f"--libs={PLUGINS}", "--soc_manufacturer=Qualcomm"),
            f"--soc_model={CHIP}",
        )
        path = f"{qairt}:{folder}:{PACKAGE}"
        subprocess.run(argv, check=True, env={**os.environ, "LD_LIBRARY_PATH": path})


def main() -> None:
    """Write the folder."""
    folder = Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    x = np.random.default_rng(1).random((1, WIDTH), np.float32)
    model, y = made(x)
    (folder / "tiny.tflite").write_bytes(model)
    np.save(folder / "x.npy", x)
    np.save(folder / "y.npy", y)
    if len(sys.argv) > 2:
        compiled = Path(sys.argv[2])
        compiled.mkdir(parents=True, exist_ok=True)
        shutil.copy(folder / "tiny.tflite", compiled)
        compile_to(folder / "tiny.tflite", compiled / f"tiny_{CHIP}.tflite", Path(sys.argv[3]))


if __name__ == "__main__":
    main()
