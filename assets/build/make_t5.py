"""Writes a tiny T5 with random weights: make_t5.py FOLDER.

Encoder, decoder and decoder with past, with the names that optimum exports; all shapes are static,
so the cache of the decoder has PLACES places and `cache_position` says which one is written. The
seed is the first whose greedy answer ends by itself, has several tokens, and leaves no doubt
between two tokens, so that another precision gives the same. Needs onnx. The answer means nothing.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator

VOCABULARY, WIDTH, HEAD, INNER, SOURCE, PLACES = 64, 32, 16, 64, 12, 16
PAD, EOS = 0, 1
OLDEST_IR = 8  # as of make_genai.py
MASKED, EPSILON, SURE = -1000, 1e-6, 0.5
SHAPES = {
    "input_ids": [1, SOURCE], "attention_mask": [1, SOURCE], "encoder_attention_mask": [1, SOURCE],
    "decoder_input_ids": [1, 1], "cache_position": [1], "last_hidden_state": [1, SOURCE, WIDTH],
    "encoder_hidden_states": [1, SOURCE, WIDTH], "logits": [1, 1, VOCABULARY],
}  # fmt: skip
CACHES = [f"{half}.{name}" for half in ("decoder", "encoder") for name in ("key", "value")]


class Graph:
    """One of the three models, as nodes come; the constants that they use are kept."""

    def __init__(self, constants: dict[str, np.ndarray]) -> None:
        self.nodes: list[onnx.NodeProto] = []
        self.constants = constants

    def node(self, kind: str, inputs: str, output: str, **attributes: object) -> str:
        made = helper.make_node(kind, inputs.split(), [output], name=output, **attributes)
        self.nodes.append(made)
        return output

    def normed(self, x: str, name: str) -> str:
        """T5's layer norm: by the root mean square, without a bias."""
        self.node("Mul", f"{x} {x}", f"{name}_square")
        self.node("ReduceMean", f"{name}_square", f"{name}_mean", axes=[-1], keepdims=1)
        self.node("Add", f"{name}_mean epsilon", f"{name}_sum")
        self.node("Sqrt", f"{name}_sum", f"{name}_root")
        return self.node("Div", f"{x} {name}_root", f"{name}_normed")

    def projected(self, x: str, weights: str, output: str) -> str:
        """One head of `weights`, [1, 1, places, HEAD]."""
        self.node("MatMul", f"{x} {weights}", f"{output}_flat")
        return self.node("Unsqueeze", f"{output}_flat first", output)

    def attended(self, name: str, x: str, keys: str, values: str, bias: str) -> str:
        """x + attention over `keys`; T5 does not scale the scores."""
        query = self.projected(self.normed(x, name), f"{name}_q", f"{name}_query")
        self.node("Transpose", keys, f"{name}_turned", perm=[0, 1, 3, 2])
        self.node("MatMul", f"{query} {name}_turned", f"{name}_score")
        self.node("Add", f"{name}_score {bias}", f"{name}_biased")
        self.node("Softmax", f"{name}_biased", f"{name}_weights", axis=-1)
        self.node("MatMul", f"{name}_weights {values}", f"{name}_head")
        self.node("Squeeze", f"{name}_head first", f"{name}_context")
        self.node("MatMul", f"{name}_context {name}_o", f"{name}_projected")
        return self.node("Add", f"{x} {name}_projected", f"{name}_out")

    def forward(self, name: str, x: str) -> str:
        """x + two layers with ReLU between."""
        self.node("MatMul", f"{self.normed(x, name)} {name}_in", f"{name}_inner")
        self.node("Relu", f"{name}_inner", f"{name}_bent")
        self.node("MatMul", f"{name}_bent {name}_o", f"{name}_back")
        return self.node("Add", f"{x} {name}_back", f"{name}_out")

    def mask(self, name: str) -> str:
        """0 where there is a token, much less where there is none."""
        self.node("Cast", name, "mask_number", to=TensorProto.FLOAT)
        self.node("Sub", "one mask_number", "mask_gone")
        self.node("Mul", "mask_gone masked", "mask_flat")
        return self.node("Reshape", "mask_flat as_mask", "mask")

    def model(self, name: str, inputs: list[str], outputs: list[str]) -> onnx.ModelProto:
        used = {text for node in self.nodes for text in node.input}
        weights = [
            numpy_helper.from_array(value, key)
            for key, value in self.constants.items()
            if key in used
        ]
        ends = ([_info(name, text) for text in names] for names in (inputs, outputs))
        graph = helper.make_graph(self.nodes, name, *ends, weights)
        opset = [helper.make_opsetid("", 17)]
        made = helper.make_model(graph, opset_imports=opset, ir_version=OLDEST_IR)
        onnx.checker.check_model(made)
        return made


