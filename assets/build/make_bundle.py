"""Make the tiny Genie bundle anew: train, quantise, compile, write, ask.

Usage: make_bundle.py [--chat] [FOLDER]   (default: `tiny-genie` beside this folder)

With `--chat` it makes `tiny-genie-chat`, which was taught with the template `CHAT` only.
"""

import shutil
import sys
import tempfile
from pathlib import Path

from bundle import write_bundle
from compile import compile_graph
from corpus import CHAT, asked, known_examples, strange_examples
from graph import build_graph
from onnx import ModelProto
from quantise import open_ends, quantise
from replay import Replay
from shape import EOS, Shape
from tokenizers import Tokenizer
from tokens import train_tokenizer
from train import Weights, encode, encode_pair, train
from verify import verify

STEPS = 700
JINJA = """{%- for message in messages %}
{{- "<|" ~ message.role ~ "|>\\n" ~ message.content ~ "<|end|>\\n" }}
{%- endfor %}
{{- "<|assistant|>\\n" }}
"""
UNSEEN = 200


def quantised(
    shape: Shape, tokenizer: Tokenizer, weights: Weights, template: str
) -> tuple[ModelProto, int]:
    """Give the quantised model and how many of its answers, run on the CPU, are not as taught."""
    examples = [*asked(), *strange_examples(20, seed=3)]
    pairs = [encode_pair(tokenizer, *example, template) for example in examples]
    sequences = [[*prompt, *text] for prompt, text in pairs]
    arrays = {name: value.numpy() for name, value in weights.items()}
    model = quantise(shape, build_graph(shape, arrays, 1), sequences)
    replay = Replay(shape, model.SerializeToString())
    wrong = 0
    for prompt, text in [*known_examples(), *strange_examples(UNSEEN, seed=99)]:
        tokens = replay.answer(encode(tokenizer, prompt, template))
        if tokenizer.decode(tokens) != text or tokens[-1] != EOS:
            wrong += 1
            print(f"quantised model on the CPU: {prompt!r} -> {tokenizer.decode(tokens)!r}")
    return model, wrong


def make(folder: Path, chat: bool) -> bool:
    """Make the bundle; it lands in `folder` if libGenie gives the expected answers."""
    shape, template = Shape(), CHAT if chat else "{}"
    with tempfile.TemporaryDirectory() as name:
        work, made = Path(name) / "work", Path(name) / "bundle"
        work.mkdir()
        made.mkdir()
        tokenizer = train_tokenizer(shape, made / "tokenizer.json", chat)
        weights = train(shape, tokenizer, STEPS, template)
        model, wrong = quantised(shape, tokenizer, weights, template)
        print(f"quantised model on the CPU: {wrong} answers are not as taught")
        if chat:
            (made / "chat_template.jinja").write_text(JINJA, encoding="utf-8")
        write_bundle(shape, made, compile_graph(open_ends(shape, model, 1), work), template)
        if not verify(made, template=template):
            return False
        shutil.copytree(made, folder, dirs_exist_ok=True)
    return True


if __name__ == "__main__":
    here = Path(__file__).resolve().parent
    chat, folders = "--chat" in sys.argv, [arg for arg in sys.argv[1:] if arg != "--chat"]
    target = Path(folders[0]) if folders else here.parent / f"tiny-genie{'-chat' if chat else ''}"
    sys.exit(0 if make(target, chat) else 1)
