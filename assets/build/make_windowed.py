"""Writes a tiny decoder in the layout of Llama 3.2 for Snapdragon: make_windowed.py FOLDER.

A prompt processor of WINDOW tokens and a token generator of one, each a context binary with its
wrapper, a cache of 8 bits that slides by a window, and the parts for the CPU around them:
position-processor, quantizer and dequantizer. `tokens.npy` has what numpy gives for the ids in
`prompt.npy`. Needs onnx, onnxruntime and onnxruntime-qnn; its text means nothing. Shapes, types
and names are those that onnxruntime-genai expects of a windowed cache: windowed_kv_cache.cpp and
windowed_position_inputs.cpp in its src/models.
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

VOCABULARY, WIDTH, HEADS, HEAD, CONTEXT, WINDOW = 480, 32, 2, 16, 32, 4
BOS, EOS, PAD = 0, 1, 0
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
    return (10000.0 ** (-np.arange(HEAD // 2) / (HEAD // 2))).astype(np.float32)


def position_processor() -> onnx.ModelProto:
    """Positions and the mask of genai → cosine, sine, and what is added to a score."""
    graph = Graph()
    node, constant = graph.node, graph.constant
    node("Cast", "position_ids", "at", to=FLOAT)
    node("Unsqueeze", f"at {constant('behind', np.array([0, 3], np.int64))}", "column")
    node("Mul", f"column {constant('turns', turns().reshape(1, 1, 1, -1))}", "angle")
    node("Cos", "angle", "position_ids_cos_f")
    node("Sin", "angle", "position_ids_sin_f")
    node("Shape", "position_ids", "sizes")
    node("Gather", f"sizes {constant('second', np.int64(1))}", "width")
    node("Sub", f"{constant('context', np.int64(CONTEXT))} width", "first")
    node("Range", f"first context {constant('one', np.int64(1))}", "queries")
    node("Unsqueeze", f"queries {constant('as_column', np.array([0, 1, 3], np.int64))}", "query")
    node(
        "LessOrEqual", f"{constant('keys', np.arange(CONTEXT).reshape(1, 1, 1, -1))} query", "seen"
    )
    node("Cast", "attention_mask", "there", to=TensorProto.BOOL)
    node("Unsqueeze", f"there {constant('before', np.array([1, 2], np.int64))}", "there_row")
    node("And", "seen there_row", "open")
    zero, far = constant("zero", np.float32(0)), constant("far", np.float32(MASKED))
    node("Where", f"open {zero} {far}", "mask_f")
    half = [1, 1, "width", HEAD // 2]
    return graph.model(
        [("position_ids", I32, [1, "width"]), ("attention_mask", I32, [1, CONTEXT])],
        [
            ("position_ids_cos_f", FLOAT, half), ("position_ids_sin_f", FLOAT, half),
            ("mask_f", FLOAT, [1, 1, "width", CONTEXT]),
        ],
    )  # fmt: skip


def boundary(
    rows: list[tuple[str, str, tuple[float, int], list[Any]]], way: str
) -> onnx.ModelProto:
    """Quantizer or dequantizer: each value by its own pair, 16 bits."""
    graph, kinds = Graph(), (FLOAT, U16) if way == "QuantizeLinear" else (U16, FLOAT)
    for name, into, pair, _ in rows:
        graph.quantised(name, into, pair, np.uint16, way)
    return graph.model(
        [(name, kinds[0], shape) for name, _, _, shape in rows],
        [(into, kinds[1], shape) for _, into, _, shape in rows],
    )


def configuration() -> dict[str, Any]:
    """genai_config.json."""
    npu = {"provider_options": [{"qnn": {"backend_path": "libQnnHtp.so"}}]}
    turned = ["position_ids_cos", "position_ids_sin", "mask"]
    caches = [f"past_{name}_0" for name in ("key", "value")]
    decoder = {
        "inputs": ["input_ids", *turned, *(f"{name}_in" for name in caches)],
        "outputs": ["logits_q", *(f"{name}_out" for name in caches)],
        "session_options": npu,
    }
    floats = [f"{name}_f" for name in turned]
    stages: dict[str, dict[str, Any]] = {
        "position-processor": {"inputs": ["position_ids", "attention_mask"], "outputs": floats},
        "quantizer": {"inputs": floats, "outputs": turned},
        "transformer_prompt": {**decoder, "run_on_token_gen": False},
        "transformer_token": {**decoder, "run_on_prompt": False},
        "dequantizer": {"inputs": ["logits_q"], "outputs": ["logits"]},
    }
    cpu = {"session_options": {"provider_options": []}}
    pipeline = [
        {name: {"filename": f"{name}.onnx", **cpu, **stage}} for name, stage in stages.items()
    ]
    about = {
        "bos_token_id": BOS,
        "eos_token_id": EOS,
        "pad_token_id": PAD,
        "type": "decoder-pipeline",
    }
    return {
        "model": {
            **about, "context_length": CONTEXT, "vocab_size": VOCABULARY,
            "decoder": {
                "head_size": HEAD, "hidden_size": WIDTH, "num_attention_heads": HEADS,
                "num_hidden_layers": 1, "num_key_value_heads": HEADS,
                "session_options": {"log_id": "onnxruntime-genai", "provider_options": []},
                "inputs": {
                    "input_ids": "input_ids", "position_ids": "position_ids",
                    "attention_mask": "attention_mask",
                    "past_key_names": "past_key_%d_in", "past_value_names": "past_value_%d_in",
                },
                "outputs": {
                    "logits": "logits", "present_key_names": "past_key_%d_out",
                    "present_value_names": "past_value_%d_out",
                },
                "pipeline": pipeline,
                "sliding_window": {
                    "window_size": WINDOW, "pad_value": CACHE[1], "alignment": "right",
                    "slide_key_value_cache": True, "slide_inputs": True,
                },
            },
        },
        "search": {
            "do_sample": False, "max_length": CONTEXT, "min_length": 0, "num_beams": 1,
            "past_present_share_buffer": False,
        },
    }  # fmt: skip


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
    folder = Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    half = [1, 1, "width", HEAD // 2]
    turned = (("position_ids_cos", TURN, half), ("position_ids_sin", TURN, half),
              ("mask", MASK, [1, 1, "width", CONTEXT]))  # fmt: skip
    quantizer = boundary(
        [(f"{n}_f", n, pair, shape) for n, pair, shape in turned], "QuantizeLinear"
    )
    rows = [("logits_q", "logits", LOGITS, [1, "width", VOCABULARY])]
    for name, made in (
        ("position-processor", position_processor()), ("quantizer", quantizer),
        ("dequantizer", boundary(rows, "DequantizeLinear")),
    ):  # fmt: skip
        onnx.save(made, str(folder / f"{name}.onnx"))
    np.save(folder / "prompt.npy", np.array(PROMPT))
    np.save(folder / "tokens.npy", np.array(answer(PROMPT, ANSWER)))
    (folder / "genai_config.json").write_text(json.dumps(configuration(), indent=1) + "\n", "utf-8")
    shutil.copy(TOKENIZER, folder)
    about = {"tokenizer_class": "PreTrainedTokenizerFast", "bos_token": "<s>", "eos_token": "</s>"}
    (folder / "tokenizer_config.json").write_text(json.dumps(about, indent=1) + "\n", "utf-8")
    with tempfile.TemporaryDirectory() as made_in:
        for name, width in (("transformer_prompt", WINDOW), ("transformer_token", 1)):
            source = Path(made_in, f"{name}.onnx")
            onnx.save(transformer(width), str(source))
            compile_to(source, folder / f"{name}.onnx")
    sys.stdout.flush()
    os._exit(0)  # the emulator may crash on the way out


if __name__ == "__main__":
    main()
