"""Writes a tiny decoder in the layout of Llama 3.2 for Snapdragon: make_windowed.py FOLDER.

A prompt processor of WINDOW tokens and a token generator of one, each a context binary with its
wrapper, and a cache of 8 bits that slides by a window. The wrappers, the parts for the CPU around
them and genai_config.json are made as by `fleet bundle wrap-ep --genai`. `tokens.npy` has what
numpy gives for the ids in `prompt.npy`. Needs fleet, onnx, onnxruntime and onnxruntime-qnn; its
text means nothing. Shapes, types and names are those that onnxruntime-genai expects of a windowed
cache: windowed_kv_cache.cpp and windowed_position_inputs.cpp in its src/models.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from make_genai import TOKENIZER, compile_to
from onnx import TensorProto, helper, numpy_helper

from fleet.bundles.ep.genai import surroundings
from fleet.bundles.ep.graphs import read_graphs
from fleet.bundles.ep.wrapping import write_wrappers

VOCABULARY, WIDTH, HEADS, HEAD, CONTEXT, WINDOW = 480, 32, 2, 16, 32, 4
BOS, EOS, THETA = 0, 1, 10000.0
PROMPT = [281, 275, 301, 32, 222, 281, 275]  # What is fleet? What is
ANSWER = 12
FLOAT, I32, U8, U16 = TensorProto.FLOAT, TensorProto.INT32, TensorProto.UINT8, TensorProto.UINT16
MASKED = -1000.0
CACHE, MASK, TURN, LOGITS = (
    (0.05, 128),
    (-MASKED / 65535, 65535),
    (1 / 32000, 32768),
    (
        0.001,
        32768,
    ),
)
RNG = np.random.default_rng(45)


def _weights(*shape: int) -> np.ndarray:
    return (RNG.standard_normal(shape) * 0.35).astype(np.float32)


TABLE = _weights(VOCABULARY, WIDTH)
QKV = {name: _weights(WIDTH, HEADS * HEAD) for name in "qkv"}
W_O, W_L = _weights(HEADS * HEAD, WIDTH), _weights(WIDTH, VOCABULARY)


class Graph:
    """Nodes and constants as they come."""

    def __init__(self) -> None:
        self.nodes: list[onnx.NodeProto] = []
        self.constants: list[onnx.TensorProto] = []

    def constant(self, name: str, value: object) -> str:
        self.constants.append(numpy_helper.from_array(np.asarray(value), name))
        return name

    def node(self, kind: str, inputs: str, output: str, **attributes: object) -> str:
        made = helper.make_node(kind, inputs.split(), output.split(), name=output, **attributes)
        self.nodes.append(made)
        return output

    def quantised(
        self, name: str, into: str, pair: tuple[float, int], kind: type, way: str
    ) -> None:
        """QuantizeLinear or DequantizeLinear of a value."""
        scale = self.constant(f"{into}_scale", np.float32(pair[0]))
        zero = self.constant(f"{into}_zero", kind(pair[1]))
        self.node(way, f"{name} {scale} {zero}", into)

    def model(self, inputs: list[Any], outputs: list[Any]) -> onnx.ModelProto:
        info = helper.make_tensor_value_info
        graph = helper.make_graph(
            self.nodes, "g", [info(*row) for row in inputs], [info(*row) for row in outputs],
            self.constants,
        )  # fmt: skip
        made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
        onnx.checker.check_model(made)
        return made


def transformer(width: int) -> onnx.ModelProto:
    """The decoder for `width` tokens at once."""
    graph, past = Graph(), CONTEXT - width
    node, constant = graph.node, graph.constant
    constant("table", TABLE)
    node("Gather", "table input_ids", "x", axis=0)
    for name, pair in (("position_ids_cos", TURN), ("position_ids_sin", TURN), ("mask", MASK)):
        graph.quantised(name, f"{name}_f", pair, np.uint16, "DequantizeLinear")
    constant("as_heads", np.array([1, width, HEADS, HEAD], np.int64))
    for name in "qkv":
        node("MatMul", f"x {constant(f'w_{name}', QKV[name])}", f"{name}_flat")
        node("Reshape", f"{name}_flat as_heads", f"{name}_rows")
        node("Transpose", f"{name}_rows", f"{name}_own", perm=[2, 0, 1, 3])
    constant("halves", np.array([HEAD // 2, HEAD // 2], np.int64))
    for name in "qk":
        node("Split", f"{name}_own halves", f"{name}_1 {name}_2", axis=3)
        for half, own, other, way in (("a", "1", "2", "Sub"), ("b", "2", "1", "Add")):
            node("Mul", f"{name}_{own} position_ids_cos_f", f"{name}_{half}_own")
            node("Mul", f"{name}_{other} position_ids_sin_f", f"{name}_{half}_other")
            node(way, f"{name}_{half}_own {name}_{half}_other", f"{name}_{half}")
        node("Concat", f"{name}_a {name}_b", f"{name}_turned", axis=3)
    node("Transpose", "k_turned", "k_column", perm=[0, 1, 3, 2])
    for name, new, axis in (("key", "k_column", 3), ("value", "v_own", 2)):
        out = f"past_{name}_0_out"
        graph.quantised(new, out, CACHE, np.uint8, "QuantizeLinear")
        graph.quantised(out, f"{name}_new", CACHE, np.uint8, "DequantizeLinear")
        graph.quantised(f"past_{name}_0_in", f"{name}_old", CACHE, np.uint8, "DequantizeLinear")
        node("Concat", f"{name}_old {name}_new", f"{name}_all", axis=axis)
    node("MatMul", "q_turned key_all", "score")
    node("Mul", f"score {constant('scale', np.float32(HEAD**-0.5))}", "scaled")
    node("Add", "scaled mask_f", "masked")
    node("Softmax", "masked", "attention", axis=-1)
    node("MatMul", "attention value_all", "context")
    node("Transpose", "context", "context_rows", perm=[1, 2, 0, 3])
    constant("as_row", np.array([1, width, HEADS * HEAD], np.int64))
    node("Reshape", "context_rows as_row", "row")
    node("MatMul", f"row {constant('w_o', W_O)}", "attended")
    node("Add", "x attended", "y")
    node("MatMul", f"y {constant('w_l', W_L)}", "logits_f")
    graph.quantised("logits_f", "logits_q", LOGITS, np.uint16, "QuantizeLinear")
    half = [1, 1, width, HEAD // 2]
    return graph.model(
        [
            ("input_ids", I32, [1, width]), ("mask", U16, [1, 1, width, CONTEXT]),
            ("position_ids_cos", U16, half), ("position_ids_sin", U16, half),
            ("past_key_0_in", U8, [HEADS, 1, HEAD, past]),
            ("past_value_0_in", U8, [HEADS, 1, past, HEAD]),
        ],
        [
            ("logits_q", U16, [1, width, VOCABULARY]),
            ("past_key_0_out", U8, [HEADS, 1, HEAD, width]),
            ("past_value_0_out", U8, [HEADS, 1, width, HEAD]),
        ],
    )  # fmt: skip


def turns() -> np.ndarray:
    """How fast each pair of a head turns with the position."""
    return (THETA ** (-np.arange(HEAD // 2) / (HEAD // 2))).astype(np.float32)


def answer(prompt: list[int], count: int) -> list[int]:
    """What numpy gives, with keys and values rounded to 8 bits as in the cache."""

    def rounded(value: np.ndarray) -> np.ndarray:
        steps = np.clip(np.round(value / CACHE[0]) + CACHE[1], 0, 255)
        return (steps - CACHE[1]) * CACHE[0]

    def turned(rows: np.ndarray) -> np.ndarray:
        angle = np.arange(len(rows))[:, None, None] * turns()
        one, two = rows[..., : HEAD // 2], rows[..., HEAD // 2 :]
        cos, sin = np.cos(angle), np.sin(angle)
        return np.concatenate([one * cos - two * sin, two * cos + one * sin], -1)

    tokens = list(prompt)
    for _ in range(count):
        x = TABLE[tokens]
        q, k, v = ((x @ QKV[name]).reshape(len(x), HEADS, HEAD) for name in "qkv")
        q, k, v = turned(q)[-1], rounded(turned(k)), rounded(v)
        score = np.einsum("hd,thd->ht", q, k) * HEAD**-0.5
        weights = np.exp(score - score.max(-1, keepdims=True))
        weights /= weights.sum(-1, keepdims=True)
        seen = np.einsum("ht,thd->hd", weights, v).reshape(-1)
        tokens.append(int(((x[-1] + seen @ W_O) @ W_L).argmax()))
    return tokens[len(prompt) :]


def main() -> None:
    """Write the folder."""
    import onnxruntime_qnn  # noqa: PLC0415 - the graph alone does not need it

    folder = Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    np.save(folder / "prompt.npy", np.array(PROMPT))
    np.save(folder / "tokens.npy", np.array(answer(PROMPT, ANSWER)))
    said = {
        "bos_token_id": BOS, "eos_token_id": EOS, "hidden_size": WIDTH,
        "num_attention_heads": HEADS, "rope_theta": THETA,
    }  # fmt: skip
    (folder / "config.json").write_text(json.dumps(said, indent=1) + "\n", "utf-8")
    shutil.copy(TOKENIZER, folder)
    about = {"tokenizer_class": "PreTrainedTokenizerFast", "bos_token": "<s>", "eos_token": "</s>"}
    (folder / "tokenizer_config.json").write_text(json.dumps(about, indent=1) + "\n", "utf-8")
    binaries = [folder / "transformer_prompt.bin", folder / "transformer_token.bin"]
    with tempfile.TemporaryDirectory() as made_in:
        for binary, width in zip(binaries, (WINDOW, 1), strict=True):
            source = Path(made_in, "source.onnx")
            onnx.save(transformer(width), str(source))
            compile_to(source, Path(made_in, f"{binary.stem}.onnx"))
            shutil.move(Path(made_in, f"{binary.stem}_qnn.bin"), binary)
    library = Path(onnxruntime_qnn.get_library_path()).with_name("libQnnSystem.so")
    files = [read_graphs(binary, library) for binary in binaries]
    write_wrappers(files, None, surroundings(files, None))  # fleet bundle wrap-ep --genai
    sys.stdout.flush()
    os._exit(0)  # the emulator may crash on the way out


if __name__ == "__main__":
    main()