def _info(model: str, name: str) -> onnx.ValueInfoProto:
    number = TensorProto.FLOAT
    if name.endswith((".key", ".value")):
        places = SOURCE if ".encoder." in name else PLACES
        return helper.make_tensor_value_info(name, number, [1, 1, places, HEAD])
    if name.endswith(("ids", "mask", "position")):
        number = TensorProto.INT64
    key = "decoder_input_ids" if name == "input_ids" and model != "encoder" else name
    return helper.make_tensor_value_info(name, number, SHAPES[key])


def constants(seed: int) -> dict[str, np.ndarray]:
    """Weights, and what masks and caches are computed from."""
    random = np.random.default_rng(seed)
    found = {"shared": random.standard_normal((VOCABULARY, WIDTH))}
    for name in ("encoder_self", "decoder_self", "cross"):
        for part in "qkv":
            found[f"{name}_{part}"] = random.standard_normal((WIDTH, HEAD)) * WIDTH**-0.5
        found[f"{name}_o"] = random.standard_normal((HEAD, WIDTH))
    for name in ("encoder_forward", "decoder_forward"):
        found[f"{name}_in"] = random.standard_normal((WIDTH, INNER)) * 0.3
        found[f"{name}_o"] = random.standard_normal((INNER, WIDTH)) * 0.3
    found["w_logits"] = random.standard_normal((WIDTH, VOCABULARY))
    near = random.standard_normal(2 * PLACES)  # the relative position bias, by distance
    at = np.arange(SOURCE)
    found["encoder_bias"] = near[at[:, None] - at + PLACES][None, None]
    at = np.arange(PLACES)
    bias = np.where(at <= at[:, None], near[at[:, None] - at + PLACES], MASKED)
    found |= {"decoder_bias": bias, "at": np.eye(PLACES), "elsewhere": 1 - np.eye(PLACES)}
    numbers = {"one": 1, "masked": MASKED, "epsilon": EPSILON}
    shapes = {
        "first": [1], "as_mask": [1, 1, 1, SOURCE], "as_places": [1, 1, PLACES, 1],
        "as_bias": [1, 1, 1, PLACES], "start": [0],
    }  # fmt: skip
    return {
        **{name: np.asarray(value, np.float32) for name, value in (found | numbers).items()},
        **{name: np.array(value, np.int64) for name, value in shapes.items()},
    }


def encoder(weights: dict[str, np.ndarray]) -> onnx.ModelProto:
    """Ids and mask to the last hidden state."""
    graph = Graph(weights)
    x = graph.node("Gather", "shared input_ids", "x", axis=0)
    bias = graph.node("Add", f"encoder_bias {graph.mask('attention_mask')}", "bias")
    normed = graph.normed(x, "encoder_kv")
    pair = (graph.projected(normed, f"encoder_self_{part}", part) for part in "kv")
    x = graph.forward("encoder_forward", graph.attended("encoder_self", x, *pair, bias))
    graph.node("Identity", graph.normed(x, "last"), "last_hidden_state")
    return graph.model("encoder", ["input_ids", "attention_mask"], ["last_hidden_state"])


