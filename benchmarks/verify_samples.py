"""The time of `fleet verify` with 64 samples of 1 MB, over a link with a delay and a rate.

    python -m benchmarks.verify_samples [--rtt MS] [--mbit MBIT] [--samples N]

The runner `ort` runs a network with 1 MB of input and of output on the CPU of a lab board (an ONNX
model of six steps, `accelerator: cpu`), so that the runs are short and the transfer shows. The
second row has an output of one number, so that only the inputs cross the link. The bound is 1.2
times the runs and the bytes over the link.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper

from benchmarks.bench.link import slow_link
from fleet.config.inventory import load_inventory
from fleet.config.playbook import load_playbook
from fleet.engine.deploy.operation import Operation
from fleet.engine.options import DeployOptions
from fleet.lab import Lab
from fleet.model.events import RunDone, StepStarted
from fleet.profiles.runs import RunStore

MIB = 1 << 20
STEPS = 6


def network(path: Path, small: bool) -> None:
    """Write a model whose input is 1 MB of float32; its output is as large, or one number."""
    shape = [1, MIB // 4]
    nodes = [helper.make_node("Sqrt" if n % 2 else "Abs", [f"t{n}"], [f"t{n + 1}"])
             for n in range(STEPS)]  # fmt: skip
    end = "ReduceMean" if small else "Identity"
    nodes.append(helper.make_node(end, [f"t{STEPS}"], ["y"]))
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, size)
            for name, size in (("t0", shape), ("y", [1, 1] if small else shape))]  # fmt: skip
    graph = helper.make_graph(nodes, "large", ends[:1], ends[1:])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    onnx.save(model, path)


def playbook(folder: Path, count: int, small: bool) -> Path:
    """Write the playbook with its samples. The reference is the same model on this computer."""
    (folder / "bundle").mkdir(parents=True)
    network(folder / "bundle" / "large.onnx", small)
    random = np.random.default_rng(0)
    for number in range(count):
        np.save(folder / f"{number}.npy", random.random((1, MIB // 4), dtype=np.float32))
    text = {
        "name": "large",
        "bundle": {"path": "bundle", "kind": "ort"},
        "run": {"runner": "ort", "timeout": "120s", "options": {"accelerator": "cpu"}},
        "verify": {
            "gate": "off",
            "reference": "bundle/large.onnx",
            "limits": {"max_abs": 1e-3},
            "samples": [{"inputs": {"t0": f"{number}.npy"}} for number in range(count)],
        },
    }
    (folder / "playbook.yaml").write_text(json.dumps(text))
    return folder / "playbook.yaml"


def through(inventory: Path, folder: Path, port: int, slow: int) -> Path:
    """Return an inventory of the same board behind another port."""
    folder.mkdir()
    for name in ("inventory.yaml", "ssh_config", "known_hosts", "password"):
        text = (inventory.parent / name).read_text().replace(str(port), str(slow))
        (folder / name).write_text(text)
    return folder / inventory.name


def main() -> None:
    """Deploy over loopback, then verify over the link, and print a line for each network."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rtt", type=float, default=20.0, help="of the link, ms")
    parser.add_argument("--mbit", type=float, default=100.0, help="rate of the link each way")
    parser.add_argument("--samples", type=int, default=64)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        with Lab.up(folder / "lab", count=1, base_port=0) as lab:
            port = lab.boards[0].port
            with slow_link(port, given.rtt, given.mbit) as slow:
                far = through(lab.inventory, folder / "far", port, slow)
                for small in (False, True):
                    path = playbook(folder / f"small-{small}", given.samples, small)
                    print(measured(path, lab.inventory, far, given, small), flush=True)


def measured(path: Path, near: Path, far: Path, given: argparse.Namespace, small: bool) -> str:
    """Return the times of one verification as a line."""
    moments: dict[str, float] = {}

    def hear(event: object) -> None:
        if isinstance(event, StepStarted | RunDone):
            moments[getattr(event, "step", "done")] = time.monotonic()

    def operation(inventory: Path) -> Operation:
        return Operation(
            load_playbook(path),
            load_inventory(inventory).hosts,
            hear,
            options=DeployOptions(),
            runs=RunStore(path.parent / "runs"),
        )

    (deployed,) = operation(near).deploy()
    if deployed.error is not None:
        raise SystemExit(str(deployed.error))
    moments["begin"] = time.monotonic()
    (result,) = operation(far).verify()
    moments["end"] = time.monotonic()
    if result.error is not None:
        raise SystemExit(str(result.error))
    record = result.records[-1]
    folder = Path(record.artifacts["outputs.npz"]).parent
    runs = json.loads((folder / "outcome.json").read_text())
    device = (runs["session_ms"] + sum(runs["runs_ms"])) / 1000
    ways = 1 if small else 2
    link = ways * given.samples * MIB * 8 / given.mbit / 1e6
    whole = moments["end"] - moments["begin"]
    return (
        f"{given.samples} samples, {ways} MB each: {whole:.2f} s (step "
        f"{moments['done'] - moments['verify']:.2f}), runs {device:.2f} s + link {link:.2f} s: {whole / (device + link):.2f} times; "
        f"{result.round_trips} round trips"
    )


if __name__ == "__main__":
    main()
