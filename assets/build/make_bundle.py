"""Make the tiny Genie bundle anew: train, quantise, compile, write, ask.

Usage: make_bundle.py [FOLDER]   (default: the `tiny-genie` folder beside this one)
"""

import shutil
import sys
import tempfile
from pathlib import Path

from bundle import write_bundle
from compile import compile_graph
from corpus import asked, known_examples, strange_examples
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
UNSEEN = 200


def quantised(shape: Shape, tokenizer: Tokenizer, weights: Weights) -> tuple[ModelProto, int]:
    """Give the quantised model and how many of its answers, run on the CPU, are not as taught."""
    examples = [*asked(), *strange_examples(20, seed=3)]
    pairs = [encode_pair(tokenizer, *example) for example in examples]
    sequences = [[*prompt, *text] for prompt, text in pairs]
    arrays = {name: value.numpy() for name, value in weights.items()}
    model = quantise(shape, build_graph(shape, arrays, 1), sequences)
    replay = Replay(shape, model.SerializeToString())
    wrong = 0
    for prompt, text in [*known_examples(), *strange_examples(UNSEEN, seed=99)]:
        tokens = replay.answer(encode(tokenizer, prompt))
        if tokenizer.decode(tokens) != text or tokens[-1] != EOS:
            wrong += 1
            print(f"quantised model on the CPU: {prompt!r} -> {tokenizer.decode(tokens)!r}")
    return model, wrong


def make(folder: Path) -> bool:
    """Make the bundle; it lands in `folder` if libGenie gives the expected answers."""
    shape = Shape()
    with tempfile.TemporaryDirectory() as name:
        work, made = Path(name) / "work", Path(name) / "bundle"
        work.mkdir()
        made.mkdir()
        tokenizer = train_tokenizer(shape, made / "tokenizer.json")
        model, wrong = quantised(shape, tokenizer, train(shape, tokenizer, STEPS))
        print(f"quantised model on the CPU: {wrong} answers are not as taught")
        write_bundle(shape, made, compile_graph(open_ends(shape, model, 1), work))
        if not verify(made):
            return False
        shutil.copytree(made, folder, dirs_exist_ok=True)
    return True


if __name__ == "__main__":
    here = Path(__file__).resolve().parent
    target = Path(sys.argv[1]) if len(sys.argv) > 1 else here.parent / "tiny-genie"
    sys.exit(0 if make(target) else 1)
