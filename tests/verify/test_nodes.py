"""The first wrong node of a network, against a reference on this workstation."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper

from fleet.device.npu import fleet_ort
from fleet.model.errors import SuiteError
from fleet.model.suite import NodeDifference
from fleet.verify import nodes
from fleet.verify.nodes import Network, compare_nodes
from fleet.verify.tensors import Reference

from .networks import Change, network

INPUTS = {"x": np.random.default_rng(1).normal(size=(4, 8)).astype("f")}


def on_device(model: Path) -> dict[str, Any]:
    """Return what a device gives for all nodes of a model: here, the same arithmetic."""
    shown = Network(model)
    return Reference(model, shown.whole(shown.nodes)).outputs(INPUTS)


def compared(tmp_path: Path, change: Change | None = None, *, quantised: bool = True) -> Any:
    good = network(tmp_path / "good.onnx", quantised=quantised)
    wrong = network(tmp_path / "wrong.onnx", change)
    return compare_nodes(Network(wrong), Network(good), INPUTS, on_device(wrong))


def first_wrong(rows: Sequence[NodeDifference]) -> NodeDifference | None:
    return next((row for row in rows if row.fault), None)


def test_tensors_are_taken_where_they_are_quantised(tmp_path: Path) -> None:
    found = Network(network(tmp_path / "m.onnx")).nodes
    assert [(node.name, node.tensor) for node in found] == [
        ("a", "a_q"), ("relu", "b_q"), ("r", "r_q"), ("c", "c_q"),
    ], "Relu runs with the Add before it"  # fmt: skip
    assert [node.reads for node in found] == [("x",), ("a",), ("relu",), ("r",)]
    assert found[0].encoding is not None
    assert found[0].encoding.text == "uint8, scale 0.06, zero 128"
    plain = Network(network(tmp_path / "f.onnx", quantised=False)).nodes
    assert [node.tensor for node in plain] == ["a", "b", "relu", "r", "y"]


def test_the_same_network_has_no_wrong_node(tmp_path: Path) -> None:
    rows = compared(tmp_path)
    assert first_wrong(rows) is None
    assert {(row.before_db, row.after_db, row.own_db) for row in rows} == {(200.0, 200.0, 200.0)}


def test_noise_of_quantisation_is_no_fault(tmp_path: Path) -> None:
    rows = compared(tmp_path, quantised=False)
    assert first_wrong(rows) is None
    assert all(30 < row.after_db < 35 and row.own_steps < 1 for row in rows)


def scaled(name: str, factor: float) -> Change:
    return lambda v: v.update({name: (v[name] * factor).astype(v[name].dtype)})


@pytest.mark.parametrize(
    ("change", "node"),
    [
        (scaled("a_w", 1.5), "a"),
        (scaled("b_scale", 0.3), "relu"),
        (lambda v: v.update(r_zero=np.array(250, np.uint8)), "r"),
        (lambda v: v.update(b_w=v["b_w"] + np.float32(1)), "relu"),
        (lambda v: v.update(c_w=v["c_w"][:, ::-1].copy()), "c"),
        (lambda v: v.update(r_s=np.array([2, 2, 8]), c_w=v["c_w"][:8]), "r"),
    ],
    ids=["weights", "saturated", "zero point", "bias", "swapped", "reshape"],
)
def test_the_first_wrong_node_is_named(tmp_path: Path, change: Change, node: str) -> None:
    rows = compared(tmp_path, change)
    found = first_wrong(rows)
    assert found is not None
    assert found.node == node
    assert found.before_db == 200.0, "its inputs are right"
    later = rows[rows.index(found) + 1 :]
    if found.after_db is None:
        assert found.fault == "the shape is [2, 2, 8], in the reference [2, 16]"
        assert [(row.before_db, row.own_db) for row in later] == [(None, None)]
    else:
        assert all(row.own_db == 200.0 and row.after_db < 30 for row in later)


def test_another_encoding_is_told(tmp_path: Path) -> None:
    found = first_wrong(compared(tmp_path, scaled("b_scale", 0.3)))
    assert found is not None
    assert found.encoding == "uint8, scale 0.018, zero 128"
    assert found.reference_encoding == "uint8, scale 0.06, zero 128"


def test_not_finite(tmp_path: Path) -> None:
    good = network(tmp_path / "m.onnx", quantised=False)
    stored = on_device(good)
    stored["r"] = np.full_like(stored["r"], np.nan)
    found = first_wrong(compare_nodes(Network(good), Network(good), INPUTS, stored))
    assert found is not None
    assert (found.node, found.fault) == ("r", "the output has values that are NaN or infinite")


def test_a_tensor_that_the_device_cannot_show_is_computed(tmp_path: Path) -> None:
    good = network(tmp_path / "good.onnx")
    wrong = network(tmp_path / "wrong.onnx", scaled("c_w", 2))
    stored = on_device(wrong)
    del stored["r_q"]
    rows = compare_nodes(Network(wrong), Network(good), INPUTS, stored)
    assert [row.node for row in rows] == ["a", "relu", "c"]
    assert [bool(row.fault) for row in rows] == [False, False, True]


def test_groups(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shown = Network(network(tmp_path / "m.onnx"))
    assert nodes.groups(shown, shown, INPUTS) == (("a_q", "b_q", "r_q", "c_q"),)
    monkeypatch.setattr(nodes, "GROUP_BYTES", 64)
    assert nodes.groups(shown, shown, INPUTS) == (("a_q", "b_q"), ("r_q", "c_q"))


def test_outputs_are_added_without_the_package_onnx(tmp_path: Path) -> None:
    path = network(tmp_path / "m.onnx")
    names = ["a_q", "r_q" * 100]
    model = onnx.load_from_string(path.read_bytes() + fleet_ort.outputs_of(names))
    assert [end.name for end in model.graph.output] == ["y", *names]
    assert len(model.graph.node) == len(onnx.load(path).graph.node)


def test_networks_without_a_common_tensor(tmp_path: Path) -> None:
    one, other = network(tmp_path / "one.onnx"), tmp_path / "other.onnx"
    node = helper.make_node("Relu", ["x"], ["else"])
    ends = [helper.make_tensor_value_info(name, 1, [4, 8]) for name in ("x", "else")]
    onnx.save(helper.make_model(helper.make_graph([node], "g", ends[:1], ends[1:])), other)
    with pytest.raises(SuiteError, match=r"has no tensor with a name of one\.onnx"):
        nodes.groups(Network(one), Network(other), INPUTS)
    other.write_bytes(b"no model")
    with pytest.raises(SuiteError, match="cannot read the ONNX model"):
        Network(other)
