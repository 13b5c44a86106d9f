"""Writes a tiny decoder with random weights as a folder of onnxruntime-genai.

make_genai.py FOLDER, or make_genai.py FOLDER pipeline: the embedding apart, for the CPU.

One token a step, a cache of 64 places of static shape, and the mask computed from the position, so
that QNN takes every node. Float; onnxruntime-qnn compiles it to a context binary for Hexagon v73
beside its ONNX wrapper. Needs onnx, onnxruntime and onnxruntime-qnn. Its text means nothing.
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
from onnx import TensorProto, helper, numpy_helper

TOKENIZER = Path(__file__).parents[1] / "tiny-genie" / "tokenizer.json"
VOCABULARY, WIDTH, HEAD, PLACES = 480, 32, 16, 64
BOS, EOS, PAD = 0, 1, 0
OLDEST_IR = 8  # of ONNX; onnxruntime 1.31 reads up to 13, and what onnx writes grows
CACHE = [1, 1, PLACES, HEAD]


class Graph:
    """Nodes and constants as they come."""

    def __init__(self) -> None:
        self.nodes: list[onnx.NodeProto] = []
        self.constants: list[onnx.TensorProto] = []
        self._random = np.random.default_rng(0)

    def constant(self, name: str, value: object) -> None:
        self.constants.append(numpy_helper.from_array(np.asarray(value), name))

    def weights(self, name: str, *shape: int) -> None:
        self.constant(name, (self._random.standard_normal(shape) * 0.3).astype(np.float32))

    def node(self, kind: str, inputs: str, output: str, **attributes: object) -> None:
        self.nodes.append(
            helper.make_node(kind, inputs.split(), [output], name=output, **attributes)
        )


def constants(graph: Graph) -> None:
    """Weights, and what the mask is computed from."""
    graph.weights("embedding", VOCABULARY, WIDTH)
    for name in ("w_q", "w_k", "w_v"):
        graph.weights(name, WIDTH, HEAD)
    graph.weights("w_o", HEAD, WIDTH)
    graph.weights("w_logits", WIDTH, VOCABULARY)
    graph.constant("places", np.arange(PLACES, dtype=np.float32).reshape(1, 1, PLACES, 1))
    graph.constant("one", np.float32(1))
    graph.constant("minus_much", np.float32(-1000))
    graph.constant("scale", np.float32(HEAD**-0.5))
    for name, shape in (
        ("as_head", [1, 1, 1, HEAD]), ("as_row", [1, 1, HEAD]), ("as_point", [1, 1, 1, 1]),
        ("as_mask", [1, 1, 1, PLACES]),
    ):  # fmt: skip
        graph.constant(name, np.array(shape, np.int64))


def nodes(graph: Graph) -> None:
    """One head of attention over a cache that is written at the token's place."""
    node = graph.node
    node("Gather", "embedding input_ids", "x", axis=0)
    node("Cast", "position_ids", "position", to=TensorProto.FLOAT)
    node("Reshape", "position as_point", "point")
    for name in "qkv":
        node("MatMul", f"x w_{name}", f"{name}_flat")
        node("Reshape", f"{name}_flat as_head", name)
    node("Sub", "places point", "distance")
    node("Abs", "distance", "far")
    node("Sub", "one far", "near")
    node("Relu", "near", "here")  # 1 at the place of the token, else 0
    node("Sub", "one here", "elsewhere")
    for name, cache in (("k", "key"), ("v", "value")):
        node("Mul", f"past_key_values.0.{cache} elsewhere", f"{name}_kept")
        node("Mul", f"{name} here", f"{name}_new")
        node("Add", f"{name}_kept {name}_new", f"present.0.{cache}")
    node("Relu", "distance", "ahead")
    node("Mul", "ahead minus_much", "mask_column")
    node("Reshape", "mask_column as_mask", "mask")
    node("Transpose", "present.0.key", "k_turned", perm=[0, 1, 3, 2])
    node("MatMul", "q k_turned", "score")
    node("Mul", "score scale", "scaled")
    node("Add", "scaled mask", "masked")
    node("Softmax", "masked", "attention", axis=-1)
    node("MatMul", "attention present.0.value", "context")
    node("Reshape", "context as_row", "row")
    node("MatMul", "row w_o", "attended")
    node("Add", "x attended", "y")
    node("MatMul", "y w_logits", "logits")


def model() -> onnx.ModelProto:
    """The decoder."""
    graph, info, number = Graph(), helper.make_tensor_value_info, TensorProto.FLOAT
    constants(graph)
    nodes(graph)
    whole = [info(name, TensorProto.INT64, [1, 1]) for name in ("input_ids", "position_ids")]
    past = [info(f"past_key_values.0.{name}", number, CACHE) for name in ("key", "value")]
    present = [info(f"present.0.{name}", number, CACHE) for name in ("key", "value")]
    logits = info("logits", number, [1, 1, VOCABULARY])
    made = helper.make_graph(
        graph.nodes, "tiny", [*whole, *past], [logits, *present], graph.constants
    )
    opset = [helper.make_opsetid("", 17)]
    found = helper.make_model(made, opset_imports=opset, ir_version=OLDEST_IR)
    onnx.checker.check_model(found)
    return found


