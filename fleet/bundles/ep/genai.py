"""Folders of onnxruntime-genai for context binaries of a language model, as AI Hub exports them.

A model has a prompt graph and a token graph with a cache that slides by a window, in one part or in
several. A position-processor, a quantizer and a dequantizer for the CPU surround them. The parts,
their names and `genai_config.json` are those of quic/ai-hub-models,
models/_shared/llama3/ort_genai.py. The needs of the cache are in src/models/windowed_kv_cache.cpp
of microsoft/onnxruntime-genai.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from graphlib import CycleError, TopologicalSorter
from pathlib import Path
from types import ModuleType
from typing import Annotated, Any

import msgspec

from fleet.bundles.ep.graphs import Graph, GraphFile, Tensor
from fleet.bundles.ep.onnxlib import onnx_package
from fleet.bundles.ep.wrapping import IR_VERSION, OPSET, wrapper_names
from fleet.bundles.jsonfile import read_json
from fleet.model.errors import BundleError
from fleet.model.plain import read_plain

GENAI = "genai_config.json"
_CACHE = re.compile(r"past_(key|value)_(\d+)_(in|out)")
_MASK, _POSITIONS, _LOGITS = "attention_mask_before_processor", "position_ids", "dequantized"
_FLOAT_MASK = -50.0  # the value that AI Hub adds to a masked score
_Positive = Annotated[float, msgspec.Meta(gt=0)]
_EXPORT = (
    "name all context binaries of one AI Hub export: fleet bundle wrap-ep --genai FOLDER/*.bin"
)


class Llama3(msgspec.Struct, frozen=True):
    """Scaling of rotary embeddings in Llama 3.1 and later."""

    factor: _Positive
    low_freq_factor: _Positive
    high_freq_factor: _Positive
    original_max_position_embeddings: _Positive


class GenaiModel(msgspec.Struct, frozen=True):
    """Values of a model that no context binary contains, by their names in `config.json`."""

    rope_theta: _Positive
    eos_token_id: tuple[int, ...]
    bos_token_id: int | None = None
    num_attention_heads: int | None = None
    hidden_size: int | None = None
    llama3: Llama3 | None = None


@dataclass(frozen=True)
class Stage:
    """A graph in the pipeline, with its wrapper and its number of tokens (`width`)."""

    wrapper: str
    graph: Graph
    width: int


@dataclass(frozen=True)
class GenaiLayout:
    """The graphs of a decoder in the order in which they run, with the graphs of the prompt first.

    `window` is the number of tokens of a prompt graph. `cache` is one input of the cache for keys,
    and `layers` is the number of such inputs.
    """

    stages: tuple[Stage, ...]
    window: int
    mask: Tensor
    cos: Tensor
    sin: Tensor
    logits: Tensor
    cache: Tensor
    layers: int

    @property
    def context(self) -> int:
        """The number of tokens of prompt and answer together."""
        return self.mask.shape[-1]


def read_description(folder: Path) -> GenaiModel:
    """Return the values of a model from `config.json` of Hugging Face or from `genie_config.json`.

    `config.json` is preferred. Raises BundleError or InputError if neither file exists, or if a
    value is missing or unknown.
    """
    path, ids = folder / "config.json", folder / "generation_config.json"
    if path.is_file():
        values = read_json(path)
        more = read_json(ids) if ids.is_file() else {}
        rope = values.get("rope_parameters") or values.get("rope_scaling")
        theta = values.get("rope_theta", _at(rope, "rope_theta"))
        values["eos_token_id"] = more.get("eos_token_id", values.get("eos_token_id"))
    else:
        path = folder / "genie_config.json"
        if not path.is_file():
            raise BundleError(
                f"{folder} has no config.json: a context binary does not say which rotary "
                "embedding and which end token its model has",
                hint="copy config.json and generation_config.json of the model beside the binaries",
            )
        dialog = read_json(path).get("dialog")
        place = _at(dialog, "engine", "model", "positional-encoding")
        theta = _at(place, "rope-theta") or _at(dialog, "engine", "backend", "QnnHtp", "rope-theta")
        rope, names = _at(place, "rope-scaling"), ("bos", "eos")
        values = {f"{name}_token_id": _at(dialog, "context", f"{name}-token") for name in names}
    pairs = rope.items() if isinstance(rope, dict) else ()
    rope = {key.replace("-", "_"): value for key, value in pairs}
    kind = rope.get("rope_type", rope.get("type", "default"))
    if kind not in ("default", "llama3"):
        raise BundleError(
            f"{path} has the rotary embedding {str(kind)[:80]!r}, which fleet does not compute",
            hint="use the position-processor.onnx and the genai_config.json of the exporter",
        )
    ends = values["eos_token_id"]
    ends = ends or None if isinstance(ends, list) or ends is None else [ends]
    more = {"rope_theta": theta, "eos_token_id": ends, "llama3": rope if kind == "llama3" else None}
    return read_plain(
        GenaiModel, {**values, **more}, str(path), "copy config.json of the model there"
    )


def _at(value: Any, *keys: str) -> Any:  # noqa: ANN401 - JSON of a stranger
    """Return the value at a path of keys, or None if one of the keys is missing."""
    for key in keys:
        value = value.get(key) if isinstance(value, dict) else None
    return value


def read_layout(files: Sequence[GraphFile]) -> GenaiLayout:
    """Return the prompt graphs and token graphs of binaries, in their order.

    The graphs of the longest context are used, and the largest width of a prompt graph. Raises
    BundleError if a part is missing or if the layout is another one.
    """
    stages = [
        Stage(name, graph, _width(graph))
        for file in files
        for name, graph in wrapper_names(file).items()
    ]
    widths = sorted({stage.width for stage in stages})
    if len(widths) < 2 or widths[0] != 1:
        raise BundleError(
            "onnxruntime-genai needs a prompt graph of several tokens and a token graph of one, "
            f"but these binaries have graphs for {', '.join(map(str, widths))} tokens at once",
            hint=_EXPORT,
        )
    longest = max(_context(stage.graph) for stage in stages)
    used = [stage for stage in stages if _context(stage.graph) in (0, longest)]
    prompt, token = (_ordered([s for s in used if s.width == wide]) for wide in (widths[-1], 1))
    return _layout(prompt, token)


def _layout(prompt: list[Stage], token: list[Stage]) -> GenaiLayout:
    inputs = {tensor.name: tensor for stage in prompt for tensor in stage.graph.inputs}
    caches = {name: tensor for name, tensor in inputs.items() if _CACHE.fullmatch(name)}
    made = {tensor.name for stage in prompt for tensor in stage.graph.outputs}
    roles = {role: [name for name in inputs if role in name] for role in ("mask", "cos", "sin")}
    own = {"input_ids", *caches, *(name for names in roles.values() for name in names)}
    unknown = [name for name in inputs if name not in own | made]
    wrong = [role for role, names in roles.items() if len(names) != 1]
    logits = [t for t in prompt[-1].graph.outputs if not _CACHE.fullmatch(t.name)]
    keys = [tensor for name, tensor in caches.items() if name.startswith("past_key")]
    problem = ""
    if unknown:
        problem = f"no graph of these binaries makes the input {unknown[0]}"
    elif wrong or "input_ids" not in inputs or not keys:
        missing = [*(wrong or ["input_ids" if keys else "past_key_0_in"])]
        problem = f"the graphs have no input {missing[0]}, or more than one"
    elif len(logits) != 1:
        problem = (
            f"the last part {prompt[-1].graph.name} has {len(logits)} outputs beside the cache"
        )
    elif logits[0].shape[-1:] in {t.shape[-1:] for t in prompt[-1].graph.inputs if t.name in made}:
        problem = f"{logits[0].name} of the last part are hidden states, not logits"
    elif keys[0].element != "UINT8" or keys[0].offset is None or len(keys[0].shape) != 4:
        problem = (
            f"the cache {keys[0].name} is {keys[0].element.lower()}, but onnxruntime-genai slides "
            "caches of 8 bits only"
        )
    elif [len(stage.graph.inputs) for stage in prompt] != [len(s.graph.inputs) for s in token]:
        problem = "the prompt graphs and the token graphs have different inputs"
    if problem:
        raise BundleError(f"these context binaries make no genai folder: {problem}", hint=_EXPORT)
    mask, cos, sin = (inputs[roles[role][0]] for role in ("mask", "cos", "sin"))
    window = prompt[0].width
    stages = (*prompt, *token)
    return GenaiLayout(stages, window, mask, cos, sin, logits[0], keys[0], len(keys))


def _ordered(stages: list[Stage]) -> list[Stage]:
    """Sort the parts of one chain: each part follows the parts whose outputs it reads.

    Raises BundleError for a loop.
    """
    makers = {t.name: at for at, stage in enumerate(stages) for t in stage.graph.outputs}
    needs = {
        at: {makers[t.name] for t in stage.graph.inputs if t.name in makers}
        for at, stage in enumerate(stages)
    }
    try:
        return [stages[at] for at in TopologicalSorter(needs).static_order()]
    except CycleError as error:
        raise BundleError("the graphs of these binaries form a loop", hint=_EXPORT) from error


def _width(graph: Graph) -> int:
    """Return the number of tokens that a graph processes at once. Raises BundleError if it has
    none.
    """
    for tensor in graph.inputs:
        if tensor.name == "input_ids" and tensor.shape:
            return tensor.shape[-1]
    for tensor in graph.inputs:
        if len(tensor.shape) > 2 and any(role in tensor.name for role in ("cos", "sin", "mask")):
            return tensor.shape[-2]
    for tensor in graph.inputs:  # hidden states, if the graph is only an output layer
        if len(tensor.shape) > 1 and not _CACHE.fullmatch(tensor.name):
            return tensor.shape[-2]
    raise BundleError(f"graph {graph.name} takes no tokens", hint=_EXPORT)


def _context(graph: Graph) -> int:
    """Return the number of tokens in the mask of a graph, or 0 if it has no mask."""
    return next((t.shape[-1] for t in graph.inputs if "mask" in t.name and t.shape), 0)


def frequencies(model: GenaiModel, pairs: int) -> list[float]:
    """Return the angle in radians by which each pair of a head turns from one position to the next.

    The scaling `llama3` is that of modeling_rope_utils.py of huggingface/transformers.
    """
    plain = [model.rope_theta ** (-at / pairs) for at in range(pairs)]
    rope = model.llama3
    if rope is None:
        return plain
    low, high = rope.low_freq_factor, rope.high_freq_factor

    def scaled(turn: float) -> float:
        share = rope.original_max_position_embeddings * turn / (2 * math.pi)
        share = min(max((share - low) / ((high - low) or 1.0), 0.0), 1.0)
        return (1 - share) * turn / rope.factor + share * turn

    return [scaled(turn) for turn in plain]


class _Nodes:
    """An ONNX graph under construction."""

    def __init__(self, onnx: ModuleType) -> None:
        self._onnx, self._nodes, self._constants = onnx, list[Any](), list[Any]()

    def constant(self, name: str, kind: str, shape: Sequence[int], values: Sequence[float]) -> str:
        element = getattr(self._onnx.TensorProto, kind)
        self._constants.append(self._onnx.helper.make_tensor(name, element, shape, values))
        return name

    def node(self, kind: str, inputs: str, output: str, **attributes: object) -> None:
        made = self._onnx.helper.make_node(kind, inputs.split(), [output], output, **attributes)
        self._nodes.append(made)

    def model(self, name: str, inputs: list[Any], outputs: list[Any]) -> bytes:
        helper, kinds = self._onnx.helper, self._onnx.TensorProto

        def values(rows: list[Any]) -> list[Any]:
            return [
                helper.make_tensor_value_info(name, getattr(kinds, kind), shape)
                for name, kind, shape in rows
            ]

        graph = helper.make_graph(
            self._nodes, name, values(inputs), values(outputs), self._constants
        )
        opsets = [helper.make_opsetid("", OPSET)]
        made = helper.make_model(
            graph, opset_imports=opsets, producer_name="fleet", ir_version=IR_VERSION
        )
        self._onnx.checker.check_model(made)
        return bytes(made.SerializeToString(deterministic=True))


def _position_processor(onnx: ModuleType, layout: GenaiLayout, model: GenaiModel) -> bytes:
    """Return the model that computes cosine, sine and mask from the inputs of genai.

    The inputs are the positions and the mask of genai. The computed mask is added to the scores.
    The keys stand at the right end of the context, so query i of n may see the first
    context - n + i + 1 keys.
    """
    nodes, context, pairs = _Nodes(onnx), layout.context, layout.cos.shape[-1]
    node, constant = nodes.node, nodes.constant
    turns = constant("turns", "FLOAT", [1, 1, 1, pairs], frequencies(model, pairs))
    node("Cast", _POSITIONS, "at", to=onnx.TensorProto.FLOAT)
    node("Unsqueeze", f"at {constant('behind', 'INT64', [2], [0, 3])}", "column")
    node("Mul", f"column {turns}", "angle")
    node("Cos", "angle", f"{layout.cos.name}_before_quantizer")
    node("Sin", "angle", f"{layout.sin.name}_before_quantizer")
    node("Shape", _POSITIONS, "sizes")
    node("Gather", f"sizes {constant('second', 'INT64', [], [1])}", "width")
    node("Sub", f"{constant('context', 'INT64', [], [context])} width", "first")
    node("Range", f"first context {constant('one', 'INT64', [], [1])}", "queries")
    node("Unsqueeze", f"queries {constant('as_column', 'INT64', [3], [0, 1, 3])}", "query")
    keys = constant("keys", "INT64", [1, 1, 1, context], range(context))
    node("LessOrEqual", f"{keys} query", "seen")
    node("Cast", _MASK, "there", to=onnx.TensorProto.BOOL)
    node("Unsqueeze", f"there {constant('before', 'INT64', [2], [1, 2])}", "there_row")
    node("And", "seen there_row", "open")
    mask = layout.mask
    far = _FLOAT_MASK if mask.scale is None else float(mask.offset or 0) * mask.scale
    zero, masked = constant("zero", "FLOAT", [], [0]), constant("masked", "FLOAT", [], [far])
    node("Where", f"open {zero} {masked}", f"{mask.name}_before_quantizer")
    inputs = [(_MASK, "INT32", [1, context]), (_POSITIONS, "INT32", [1, "width"])]
    outputs = [(name, "FLOAT", shape) for name, shape, _ in _turned(layout)]
    return nodes.model("position-processor", inputs, outputs)


def _turned(layout: GenaiLayout) -> Iterator[tuple[str, list[int | str], Tensor]]:
    """Yield the name, shape and tensor of each output of the position processor."""
    for tensor in (layout.mask, layout.cos, layout.sin):
        shape: list[int | str] = [1, 1, "width", tensor.shape[-1]]
        yield f"{tensor.name}_before_quantizer", shape, tensor


def _boundary(onnx: ModuleType, nodes: _Nodes, way: str, pair: tuple[str, str], t: Tensor) -> None:
    """Add a node between float and the stored type of a tensor.

    The node is a cast if the tensor has no scale.
    """
    source, into = pair
    if t.scale is None or t.offset is None:
        kind = t.element if way == "QuantizeLinear" else "FLOAT"
        nodes.node("Cast", source, into, to=getattr(onnx.TensorProto, kind))
        return
    scale = nodes.constant(f"{into}_scale", "FLOAT", [], [t.scale])
    zero = nodes.constant(f"{into}_zero", t.element, [], [-t.offset])
    nodes.node(way, f"{source} {scale} {zero}", into)


def _quantizer(onnx: ModuleType, layout: GenaiLayout) -> bytes:
    nodes, rows = _Nodes(onnx), list(_turned(layout))
    for name, _, tensor in rows:
        _boundary(onnx, nodes, "QuantizeLinear", (name, tensor.name), tensor)
    return nodes.model(
        "quantizer",
        [(name, "FLOAT", shape) for name, shape, _ in rows],
        [(tensor.name, tensor.element, shape) for _, shape, tensor in rows],
    )


def _dequantizer(onnx: ModuleType, layout: GenaiLayout) -> bytes:
    nodes, logits = _Nodes(onnx), layout.logits
    into, shape = f"{logits.name}_{_LOGITS}", [1, "width", logits.shape[-1]]
    _boundary(onnx, nodes, "DequantizeLinear", (logits.name, into), logits)
    inputs, outputs = [(logits.name, logits.element, shape)], [(into, "FLOAT", shape)]
    return nodes.model("dequantizer", inputs, outputs)


def configuration(layout: GenaiLayout, model: GenaiModel) -> dict[str, Any]:
    """Return the content of genai_config.json.

    The sampler is greedy; a request may ask for another sampler.
    """
    kv, _, size, _ = layout.cache.shape
    heads, ends = model.num_attention_heads or kv, model.eos_token_id
    first = ends[0] if model.bos_token_id is None else model.bos_token_id
    names = {f"past_{kind}_names": f"past_{kind}_%d_in" for kind in ("key", "value")}
    present = {f"present_{kind}_names": f"past_{kind}_%d_out" for kind in ("key", "value")}
    decoder = {
        "head_size": size,
        "hidden_size": model.hidden_size or heads * size,
        "num_attention_heads": heads,
        "num_hidden_layers": layout.layers,
        "num_key_value_heads": kv,
        "session_options": {"log_id": "onnxruntime-genai", "provider_options": []},
        "inputs": {
            "input_ids": "input_ids", "attention_mask": _MASK, "position_ids": _POSITIONS, **names,
        },
        "outputs": {"logits": f"{layout.logits.name}_{_LOGITS}", **present},
        "sliding_window": {
            "window_size": layout.window, "pad_value": -(layout.cache.offset or 0),
            "alignment": "right", "slide_key_value_cache": True, "slide_inputs": True,
        },
        "pipeline": [{name: stage} for name, stage in _pipeline(layout)],
    }  # fmt: skip
    return {
        "model": {
            "type": "decoder-pipeline", "context_length": layout.context,
            "vocab_size": layout.logits.shape[-1], "bos_token_id": first,
            "eos_token_id": list(ends) if len(ends) > 1 else ends[0],
            "pad_token_id": ends[0], "decoder": decoder,
        },
        "search": {
            "do_sample": False, "max_length": layout.context, "min_length": 0, "num_beams": 1,
            "past_present_share_buffer": False,
        },
    }  # fmt: skip


def _pipeline(layout: GenaiLayout) -> Iterator[tuple[str, dict[str, Any]]]:
    cpu: dict[str, Any] = {"session_options": {"provider_options": []}}
    htp = {"backend_path": "libQnnHtp.so", "htp_performance_mode": "burst"}
    npu = {"session_options": {"provider_options": [{"qnn": htp}]}}
    floats = [name for name, _, _ in _turned(layout)]
    stored = [tensor.name for _, _, tensor in _turned(layout)]

    def on_cpu(name: str, inputs: list[str], outputs: list[str]) -> tuple[str, dict[str, Any]]:
        return name, {"filename": f"{name}.onnx", **cpu, "inputs": inputs, "outputs": outputs}

    yield on_cpu("position-processor", [_MASK, _POSITIONS], floats)
    yield on_cpu("quantizer", floats, stored)
    for stage in layout.stages:
        yield (
            stage.wrapper.removesuffix(".onnx"),
            {
                "filename": stage.wrapper,
                **npu,
                "inputs": [tensor.name for tensor in stage.graph.inputs],
                "outputs": [tensor.name for tensor in stage.graph.outputs],
                "run_on_prompt": stage.width > 1,
                "run_on_token_gen": stage.width == 1,
            },
        )
    logits = layout.logits.name
    yield on_cpu("dequantizer", [logits], [f"{logits}_{_LOGITS}"])


def surroundings(files: Sequence[GraphFile], folder: Path | None) -> dict[Path, bytes]:
    """Return all files of a genai folder except the wrappers, by path.

    If `folder` is None, the files go to the folder of the binaries. Raises BundleError for binaries
    of several folders, if the package onnx is not installed, and as `read_layout` and
    `read_description` do.
    """
    onnx = onnx_package("to write the parts of a genai folder")
    folders = {folder or file.path.parent for file in files}
    if len(folders) > 1:
        raise BundleError(
            f"the binaries are in {len(folders)} folders, but a genai folder is one",
            hint="copy all of them into one folder, and name it: --output FOLDER",
        )
    (into,) = folders
    layout, model = read_layout(files), read_description(into)
    text = json.dumps(configuration(layout, model), indent=2) + "\n"
    return {
        into / "position-processor.onnx": _position_processor(onnx, layout, model),
        into / "quantizer.onnx": _quantizer(onnx, layout),
        into / "dequantizer.onnx": _dequantizer(onnx, layout),
        into / GENAI: text.encode(),
    }
