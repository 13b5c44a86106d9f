"""Seeded faults in small quantised networks: is the first wrong node named? (emulated)

    python -m benchmarks.verify_nodes SITE [--trials N] [--clean RUNS] [--only MODEL]

SITE is a folder with onnxruntime-qnn (pip install --target SITE onnxruntime-qnn). The networks run
on the HTP emulator by the script of the runner ort, as on a board; the reference is ONNX Runtime on
the CPU. A fault is drawn again until the outputs of the network fail the default limits of
`verify:`, since only then somebody asks where it begins. Same seed, same table.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import helper, numpy_helper

from fleet.device.npu.fleet_ort import outputs_of
from fleet.model.suite import NodeDifference, TensorLimits
from fleet.verify.nodes import Network, compare_nodes
from fleet.verify.tensors import Reference, difference

ROOT = Path(__file__).parents[1]
SCRIPT = ROOT / "fleet" / "device" / "npu" / "fleet_ort.py"
CALIBRATION = 16
Array = NDArray[Any]
Rng = np.random.Generator


# Networks


@dataclass
class Net:
    """A network under construction. Its values are as large as those of a trained one."""

    rng: Rng
    shape: tuple[int, ...]
    nodes: list[Any] = field(default_factory=list)
    weights: dict[str, Array] = field(default_factory=dict)

    def __call__(self, kind: str, *inputs: str | Array, **attributes: Any) -> str:  # noqa: ANN401 - of any node
        """Add a node and return its output."""
        name = f"{kind.lower()}{len(self.nodes)}"
        names = []
        for number, value in enumerate(inputs):
            if isinstance(value, str):
                names.append(value)
            else:
                names.append(f"{name}_w{number}")
                self.weights[names[-1]] = value
        self.nodes.append(helper.make_node(kind, names, [f"{name}_out"], name, **attributes))
        return f"{name}_out"

    def conv(self, x: str, out: int, into: int, size: int = 3, **more: object) -> str:
        """Add a convolution of `into` to `out` channels."""
        fan = into * size * size
        weight = self.rng.normal(size=(out, into, size, size)) / np.sqrt(fan)
        bias = self.rng.normal(size=out) * 0.3
        pads = [size // 2] * 4
        return self("Conv", x, weight.astype("f"), bias.astype("f"), pads=pads, **more)

    def dense(self, x: str, into: int, out: int) -> str:
        """Add a fully connected layer."""
        weight = self.rng.normal(size=(into, out)) / np.sqrt(into)
        return self("Gemm", x, weight.astype("f"), (self.rng.normal(size=out) * 0.3).astype("f"))

    def project(self, x: str, into: int, out: int) -> str:
        """Add a layer of a transformer: MatMul and Add."""
        weight = self.rng.normal(size=(into, out)) / np.sqrt(into)
        y = self("MatMul", x, weight.astype("f"))
        return self("Add", y, (self.rng.normal(size=out) * 0.5).astype("f"))

    def reshape(self, x: str, *shape: int) -> str:
        """Add a reshape."""
        return self("Reshape", x, np.array(shape, np.int64))

    def model(self) -> onnx.ModelProto:
        """Return the model; its output is that of the last node."""
        last = self.nodes[-1].output[0]
        graph = helper.make_graph(
            self.nodes,
            "net",
            [helper.make_tensor_value_info("x", 1, self.shape)],
            [onnx.ValueInfoProto(name=last)],
            [numpy_helper.from_array(value, name) for name, value in self.weights.items()],
        )
        opsets = [helper.make_opsetid("", 17)]
        model = helper.make_model(graph, opset_imports=opsets, ir_version=10)
        return onnx.shape_inference.infer_shapes(model)


IMAGE = (1, 3, 16, 16)


def plain(n: Net) -> None:
    x = n("Relu", n.conv("x", 8, 3, strides=[2, 2]))
    x = n("Relu", n.conv(x, 8, 8, strides=[2, 2]))
    n.dense(n.reshape(x, 1, 128), 128, 10)


def depthwise(n: Net) -> None:
    x = n("Relu", n.conv("x", 8, 3))
    x = n("Relu", n.conv(x, 8, 1, group=8, strides=[2, 2]))
    x = n("AveragePool", n.conv(x, 16, 8, 1), kernel_shape=[4, 4], strides=[4, 4])
    n.dense(n.reshape(x, 1, 64), 64, 10)


def residual(n: Net) -> None:
    x = n("Relu", n.conv("x", 8, 3, strides=[2, 2]))
    y = n.conv(n("Relu", n.conv(x, 8, 8)), 8, 8)
    x = n("Relu", n("Add", x, y))
    n.dense(n.reshape(x, 1, 512), 512, 10)


def perceptron(n: Net) -> None:
    x = n("Relu", n.dense(n.reshape("x", 1, 768), 768, 64))
    n.dense(n("Relu", n.dense(x, 64, 64)), 64, 16)


def attention(n: Net) -> None:
    q, k, v = (
        n("Transpose", n.reshape(n.project("x", 32, 32), 1, 8, 4, 8), perm=perm)
        for perm in ([0, 2, 1, 3], [0, 2, 3, 1], [0, 2, 1, 3])
    )
    scores = n("Softmax", n("Mul", n("MatMul", q, k), np.array(0.35, "f")), axis=-1)
    x = n("Transpose", n("MatMul", scores, v), perm=[0, 2, 1, 3])
    n.project(n.reshape(x, 1, 8, 32), 32, 32)


def normed(n: Net) -> None:
    x = n("LayerNormalization", "x", np.ones(32, "f"), np.zeros(32, "f"), axis=-1)
    x = n.project(x, 32, 64)
    x = n.project(n("Mul", x, n("Sigmoid", x)), 64, 32)
    n.dense(n.reshape(n("Add", "x", x), 8, 32), 32, 16)


def gated(n: Net) -> None:
    x = n.conv("x", 8, 3, strides=[2, 2])
    x = n.conv(n("Mul", x, n("Sigmoid", x)), 8, 8, strides=[2, 2])
    n.dense(n.reshape(n("Tanh", x), 1, 128), 128, 10)


def branches(n: Net) -> None:
    x = n("Relu", n.conv("x", 8, 3, strides=[2, 2]))
    x = n("Concat", n.conv(x, 4, 8, 1), n.conv(x, 4, 8, 3), axis=1)
    n.dense(n.reshape(n("Relu", n.conv(x, 4, 8)), 1, 256), 256, 10)


def pools(n: Net) -> None:
    x = n("MaxPool", n.conv("x", 8, 3), kernel_shape=[2, 2], strides=[2, 2])
    x = n("AveragePool", n.conv(x, 8, 8), kernel_shape=[2, 2], strides=[2, 2])
    n.dense(n.reshape(x, 1, 128), 128, 10)


def shuffled(n: Net) -> None:
    x = n("DepthToSpace", n.conv("x", 12, 3, strides=[2, 2]), blocksize=2)
    n.dense(n.reshape(n.conv(x, 2, 3, strides=[2, 2]), 1, 128), 128, 10)


def grouped(n: Net) -> None:
    x = n("Softmax", n.reshape(n.conv("x", 8, 3, strides=[2, 2]), 1, 32, 16), axis=-1)
    n.dense(n.reshape(x, 1, 512), 512, 10)


def upsampled(n: Net) -> None:
    x = n("Relu", n.conv("x", 8, 3, strides=[2, 2]))
    x = n("Resize", x, np.array([], "f"), np.array([1, 1, 2, 2], "f"), mode="nearest",
          coordinate_transformation_mode="asymmetric", nearest_mode="floor")  # fmt: skip
    n.reshape(n.conv(x, 3, 8), 1, 768)


MODELS: Mapping[str, tuple[Callable[[Net], None], tuple[int, ...], int]] = {
    "plain": (plain, IMAGE, 8), "depthwise": (depthwise, IMAGE, 8),
    "residual": (residual, IMAGE, 8), "perceptron": (perceptron, IMAGE, 8),
    "attention": (attention, (1, 8, 32), 16), "normed": (normed, (1, 8, 32), 16),
    "gated": (gated, IMAGE, 16), "branches": (branches, IMAGE, 8), "pools": (pools, IMAGE, 8),
    "shuffled": (shuffled, IMAGE, 8), "grouped": (grouped, IMAGE, 16),
    "upsampled": (upsampled, IMAGE, 8),
}  # fmt: skip


def quantised(name: str, folder: Path) -> Path:
    """Write a network quantised as for the HTP, with 8-bit weights, and return its file."""
    # SITE is on the path only now.
    from onnxruntime.quantization import CalibrationDataReader, QuantType, quantize  # noqa: PLC0415
    from onnxruntime.quantization.execution_providers.qnn import (  # noqa: PLC0415
        get_qnn_qdq_config,
    )

    class Reader(CalibrationDataReader):  # type: ignore[misc]
        def __init__(self) -> None:
            self.feeds = (feed(name, 1000 + n) for n in range(CALIBRATION))

        def get_next(self) -> dict[str, Array] | None:
            return next(self.feeds, None)

    build, shape, bits = MODELS[name]
    net = Net(np.random.default_rng([7, *name.encode()]), shape)
    build(net)
    whole, made = folder / f"{name}-float.onnx", folder / f"{name}.onnx"
    onnx.save(net.model(), whole)
    kind = QuantType.QUInt16 if bits == 16 else QuantType.QUInt8
    config = get_qnn_qdq_config(whole, Reader(), activation_type=kind, weight_type=QuantType.QUInt8)
    quantize(whole, made, config)
    return made


def feed(name: str, seed: int) -> dict[str, Array]:
    """Return an input of a network."""
    shape = MODELS[name][1]
    return {"x": np.random.default_rng(seed).normal(size=shape).astype("f")}


# Faults. Each one changes a quantised model in place and returns the name of the wrong node.


class Quantised:
    """A quantised model that is about to be changed."""

    def __init__(self, path: Path, rng: Rng) -> None:
        self.path, self.model, self.rng = path, onnx.load(path), rng
        self.constants = {item.name: item for item in self.model.graph.initializer}
        self.readers: dict[str, list[Any]] = {}
        for node in self.model.graph.node:
            for name in node.input:
                self.readers.setdefault(name, []).append(node)

    def value(self, name: str) -> Array:
        made: Array = numpy_helper.to_array(self.constants[name]).copy()
        return made

    def put(self, name: str, value: Array) -> None:
        self.constants[name].CopyFrom(numpy_helper.from_array(value, name))

    def weights(self, place: int) -> Iterator[tuple[Any, Any]]:
        """Yield each operator with the DequantizeLinear of its constant input at `place`."""
        makers = {node.output[0]: node for node in self.model.graph.node}
        for node in self.model.graph.node:
            if node.op_type in {"Conv", "Gemm", "MatMul", "Add"} and len(node.input) > place:
                maker = makers.get(node.input[place])
                if maker is not None and maker.input[0] in self.constants:
                    yield node, maker

    def one(self, found: Iterable[tuple[Any, Any]]) -> tuple[Any, Any]:
        rows = list(found)
        return rows[int(self.rng.integers(len(rows)))]

    def activations(self) -> Iterator[tuple[Any, Any]]:
        """Yield each operator with its QuantizeLinear."""
        for node in self.model.graph.node:
            for user in self.readers.get(node.output[0], []):
                if user.op_type == "QuantizeLinear" and node.op_type != "DequantizeLinear":
                    yield node, user


def wrong_scale(q: Quantised) -> str:
    """The scale of a weight, or of an activation, which then saturates."""
    if q.rng.random() < 0.5:
        node, maker = q.one(q.weights(1))
        q.put(maker.input[1], (q.value(maker.input[1]) * q.rng.uniform(1.3, 3)).astype("f"))
    else:
        node, maker = q.one(q.activations())
        q.put(maker.input[1], (q.value(maker.input[1]) * q.rng.uniform(0.2, 0.5)).astype("f"))
    return first_of(q, maker.input[1], node)


def first_of(q: Quantised, constant: str, node: onnx.NodeProto) -> str:
    """Return the first operator whose encoding is this constant: some operators share one."""
    for one, user in q.activations():
        if constant in user.input:
            return str(one.name)
    return str(node.name)


def wrong_zero(q: Quantised) -> str:
    """The zero point of a weight, or of an activation."""
    weight = q.rng.random() < 0.5
    node, maker = q.one(q.weights(1) if weight else q.activations())
    zero = q.value(maker.input[2])
    top = np.iinfo(zero.dtype).max
    shift = int(top * q.rng.uniform(0.1, 0.4)) * (-1 if zero.max() > top / 2 else 1)
    q.put(maker.input[2], np.clip(zero.astype(np.int64) + shift, 0, top).astype(zero.dtype))
    return first_of(q, maker.input[2], node)


def wrong_bias(q: Quantised) -> str:
    """A quarter of the biases of a layer, or more, by a share of the range of its output."""
    bias = [*q.weights(2), *(row for row in q.weights(1) if row[0].op_type == "Add")]
    node, maker = q.one(bias)
    value, scale = q.value(maker.input[0]), q.value(maker.input[1])
    stored = next(u for u in q.readers[node.output[0]] if u.op_type == "QuantizeLinear")
    span = float(q.value(stored.input[1])) * np.iinfo(q.value(stored.input[2]).dtype).max
    by = q.rng.uniform(0.2, 0.8) * span / scale
    where = q.rng.random(value.shape) < q.rng.uniform(0.25, 1)
    limits = np.iinfo(value.dtype)
    changed = np.where(where, value + by, value).clip(limits.min, limits.max)
    q.put(maker.input[0], changed.astype(value.dtype))
    return str(node.name)


def swapped_channels(q: Quantised) -> str:
    """Output channels of a weight in another order."""
    rows = (row for row in q.weights(1) if row[0].op_type != "Add")
    node, maker = q.one(rows)
    value = q.value(maker.input[0])
    axis = 0 if node.op_type == "Conv" else value.ndim - 1
    order = np.roll(np.arange(value.shape[axis]), int(q.rng.integers(1, value.shape[axis])))
    q.put(maker.input[0], np.take(value, order, axis))
    return str(node.name)


def wrong_reshape(q: Quantised) -> str:
    """A reshape of the tensor in another layout, which gives the same shape."""
    makers = {node.output[0]: node for node in q.model.graph.node}
    rows = (node for node in q.model.graph.node if node.op_type == "Reshape")
    node, stored = q.one((node, makers.get(node.input[0])) for node in rows)
    shown = q.path.read_bytes() + outputs_of(node.input[:1])
    rank = Reference(q.path, shown).outputs(feed(q.path.stem, 0))[node.input[0]].ndim
    order = [0, *np.roll(np.arange(1, rank), int(q.rng.integers(1, max(2, rank - 1))))]
    made = [helper.make_node("Transpose", [node.input[0]], ["moved"], "moved", perm=order)]
    if stored is not None:
        how = stored.input[1:]
        made.append(helper.make_node("QuantizeLinear", ["moved", *how], ["moved_q"], "moved_q"))
        made.append(helper.make_node("DequantizeLinear", ["moved_q", *how], ["moved_d"]))
    place = list(q.model.graph.node).index(node)
    node.input[0] = made[-1].output[0]
    for number, one in enumerate(made):
        q.model.graph.node.insert(place + number, one)
    return str(node.name)


FAULTS = {
    "scale": wrong_scale, "zero point": wrong_zero, "bias": wrong_bias,
    "swapped channels": swapped_channels, "wrong reshape": wrong_reshape,
}  # fmt: skip


# The device


@dataclass(frozen=True)
class Emulator:
    """The HTP emulator by the script of the runner ort."""

    site: Path
    work: Path

    def run(self, model: Path, feeds: list[dict[str, Array]]) -> dict[str, Array]:
        """Return `NUMBER/tensor` of each feed, with every node's."""
        network = Network(model)
        added = [[node.tensor for node in network.nodes]]
        spec = {
            "model": model.name, "inputs": {}, "reference": {}, "dimensions": {}, "session": {},
            "profiling": "off", "seed": 0, "log": 3, "added": added,
            "provider": {"backend_path": "libQnnHtp.so", "soc_model": "77"},
        }  # fmt: skip
        samples = {f"{n}/{name}": v for n, one in enumerate(feeds) for name, v in one.items()}
        np.savez(self.work / "samples.npz", allow_pickle=False, **samples)
        (self.work / "spec.json").write_text(json.dumps(spec))
        argv = [sys.executable, "-I", str(SCRIPT), "--site", str(self.site)]
        for name in ("spec.json", "outcome.json"):
            argv += [f"--{name.partition('.')[0]}", str(self.work / name)]
        argv += ["--samples", str(self.work / "samples.npz")]
        argv += ["--outputs", str(self.work / "outputs.npz")]
        env = {**os.environ, "LD_LIBRARY_PATH": str(self.site / "onnxruntime_qnn")}
        done = subprocess.run(argv, cwd=model.parent, env=env, capture_output=True, check=False)
        if done.returncode:
            raise RuntimeError((self.work / "outcome.json").read_text()[:500])
        with np.load(self.work / "outputs.npz") as found:
            return dict(found)