def configuration() -> dict[str, Any]:
    """genai_config.json."""
    decoder = {
        "session_options": {
            "log_id": "onnxruntime-genai",
            "provider_options": [{"qnn": {"backend_path": "libQnnHtp.so"}}],
        },
        "filename": "model.onnx", "head_size": HEAD, "hidden_size": WIDTH,
        "num_attention_heads": 1, "num_hidden_layers": 1, "num_key_value_heads": 1,
        "inputs": {
            "input_ids": "input_ids", "position_ids": "position_ids",
            "past_key_names": "past_key_values.%d.key",
            "past_value_names": "past_key_values.%d.value",
        },
        "outputs": {
            "logits": "logits", "present_key_names": "present.%d.key",
            "present_value_names": "present.%d.value",
        },
    }  # fmt: skip
    search = {
        "do_sample": False, "max_length": PLACES, "min_length": 0, "num_beams": 1,
        "past_present_share_buffer": True, "chunk_size": 1,
    }  # fmt: skip
    about = {"bos_token_id": BOS, "eos_token_id": EOS, "pad_token_id": PAD, "type": "llama"}
    sizes = {"context_length": PLACES, "vocab_size": VOCABULARY}
    return {"model": {**about, **sizes, "decoder": decoder}, "search": search}


def compile_to(source: Path, target: Path) -> None:
    """A context binary for v73, soc_model 77, and its wrapper."""
    import onnxruntime  # noqa: PLC0415 - the graph alone needs neither
    import onnxruntime_qnn  # noqa: PLC0415

    def own() -> list[Any]:
        devices = onnxruntime.get_ep_devices()
        return [device for device in devices if device.ep_name == "QNNExecutionProvider"]

    if not own():
        library = onnxruntime_qnn.get_library_path()
        onnxruntime.register_execution_provider_library("QNNExecutionProvider", library)
    devices = own()
    options = onnxruntime.SessionOptions()
    for name, value in (
        ("ep.context_enable", "1"), ("ep.context_embed_mode", "0"),
        ("ep.context_file_path", str(target)), ("session.disable_cpu_ep_fallback", "1"),
    ):  # fmt: skip
        options.add_session_config_entry(name, value)
    htp = {"backend_path": "libQnnHtp.so", "soc_model": "77", "htp_arch": "73"}
    options.add_provider_for_devices(devices[:1], htp)
    onnxruntime.InferenceSession(str(source), options)


def parts(whole: onnx.ModelProto) -> tuple[onnx.ModelProto, onnx.ModelProto]:
    """(the embedding, the rest of the decoder), which meet in `x`."""
    info = helper.make_tensor_value_info
    x = info("x", TensorProto.FLOAT, [1, 1, WIDTH])
    ids, *others = whole.graph.input
    first, *rest = whole.graph.node
    found = []
    for name, nodes, inputs, outputs in (
        ("embedding", [first], [ids], [x]),
        ("decoder", rest, [x, *others], whole.graph.output),
    ):
        used = {text for node in nodes for text in node.input}
        weights = [value for value in whole.graph.initializer if value.name in used]
        graph = helper.make_graph(nodes, name, inputs, outputs, weights)
        made = helper.make_model(graph, opset_imports=whole.opset_import, ir_version=OLDEST_IR)
        onnx.checker.check_model(made)
        found.append(made)
    return found[0], found[1]


def pipeline(config: dict[str, Any]) -> dict[str, Any]:
    """The configuration of one model, for the two parts."""
    decoder = config["model"]["decoder"]
    options = decoder.pop("session_options")
    del decoder["filename"]
    caches = [f"0.{name}" for name in ("key", "value")]
    past, present = ([f"{at}.{name}" for name in caches] for at in ("past_key_values", "present"))
    stages = {
        "embedding": {
            "filename": "embedding.onnx", "inputs": ["input_ids"], "outputs": ["x"],
            "session_options": {"provider_options": []},
        },
        "decoder": {
            "filename": "decoder.onnx", "inputs": ["x", "position_ids", *past],
            "outputs": ["logits", *present], "session_options": options,
        },
    }  # fmt: skip
    decoder["session_options"] = {"log_id": "onnxruntime-genai", "provider_options": []}
    decoder["pipeline"] = [{name: stage} for name, stage in stages.items()]
    decoder["sliding_window"] = {
        "window_size": 1, "pad_value": 0, "alignment": "left", "slide_key_value_cache": False,
    }  # fmt: skip
    config["model"]["type"] = "decoder-pipeline"
    return config


def main() -> None:
    """Write the folder."""
    folder, split = Path(sys.argv[1]), sys.argv[2:] == ["pipeline"]
    folder.mkdir(parents=True, exist_ok=True)
    compiled, config = model(), configuration()
    if split:
        embedding, compiled = parts(compiled)
        onnx.save(embedding, str(folder / "embedding.onnx"))
        config = pipeline(config)
    with tempfile.TemporaryDirectory() as made:
        source = Path(made, "model.onnx")
        onnx.save(compiled, str(source))
        compile_to(source, folder / ("decoder.onnx" if split else "model.onnx"))
    text = json.dumps(config, indent=1) + "\n"
    (folder / "genai_config.json").write_text(text, "utf-8")
    shutil.copy(TOKENIZER, folder)
    about = {"tokenizer_class": "PreTrainedTokenizerFast", "bos_token": "<s>", "eos_token": "</s>"}
    (folder / "tokenizer_config.json").write_text(json.dumps(about, indent=1) + "\n", "utf-8")
    sys.stdout.flush()
    os._exit(0)  # the emulator may crash on the way out


if __name__ == "__main__":
    main()