def decoder(weights: dict[str, np.ndarray], *, past: bool) -> onnx.ModelProto:
    """One token. Without past the caches are made, with it that of the decoder gets one more."""
    graph, place = Graph(weights), "cache_position" if past else "start"
    x = graph.node("Gather", "shared input_ids", "x", axis=0)
    for name, shape in (("at", "places"), ("elsewhere", "places"), ("decoder_bias", "bias")):
        graph.node("Gather", f"{name} {place}", f"{name}_row", axis=0)
        graph.node("Reshape", f"{name}_row as_{shape}", f"{name}_here")
    normed = graph.normed(x, "decoder_kv")
    for part, name in (("k", "key"), ("v", "value")):
        graph.projected(normed, f"decoder_self_{part}", part)
        new = graph.node("Mul", f"{part} at_here", f"{part}_new") if past else ""
        kept = f"past_key_values.0.decoder.{name} elsewhere_here"
        if past:
            graph.node("Mul", kept, f"{part}_kept")
            graph.node("Add", f"{part}_kept {new}", f"present.0.decoder.{name}")
        else:
            graph.node("Mul", f"{part} at_here", f"present.0.decoder.{name}")
            graph.projected("encoder_hidden_states", f"cross_{part}", f"present.0.encoder.{name}")
    own = (f"present.0.decoder.{name}" for name in ("key", "value"))
    x = graph.attended("decoder_self", x, *own, "decoder_bias_here")
    root = "past_key_values" if past else "present"
    other = (f"{root}.0.encoder.{name}" for name in ("key", "value"))
    x = graph.attended("cross", x, *other, graph.mask("encoder_attention_mask"))
    x = graph.normed(graph.forward("decoder_forward", x), "last")
    graph.node("MatMul", f"{x} w_logits", "logits")
    inputs = ["input_ids", "encoder_attention_mask"]
    inputs += [f"past_key_values.0.{name}" for name in CACHES] if past else []
    inputs += ["cache_position"] if past else ["encoder_hidden_states"]
    made = [f"present.0.{name}" for name in (CACHES[:2] if past else CACHES)]
    return graph.model("decoder_with_past" if past else "decoder", inputs, ["logits", *made])


def answer(models: list[onnx.ModelProto], given: dict[str, np.ndarray]) -> tuple[list[int], float]:
    """The greedy tokens by ONNX's reference evaluator, and how sure the least sure one is."""
    first, *others = (ReferenceEvaluator(model) for model in models)
    known = {"encoder_hidden_states": first.run(None, given)[0]}
    known["encoder_attention_mask"] = given["attention_mask"]
    tokens, sure = list[int](), np.inf
    while len(tokens) < PLACES and EOS not in tokens:
        part = others[bool(tokens)]
        known["input_ids"] = np.array([tokens[-1:] or [PAD]], np.int64)
        known["cache_position"] = np.array([len(tokens)], np.int64)
        names = {name.replace("past_key_values", "present"): name for name in part.input_names}
        outputs = part.run(None, {name: known[key] for key, name in names.items()})
        known |= dict(zip(part.output_names, outputs, strict=True))
        best = np.sort(known["logits"].ravel())
        sure = min(sure, float(best[-1] - best[-2]))
        tokens.append(int(known["logits"].argmax()))
    return tokens, sure


def main() -> None:
    """Write the folder."""
    folder = Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    mask = (np.arange(SOURCE) < SOURCE - 3).astype(np.int64)[None]
    ids = np.random.default_rng(0).integers(2, VOCABULARY, (1, SOURCE)) * mask
    given = {"input_ids": ids, "attention_mask": mask}
    for seed in range(10_000):
        weights = constants(seed)
        models = [encoder(weights), *(decoder(weights, past=past) for past in (False, True))]
        tokens, sure = answer(models, given)
        if tokens[-1] == EOS and len(set(tokens)) > 5 and sure > SURE:
            break
    for model, name in zip(models, ("encoder", "decoder", "decoder_with_past"), strict=True):
        onnx.save(model, str(folder / f"{name}_model.onnx"))
    for name, value in {**given, "tokens": np.array(tokens, np.int64)}.items():
        np.save(folder / f"{name}.npy", value)
    sys.stdout.write(f"seed {seed}, tokens {tokens}, sure by {sure:.2f}\n")


if __name__ == "__main__":
    main()
