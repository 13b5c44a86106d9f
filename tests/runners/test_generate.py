"""A decoder alone generates the same tokens without a cache and with either kind of one."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import ModelProto, TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator

from fleet.device.npu.fleet_generate import DecoderSession
from fleet.device.npu.fleet_ort import BadRequestError, nodes_of, told_of

VOCABULARY, WIDTH, PLACES = 40, 8, 12
RNG = np.random.default_rng(4)
WEIGHTS: dict[str, Any] = {
    "table": RNG.standard_normal((VOCABULARY, WIDTH)).astype(np.float32),
    **{f"w_{k}": RNG.standard_normal((WIDTH, WIDTH)).astype(np.float32) for k in "qkvo"},
    "w_l": RNG.standard_normal((WIDTH, VOCABULARY)).astype(np.float32),
    "much": np.float32(-1000),
    "one": np.float32(1),
    "causal": np.triu(np.full((PLACES, PLACES), -1000, np.float32), 1),
    "places": np.arange(PLACES, dtype=np.float32).reshape(1, 1, PLACES, 1),
    "head": np.array([1, 1, 1, WIDTH], np.int64),
    "row": np.array([1, 1, WIDTH], np.int64),
    "point": np.array([1, 1, 1, 1], np.int64),
    "grown": np.array([1, 1, 1, PLACES + 1], np.int64),
    "fixed": np.array([1, 1, 1, PLACES], np.int64),
}
Row = tuple[Any, ...]
ATTEND: list[Row] = [
    ("Transpose", "keys", "turned", {"perm": [0, 1, 3, 2]}),
    ("MatMul", "q turned", "score"),
    ("Add", "score mask", "masked"),
    ("Softmax", "masked", "attention", {"axis": -1}),
    ("MatMul", "attention values", "context"),
]
END: list[Row] = [
    ("MatMul", "seen w_o", "out"),
    ("Add", "x out", "y"),
    ("MatMul", "y w_l", "logits"),
]
BEGIN: list[Row] = [("Gather", "table input_ids", "x")]
PROJECT: list[Row] = [("MatMul", f"x w_{k}", f"{k}_flat") for k in "qkv"]
HEADS: list[Row] = [("Reshape", f"{k}_flat head", k) for k in "qkv"]
NO_CACHE: list[Row] = [
    *BEGIN, *[(kind, names, out[0]) for kind, names, out in PROJECT],
    ("Identity", "k", "keys"), ("Identity", "v", "values"), ("Identity", "causal", "mask"),
    ("Transpose", "keys", "turned", {"perm": [0, 2, 1]}),
    *ATTEND[1:], ("Identity", "context", "seen"), *END,
]  # fmt: skip
STEP: list[Row] = [*BEGIN, *PROJECT, *HEADS]
REST: list[Row] = [*ATTEND, ("Reshape", "context row", "seen"), *END]
GROWING: list[Row] = [
    *STEP,
    ("Concat", "past_key_values.0.key k", "present.0.key", {"axis": 2}),
    ("Concat", "past_key_values.0.value v", "present.0.value", {"axis": 2}),
    ("Identity", "present.0.key", "keys"), ("Identity", "present.0.value", "values"),
    ("Cast", "attention_mask", "there", {"to": TensorProto.FLOAT}),
    ("Sub", "one there", "gone"), ("Mul", "gone much", "flat"), ("Reshape", "flat grown", "mask"),
    *REST,
]  # fmt: skip
FIXED: list[Row] = [
    *STEP,
    ("Cast", "position_ids", "p_flat", {"to": TensorProto.FLOAT}), ("Reshape", "p_flat point", "p"),
    ("Sub", "places p", "d"), ("Abs", "d", "far"), ("Sub", "one far", "near"),
    ("Relu", "near", "here"), ("Sub", "one here", "elsewhere"), ("Relu", "d", "ahead"),
    *[row for n, k in (("key", "k"), ("value", "v")) for row in (
        ("Mul", f"past_key_values.0.{n} elsewhere", f"kept_{k}"), ("Mul", f"{k} here", f"new_{k}"),
        ("Add", f"kept_{k} new_{k}", f"present.0.{n}"))],
    ("Identity", "present.0.key", "keys"), ("Identity", "present.0.value", "values"),
    ("Mul", "ahead much", "column"), ("Reshape", "column fixed", "mask"), *REST,
]  # fmt: skip
CACHE = {f"past_key_values.0.{name}": [1, 1, PLACES, WIDTH] for name in ("key", "value")}


def decoder(
    rows: list[Row], width: int, more: dict[str, list[int]], grown: int = 0, end: int = -1
) -> DecoderSession:
    nodes = [
        helper.make_node(kind, names.split(), [out], name=out, **dict(*rest))
        for kind, names, out, *rest in rows
    ]
    ids = {"input_ids": [1, width], **more}
    inputs = [
        helper.make_tensor_value_info(
            name, TensorProto.FLOAT if "past" in name else TensorProto.INT64, shape
        )
        for name, shape in ids.items()
    ]
    shapes = {"logits": [1, width, VOCABULARY]}
    if CACHE.keys() <= more.keys():
        for name in CACHE:
            place = name.replace("past_key_values", "present")
            shapes[place] = [1, 1, PLACES + grown, WIDTH]
    outputs = [helper.make_tensor_value_info(n, TensorProto.FLOAT, s) for n, s in shapes.items()]
    weights = [numpy_helper.from_array(np.asarray(v), k) for k, v in WEIGHTS.items()]
    made = helper.make_model(
        helper.make_graph(nodes, "g", inputs, outputs, weights),
        opset_imports=[helper.make_opsetid("", 17)],
    )
    return DecoderSession(np, _Session(made), {"end_token": end})


class _Session:
    """The reference evaluator of the ONNX package, with the calls of an InferenceSession."""

    def __init__(self, model: ModelProto) -> None:
        onnx.checker.check_model(model)
        self._run = ReferenceEvaluator(model)
        self._inputs = [self._told(value) for value in model.graph.input]
        self._outputs = [self._told(value) for value in model.graph.output]

    @staticmethod
    def _told(value: Any) -> SimpleNamespace:
        kind = "float" if value.type.tensor_type.elem_type == TensorProto.FLOAT else "int64"
        shape = [dim.dim_value for dim in value.type.tensor_type.shape.dim]
        return SimpleNamespace(name=value.name, type=f"tensor({kind})", shape=shape)

    def get_inputs(self) -> list[SimpleNamespace]:
        return self._inputs

    def get_outputs(self) -> list[SimpleNamespace]:
        return self._outputs

    def run(self, _: None, feed: dict[str, Any]) -> list[Any]:
        return list(self._run.run(None, feed))


def three(end: int = -1) -> list[DecoderSession]:
    mask = {"attention_mask": [1, PLACES + 1], **CACHE}
    return [
        decoder(NO_CACHE, PLACES, {}, end=end),
        decoder(GROWING, 1, mask, grown=1, end=end),
        decoder(FIXED, 1, {"position_ids": [1, 1], **CACHE}, end=end),
    ]


def test_the_same_tokens_with_each_kind_of_cache() -> None:
    answers = [list(one.tokens([3, 7, 11], 6)) for one in three()]
    assert answers[0] == answers[1] == answers[2]
    assert len(answers[0]) == 6
    assert len(set(answers[0])) > 2, "it must not say one token again and again"
    rows = [one.logits([3, 7, 11]) for one in three()]
    np.testing.assert_allclose(rows[1], rows[0], atol=1e-4)
    np.testing.assert_allclose(rows[2], rows[0], atol=1e-4)
    assert int(rows[0].argmax()) == answers[0][0]


def test_it_ends_with_the_end_token_or_the_last_place() -> None:
    whole = list(three()[0].tokens([3, 7, 11], 50))
    assert len(whole) == PLACES - 3 + 1
    place = next(n for n, token in enumerate(whole) if n and token not in whole[:n])
    for one in three(end=whole[place]):
        assert list(one.tokens([3, 7, 11], 50)) == whole[: place + 1]
        with pytest.raises(BadRequestError, match="room for 12"):
            list(one.tokens([1] * 13, 1))


@pytest.mark.parametrize(
    ("rows", "more", "words"),
    [
        (NO_CACHE, {"wanted": [1]}, "nothing gives the model's input wanted"),
        (NO_CACHE, {"past.7": [1, 1, 4, 8]}, "no output of the model becomes its input past.7"),
    ],
)
def test_a_model_that_it_cannot_feed(
    rows: list[Row], more: dict[str, list[int]], words: str
) -> None:
    with pytest.raises(BadRequestError, match=words):
        list(decoder(rows, PLACES, more).tokens([1], 1))


def test_nodes_are_read_from_the_last_pass_of_the_verbose_log() -> None:
    reason = "Operators of type `Erf` are not supported by QNN EP."

    def line(kind: str, name: str) -> str:
        return (
            f"[V] LogNodeSupport] Validation FAILED for 1 nodes in OrtNodeUnit ({kind}) :\n"
            f"\tOperator type: {kind} Node name: {name} Node index: 0\n\tREASON : {reason}\n\n"
        )

    first = "[V] GetCapability pass 1 (pre-Layout-Transform)\n" + line("Conv", "later taken")
    log = first + "[V] GetCapability pass 2\n" + line("Erf", "the_erf") + line("Add", "b")
    assert nodes_of(log) == [
        {"name": "the_erf", "type": "Erf", "reason": reason},
        {"name": "b", "type": "Add", "reason": reason},
    ]
    assert told_of(nodes_of(log)) == (
        f"QNN does not take the nodes the_erf (Erf), b (Add), which would run on the CPU: {reason}"
    )
    assert told_of(nodes_of("nothing of it")) == ""