def rows_of(
    model: Path, good: Path, inputs: dict[str, Array], stored: Mapping[str, Array]
) -> tuple[NodeDifference, ...]:
    """Compare the nodes of one run."""
    return compare_nodes(Network(model), Network(good), inputs, stored)


def fails(model: Path, good: Path, inputs: dict[str, Array]) -> bool:
    """Return True if an output differs beyond the default limits, by ONNX Runtime on the CPU."""
    right, wrong = (Reference(path).outputs(inputs) for path in (good, model))
    return any(difference(n, right[n], wrong[n], TensorLimits()).faults for n in right)


def faulty(
    good: Path, kind: str, seed: list[int], folder: Path, inputs: dict[str, Array]
) -> tuple[Path, str, int]:
    """Return a model with a fault that its outputs show, the wrong node, and the draws."""
    for draw in range(100):
        changed = Quantised(good, np.random.default_rng([*seed, draw]))
        node = FAULTS[kind](changed)
        path = folder / "faulty.onnx"
        onnx.save(changed.model, path)
        if fails(path, good, inputs):
            return path, node, draw + 1
    raise RuntimeError(f"no {kind} of {good.stem} shows")


def clean_runs(emulator: Emulator, goods: Mapping[str, Path], runs: int) -> None:
    """Print the alarms, and how far nodes without a fault are apart."""
    alarms, asked, worst = 0, 0, dict[str, tuple[float, float]]()
    share = -(-runs // len(goods))
    for name, good in goods.items():
        feeds = [feed(name, seed) for seed in range(min(share, runs - asked))]
        stored = emulator.run(good, feeds)
        for number, inputs in enumerate(feeds):
            given = {key.partition("/")[2]: value for key, value in stored.items()
                     if key.startswith(f"{number}/")}  # fmt: skip
            rows = rows_of(good, good, inputs, given)
            alarms += any(row.fault for row in rows)
            for row in rows:
                key = f"{row.kind} {row.encoding.partition(',')[0]}"
                low, high = worst.get(key, (0.0, 200.0))
                worst[key] = max(low, row.own_steps or 0.0), min(high, row.own_db or 0.0)
        asked += len(feeds)
    print(f"clean: {alarms} alarms in {asked} runs, emulated", flush=True)
    for key, (steps, decibel) in sorted(worst.items()):
        print(f"  {key}: at most {steps:.3g} steps, at least {decibel:.1f} dB")


def main() -> None:
    """Print a line for each network and kind of fault."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("site", type=Path)
    parser.add_argument("--trials", type=int, default=1)
    parser.add_argument("--clean", type=int, default=200)
    parser.add_argument("--only", choices=MODELS)
    args = parser.parse_args()
    sys.path.append(str(args.site))
    with tempfile.TemporaryDirectory() as work:
        folder = Path(work)
        emulator = Emulator(args.site.resolve(), folder)
        names = [args.only] if args.only else list(MODELS)
        goods = {name: quantised(name, folder) for name in names}
        if args.clean:
            clean_runs(emulator, goods, args.clean)
        right = asked = 0
        for place, (name, good) in enumerate(goods.items()):
            for number, kind in enumerate(FAULTS):
                for trial in range(args.trials):
                    inputs = feed(name, 5000 + trial)
                    path, node, draws = faulty(good, kind, [place, number, trial], folder, inputs)
                    stored = emulator.run(path, [inputs])
                    given = {key.partition("/")[2]: value for key, value in stored.items()}
                    rows = rows_of(path, good, inputs, given)
                    named = next((row.node for row in rows if row.fault), "none")
                    asked, right = asked + 1, right + (named == node)
                    word = "right" if named == node else f"WRONG: {named}"
                    print(f"{name}: {kind} in {node} ({draws} draws): {word}", flush=True)
        print(f"first wrong node named: {right} of {asked}, emulated")


if __name__ == "__main__":
    main()
