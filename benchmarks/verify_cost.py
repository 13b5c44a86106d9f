"""The cost of `fleet verify` beside the runs: 20 prompts in one session, and 64 samples of 1 MB.

    python -m benchmarks.verify_cost [--rtt MS] [--mbit MBIT] [--samples N]

Prompts: tiny-genie on a lab board (HTP emulator), without a shaped link. The generation is what the
device reports for each prompt; all other time of the command counts, without the start of Python.

Samples: the runner `ort` runs a network of six steps with 1 MB of input and of output on the CPU of
the board (`accelerator: cpu`), so that the runs are short and the transfer over the shaped link
shows. The second row has an output of one number. The bound is 1.2 times the runs (opening the
session and all runs, as the device reports them) and the bytes over the link.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper

from benchmarks.bench.link import slow_link
from fleet.config.inventory import load_inventory
from fleet.config.playbook import load_playbook
from fleet.config.suite_file import load_suite
from fleet.engine.deploy.operation import Operation, Resources
from fleet.engine.pool import DeviceResult
from fleet.lab import Lab
from fleet.model.playbook import Playbook, RunSpec
from fleet.model.suite import SuiteUse
from fleet.profiles.runs import RunStore

ROOT = Path(__file__).parents[1]
PROMPTS, MIB = 20, 1 << 20
ONE = RunSpec(prompt="What is fleet?", max_tokens=40, repeats=1, warmups=0)
STEPS = 6
Timed = tuple[DeviceResult[None], float]


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
            print(prompts(lab.inventory), flush=True)
            port = lab.boards[0].port
            with slow_link(port, given.rtt, given.mbit) as slow:
                far = through(lab.inventory, folder / "far", port, slow)
                for small in (False, True):
                    path = playbook(folder / f"small-{small}", given.samples, small)
                    print(samples(path, lab.inventory, far, given, small), flush=True)


def timed(path: Path, inventory: Path, playbook: Playbook | None = None) -> Timed:
    """Verify a playbook that is deployed, and return its result and its time in seconds."""
    done = operation(path, inventory, playbook)
    began = time.monotonic()
    (result,) = done.verify()
    if result.error is not None:
        raise SystemExit(str(result.error))
    return result, time.monotonic() - began


def operation(path: Path, inventory: Path, playbook: Playbook | None = None) -> Operation:
    """Return an operation with its own folder of records."""
    runs = RunStore(Path(tempfile.mkdtemp()))
    hosts = load_inventory(inventory).hosts
    made = playbook or load_playbook(path)
    return Operation(made, hosts, lambda _: None, resources=Resources(runs=runs))


def deploy(path: Path, inventory: Path) -> None:
    """Deploy a playbook and end with its error, if there is one."""
    (result,) = operation(path, inventory).deploy()
    if result.error is not None:
        raise SystemExit(str(result.error))


def samples(path: Path, near: Path, far: Path, given: argparse.Namespace, small: bool) -> str:
    """Return the times of one verification of samples as a line."""
    deploy(path, near)
    result, whole = timed(path, far)
    outcome = json.loads(Path(result.records[-1].artifacts["outcome.json"]).read_text())
    runs = (outcome["session_ms"] + sum(outcome["runs_ms"])) / 1000
    link = (1 if small else 2) * given.samples * MIB * 8 / given.mbit / 1e6
    return (
        f"{given.samples} samples, {1 if small else 2} MB each: {whole:.2f} s; runs {runs:.2f} s + "
        f"link {link:.2f} s; {whole / (runs + link):.2f} times; {result.round_trips} round trips"
    )


def prompts(inventory: Path) -> str:
    """Return the time of 20 prompts beside their generation, and their round trips, as a line."""
    path = ROOT / "playbooks" / "tiny-genie.yaml"
    deploy(path, inventory)
    suite = load_suite("tiny", Path(), load_playbook(path).bundle)
    rows = (suite.questions * 2)[:PROMPTS]
    many = tuple(replace(row, name=str(number)) for number, row in enumerate(rows))
    beside, trips = list[float](), list[int]()
    for questions in (many[:1], many):
        asked = replace(suite, questions=questions, at_least=len(questions))
        playbook = replace(load_playbook(path), suite=SuiteUse(asked, "off"))
        result, whole = timed(path, inventory, playbook)
        (record,) = result.records
        answers = record.suite.answers if record.suite else ()
        beside.append(whole - sum(answer.seconds or 0.0 for answer in answers))
        trips.append(result.round_trips)
    (run,) = operation(path, inventory, replace(load_playbook(path), run=ONE)).run()
    each = 1000 * (beside[1] - beside[0]) / (PROMPTS - 1)
    return (
        f"{PROMPTS} prompts: {beside[1]:.2f} s beside the generation "
        f"({1000 * beside[1] / PROMPTS:.0f} ms a prompt; one prompt {beside[0]:.2f} s, so "
        f"{each:.0f} ms for each more); {trips[1]} round trips, a run {run.round_trips}"
    )


if __name__ == "__main__":
    main()
