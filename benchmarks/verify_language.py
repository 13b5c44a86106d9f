"""Faults of a language model against the shipped suite, on the HTP emulator (emulated).

    python -m benchmarks.verify_language MODELS LIBRARIES [--good RUNS] [--chat]

MODELS is a folder with qdq.onnx, open.onnx and tokenizer.json of the tiny model (the steps of
assets/build/make_bundle.py), LIBRARIES that of the QAIRT libraries for x86_64. Needs the packages
of assets/build/requirements.txt. With `--chat` it needs no MODELS and asks tiny-genie-chat, with
the bundle's template and without one of its newlines. Every fault is deterministic: the same code
gives the same table.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import onnx
from onnx import numpy_helper

from fleet.config.suite_file import load_suite
from fleet.model.suite import Suite, SuiteAnswer, SuiteResult
from fleet.verify.answers import judge_suite

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "assets" / "build"))
from bundle import BINARY, write_bundle  # noqa: E402
from compile import compile_graph  # noqa: E402
from corpus import asked  # noqa: E402
from replay import Replay  # noqa: E402
from shape import EOS, Shape  # noqa: E402
from tokenizers import Tokenizer  # noqa: E402
from train import encode  # noqa: E402

STEPS = 7  # of the search: the change is known to 1 % of itself


@dataclass(frozen=True)
class Ground:
    """Models and libraries."""

    models: Path
    libraries: Path
    suite: Suite

    def ask(self, bundle: Path) -> SuiteResult:
        """Ask the suite as the runner does, with fleet_genie.py over the real libGenie."""
        with tempfile.TemporaryDirectory() as work:
            rows = [
                {"name": q.name, "prompt": q.prompt, "tokens": q.tokens, "max_tokens": q.max_tokens}
                for q in self.suite.questions
            ]
            Path(work, "suite.json").write_text(json.dumps(rows))
            script = ROOT / "fleet" / "device" / "npu" / "fleet_genie.py"
            argv = [sys.executable, "-I", str(script), "--config", "genie_config.json", "--greedy"]
            argv += [
                "--suite",
                f"{work}/suite.json",
                "--outcome",
                f"{work}/out",
                "--timeout",
                "600",
            ]
            env = {**os.environ, "LD_LIBRARY_PATH": str(self.libraries)}
            subprocess.run(argv, cwd=bundle, env=env, check=True, capture_output=True)
            lines = [json.loads(line) for line in Path(work, "out").read_text().splitlines()]
        answers = [SuiteAnswer(row["name"], row["text"]) for row in lines if "name" in row]
        return judge_suite(self.suite, answers)

    def bundle(self, folder: Path, change: Callable[[onnx.ModelProto], None]) -> Path:
        """Write a bundle whose graph was changed, compiled for the HTP."""
        folder.mkdir(parents=True)
        model = onnx.load(self.models / "open.onnx")
        change(model)
        shutil.copy(self.models / "tokenizer.json", folder)
        with tempfile.TemporaryDirectory() as work:
            onnx.save(model, Path(work, "model.onnx"))
            # ONNX Runtime registers a provider once a process
            argv = [sys.executable, "-m", "benchmarks.verify_language", "--compile", work]
            subprocess.run(argv, check=True, capture_output=True, cwd=ROOT)
            (binary,) = Path(work).glob("context*.bin")
            write_bundle(Shape(), folder, binary)
        return folder

    def wrong_on_cpu(self, change: Callable[[onnx.ModelProto], None]) -> int:
        """Count the known answers that change, by ONNX Runtime on the CPU."""
        model = onnx.load(self.models / "qdq.onnx")
        change(model)
        replay = Replay(Shape(), model.SerializeToString())
        tokenizer = Tokenizer.from_file(str(self.models / "tokenizer.json"))
        wrong = 0
        for prompt, text in asked():
            tokens = replay.answer(encode(tokenizer, prompt))
            wrong += tokenizer.decode(tokens) != text or tokens[-1] != EOS
        return wrong


def scale(names: Sequence[str], factor: float) -> Callable[[onnx.ModelProto], None]:
    """Return a change that multiplies the scale with which DequantizeLinear reads these tensors."""

    def change(model: onnx.ModelProto) -> None:
        values = {item.name: item for item in model.graph.initializer}
        for node in model.graph.node:
            if node.op_type == "DequantizeLinear" and any(n in node.name for n in names):
                value = numpy_helper.to_array(values[node.input[1]]) * np.float32(factor)
                node.input[1] = f"{node.input[1]}_{node.name}_changed"
                model.graph.initializer.append(numpy_helper.from_array(value, node.input[1]))

    return change


def smallest(ground: Ground, names: Sequence[str]) -> float:
    """Return the smallest factor above 1 that changes three known answers, by bisection."""
    low, high = 1.0, 2.0
    while ground.wrong_on_cpu(scale(names, high)) < 3 and high < 64:
        low, high = high, high * 2
    for _ in range(STEPS):
        middle = (low + high) / 2
        wrong = ground.wrong_on_cpu(scale(names, middle))
        low, high = (low, middle) if wrong >= 3 else (middle, high)
    return high


def spoil_tokenizer(bundle: Path) -> None:
    """Exchange pairs of words, so that the same tokens read as another text."""
    path = bundle / "tokenizer.json"
    body = json.loads(path.read_text())
    words = body["model"]["vocab"]
    long = [word for word in words if word.isalpha() and len(word) > 2]
    for one, other in zip(long[::2], long[1::2], strict=False):
        words[one], words[other] = words[other], words[one]
    path.write_text(json.dumps(body))


def constant(model: onnx.ModelProto) -> None:
    """Make the logits independent of the prompt: the last projection reads zeros."""
    scale(["final_norm_scale", "final_norm_bias"], 0.0)(model)


def lost_newlines(ground: Ground, bundle: Path) -> None:
    """Ask the suite with prompts of a template that has lost one of its newlines, each in turn."""
    parts = (bundle / "chat_template.jinja").read_text().split("\\n")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for at in range(1, len(parts)):
            lost = "\\n".join([*parts[: at - 1], parts[at - 1] + parts[at], *parts[at + 1 :]])
            (folder / "chat_template.jinja").write_text(lost)
            result = replace(ground, suite=load_suite("tiny-chat", folder, folder)).ask(bundle)
            print(f"newline {at} of the template lost: {result.shown}", flush=True)


def main() -> None:
    """Print a line for each bundle."""
    if sys.argv[1] == "--compile":
        compile_graph(onnx.load(Path(sys.argv[2], "model.onnx")), Path(sys.argv[2]))
        return
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("models", type=Path)
    parser.add_argument("libraries", type=Path)
    parser.add_argument("--good", type=int, default=0, help="runs of the good bundle")
    parser.add_argument("--chat", action="store_true", help="lost newlines of the template")
    args = parser.parse_args()
    name = "tiny-genie-chat" if args.chat else "tiny-genie"
    tiny, suite = ROOT / "assets" / name, "tiny-chat" if args.chat else "tiny"
    ground = Ground(args.models, args.libraries, load_suite(suite, Path(), tiny))
    alarms = 0
    for number in range(args.good):
        alarms += not ground.ask(tiny).holds
        print(f"good bundle: {alarms} alarms in {number + 1} runs", flush=True)
    if args.chat:
        lost_newlines(ground, tiny)
    if args.good or args.chat:
        return
    groups = {"KV cache, all layers": ["past_key", "past_value"]}
    groups |= {f"weights {name}": [f"{name}_Deq"] for name in ("k0", "v1", "down1", "embedding")}
    with tempfile.TemporaryDirectory() as work:
        for number, (title, names) in enumerate(groups.items()):
            factor = smallest(ground, names)
            for step in range(9):  # the emulator may bear more than the CPU
                made = ground.bundle(Path(work, f"{number}-{step}"), scale(names, factor))
                result = ground.ask(made)
                print(f"scale of {title} x {factor:.3f}: {result.shown}", flush=True)
                if result.passed <= result.asked - 3:
                    break
                factor = 1 + (factor - 1) * 1.5
        made = ground.bundle(Path(work, "constant"), constant)
        print(f"constant answer: {ground.ask(made).shown}", flush=True)
        other = Path(work, "tokenizer")
        shutil.copytree(tiny, other)
        assert (other / BINARY).is_file()
        spoil_tokenizer(other)
        print(f"wrong tokenizer: {ground.ask(other).shown}", flush=True)


if __name__ == "__main__":
    main()
