"""Ask the finished bundle through the real libGenie of the onnxruntime-qnn wheel.

Usage: verify.py BUNDLE
"""

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import onnxruntime_qnn as qnn
from corpus import FALLBACK, asked
from tokenizers import Tokenizer

STRANGE = (
    "What is the capital of France?",
    "Explain gravity in one sentence.",
    "Write a poem about the sea",
    "Give me a list of three colours.\n",
)
"""Prompts that are not in the training data."""

_Answer = dict[str, object]


def ask_genie(bundle: Path, prompts: list[str]) -> list[_Answer]:
    """Give what libGenie answers; raises if the process fails or takes over five minutes."""
    libraries = Path(qnn.get_library_path()).parent
    environment = {**os.environ, "LD_LIBRARY_PATH": str(libraries)}
    asker = Path(__file__).with_name("ask.py").resolve()
    with tempfile.TemporaryDirectory() as folder:
        result = Path(folder) / "answers.json"
        command = [sys.executable, str(asker), str(libraries / "libGenie.so"), str(result)]
        subprocess.run(
            [*command, *prompts],
            cwd=bundle,
            env=environment,
            check=True,
            timeout=300,
            stdout=subprocess.DEVNULL,
        )
        answers: list[_Answer] = json.loads(result.read_text(encoding="utf-8"))
    return answers


def _events(answer: _Answer) -> dict[str, float]:
    values: dict[str, float] = {}
    for component in answer["profile"]["components"]:  # type: ignore[index]
        for event in component["events"]:
            for name, value in event.items():
                if isinstance(value, dict) and "value" in value:
                    values[name] = value["value"]
    return values


def verify(bundle: Path) -> bool:
    """Print every answer; say whether all have the expected text and ended by themselves."""
    sample = (bundle / "sample_prompt.txt").read_text(encoding="utf-8")
    expected = [(sample, asked()[0][1]), *asked(), *((prompt, FALLBACK) for prompt in STRANGE)]
    tokenizer = Tokenizer.from_file(str(bundle / "tokenizer.json"))
    good = True
    answers = ask_genie(bundle, [prompt for prompt, _ in expected])
    for (prompt, text), answer in zip(expected, answers, strict=True):
        events = _events(answer)
        made, length = events["num-generated-tokens"], len(tokenizer.encode(text).ids)
        right = answer["code"] == 0 and answer["text"] == text and made in (length, length + 1)
        good = good and right
        print(f"{'ok  ' if right else 'BAD '} {prompt!r} -> {answer['text']!r}")
        print(
            f"     code {answer['code']}, {events['num-prompt-tokens']:.0f} tokens in, {made:.0f} "
            f"out ({length} expected), first after {events['time-to-first-token'] / 1000:.1f} ms, "
            f"{events['token-generation-rate']:.0f} tokens/s, whole {answer['seconds']:.2f} s"
        )
    return good


if __name__ == "__main__":
    sys.exit(0 if verify(Path(sys.argv[1])) else 1)
