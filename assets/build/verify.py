"""Ask the finished bundle through the real libGenie of the onnxruntime-qnn wheel.

Usage: verify.py BUNDLE [--all] [--chat]

With `--all` it also asks every known question in all its variations and 150 strange prompts that
were not in the training, which takes about three minutes.
"""

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import onnxruntime_qnn as qnn
from bundle import PROMPT
from corpus import CHAT, FALLBACK, asked, known_examples, strange_examples
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
    """Give what libGenie answers; raises if the process fails or takes over twenty minutes."""
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
            timeout=1200,
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


def _expected(every: bool) -> list[tuple[str, str]]:
    pairs = [(f"{PROMPT}\n", asked()[0][1]), *asked(), *((prompt, FALLBACK) for prompt in STRANGE)]
    if every:
        pairs += [*known_examples(), *strange_examples(150, seed=4242)]
    return list(dict(pairs).items())


def verify(bundle: Path, every: bool = False, template: str = "{}") -> bool:
    """Print every answer; say whether all have the expected text and ended by themselves."""
    expected = [(template.format(prompt), text) for prompt, text in _expected(every)]
    tokenizer = Tokenizer.from_file(str(bundle / "tokenizer.json"))
    wrong = 0
    answers = ask_genie(bundle, [prompt for prompt, _ in expected])
    for (prompt, text), answer in zip(expected, answers, strict=True):
        events = _events(answer)
        made, length = events.get("num-generated-tokens"), len(tokenizer.encode(text).ids)
        right = answer["code"] == 0 and answer["text"] == text and made == length + 1
        wrong += not right
        print(f"{'ok  ' if right else 'BAD '} {prompt!r} -> {answer['text']!r}")
        print(
            f"     code {answer['code']}, {events.get('num-prompt-tokens')} tokens in, {made} out, "
            f"first after {events.get('time-to-first-token', 0) / 1000:.1f} ms, "
            f"{events.get('token-generation-rate', 0):.0f} tokens/s, "
            f"whole {answer['seconds']:.2f} s"
        )
    print(f"{len(expected)} prompts, {wrong} answers not as taught")
    return wrong == 0


if __name__ == "__main__":
    template = CHAT if "--chat" in sys.argv else "{}"
    sys.exit(0 if verify(Path(sys.argv[1]), "--all" in sys.argv[2:], template) else 1)
