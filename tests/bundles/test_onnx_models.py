"""What QNN does not take of an ONNX model is told from the file alone, with its node."""

from __future__ import annotations

import itertools
import json
from pathlib import Path

import onnx
import pytest

from fleet.bundles.closure import Launch
from fleet.bundles.ort import inspect_ort, untaken
from fleet.model.bundle import Bundle
from fleet.model.finding import Finding
from tests.bundles.onnx_models import RIGHT, WRONG, F, model


def bundle_of(folder: Path, made: onnx.ModelProto, name: str = "model.onnx") -> Bundle:
    onnx.save(made, str(folder / name))
    return inspect_ort(folder, None, hashes=False)


def found(bundle: Bundle, **spec: object) -> tuple[Finding, ...]:
    return untaken(bundle, [Launch((), {}, config=json.dumps({"model": "model.onnx", **spec}))])


@pytest.mark.parametrize("name", RIGHT)
def test_what_qnn_takes(name: str, tmp_path: Path) -> None:
    assert found(bundle_of(tmp_path, RIGHT[name]())) == ()


@pytest.mark.parametrize("name", [name for name, row in WRONG.items() if "ir-" not in row[1]])
def test_what_qnn_does_not_take(name: str, tmp_path: Path) -> None:
    make, rule, word = WRONG[name]
    findings = found(bundle_of(tmp_path, make()))
    (first, *_) = [one for one in findings if word in one.message]
    assert (first.rule, first.severity) == (rule, "refuse")
    assert first.message.startswith("model.onnx ")
    assert first.cure


def test_there_are_thirty_of_them() -> None:
    assert (len(RIGHT), len(WRONG)) == (12, 18)


def test_a_dimension_that_the_playbook_gives_is_not_free(tmp_path: Path) -> None:
    bundle = bundle_of(tmp_path, WRONG["free-batch"][0]())
    assert found(bundle, dimensions={"batch": 1}) == ()
    assert found(bundle, dimensions={"seq": 1})[0].cure == (
        "write `run: options: dimensions: {batch: 1}` with the number that you run"
    )


def test_only_models_that_a_start_opens_on_the_npu_are_judged(tmp_path: Path) -> None:
    bundle_of(tmp_path, RIGHT["softmax"]())
    bundle = bundle_of(tmp_path, WRONG["trilu"][0](), "other.onnx")
    assert found(bundle) == ()
    assert found(bundle, decoder="other.onnx") != ()
    assert found(bundle, decoder="other.onnx", accelerator="cpu") == ()
    qnn: dict[str, object] = {"provider_options": [{"qnn": {}}]}
    for options, count in ((qnn, 1), ({"provider_options": []}, 0)):
        part: dict[str, object] = {"filename": "other.onnx", "session_options": options}
        config = {"model": {"decoder": {"pipeline": [{"one": part}]}}}
        (tmp_path / "genai_config.json").write_text(json.dumps(config))
        again = inspect_ort(tmp_path, None, hashes=False)
        spec = json.dumps({"npu_alone": ["one"]})
        assert len(untaken(again, [Launch((), {}, config=spec)])) == count


def test_a_plan_lists_five_of_a_kind(tmp_path: Path) -> None:
    names = ["x", *(f"v{n}" for n in range(7)), "y"]
    many = model([("Trilu", a, b) for a, b in itertools.pairwise(names)], (F, (8, 8)))
    assert len(found(bundle_of(tmp_path, many))) == 5


def test_what_onnxruntime_computes_itself_is_no_obstacle(tmp_path: Path) -> None:
    made = model(
        [("Trilu", "c", "t"), ("Add", "x t", "y")],
        (F, (8, 8)),
        (F, (8, 8)),
        c=onnx.numpy_helper.to_array(RIGHT["matmul-float"]().graph.initializer[0]),
    )
    assert found(bundle_of(tmp_path, made)) == ()
