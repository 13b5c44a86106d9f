"""Folders of ONNX models: what they name, what is missing, what leads out."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import onnx
import pytest
from hypothesis import given
from hypothesis import strategies as st
from onnx import TensorProto, helper

from fleet.bundles.ep.compatibility import parse
from fleet.bundles.inspect import guessed, inspect_bundle
from fleet.model.bundle import Bundle
from fleet.model.errors import BundleError
from fleet.model.extras import install_extra

from .conftest import BUILD, DATA, V73

Make = Callable[..., Path]


def wrapped(path: Path, context: str, **changes: Any) -> Path:
    """A wrapper as somebody else might write it."""
    attributes: dict[str, Any] = {
        "embed_mode": 0,
        "main_context": 1,
        "ep_cache_context": context,
    } | changes
    node = helper.make_node("EPContext", ["x"], ["out"], "g", domain="com.microsoft", **attributes)
    values = [
        helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)
        for name, shape in (("x", [1, 8, 64]), ("out", [1, 8, 32]))
    ]
    model = helper.make_model(helper.make_graph([node], "g", values[:1], values[1:]))
    path.parent.mkdir(parents=True, exist_ok=True)
    onnx.save(model, str(path))
    return path


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "bundle"
    made.mkdir()
    shutil.copy(DATA / V73, made)
    wrapped(made / "model.onnx", V73, ep_sdk_version=f"v{BUILD}", source="Qnn")
    return made


def look(folder: Path) -> Bundle:
    return inspect_bundle(folder, None, kind="ort")


def test_a_wrapper_and_its_binary(folder: Path) -> None:
    bundle = look(folder)
    assert guessed(folder) == "ort"
    assert [one.name for one in bundle.contexts] == [V73]
    assert (bundle.qairt, bundle.qairt_source) == (BUILD, V73)
    assert (bundle.usable, bundle.warnings) == (True, ())
    assert bundle.config["models"]["model.onnx"]["inputs"] == {"x": ("float", (1, 8, 64))}
    assert bundle.config["models"]["model.onnx"]["ir_version"] == onnx.IR_VERSION


def test_a_binary_that_is_not_there_is_missing(folder: Path) -> None:
    (folder / V73).unlink()
    bundle = look(folder)
    assert [(one.name, one.named_by) for one in bundle.missing] == [
        (V73, "model.onnx: ep_cache_context")
    ]
    assert not bundle.usable


def test_names_are_relative_to_the_model(folder: Path) -> None:
    wrapped(folder / "decoder" / "part.onnx", "bins/part.bin")
    assert [one.name for one in look(folder).missing] == ["decoder/bins/part.bin"]


@pytest.mark.parametrize("name", ["/etc/passwd", "../other.bin", "a/../../b.bin", "a\\b.bin", ""])
def test_a_name_that_leads_out_is_refused(folder: Path, name: str) -> None:
    wrapped(folder / "model.onnx", name)
    (problem,) = look(folder).problems
    assert "inside the folder of the model" in problem


def test_another_provider_is_refused(folder: Path) -> None:
    wrapped(folder / "model.onnx", V73, source="OpenVINOExecutionProvider")
    (problem,) = look(folder).problems
    assert "another execution provider" in problem


def test_a_second_node_may_point_at_the_first_ones_context(folder: Path) -> None:
    """main_context 0: the blob is that of another node (EP-Context-Design.html)."""
    wrapped(folder / "model.onnx", "", main_context=0)
    assert look(folder).missing == ()


def test_another_build_than_the_binary_is_said(folder: Path) -> None:
    wrapped(folder / "model.onnx", V73, ep_sdk_version="v2.40.0.250101000000")
    (remark,) = look(folder).warnings
    assert "says QAIRT 2.40.0.250101000000" in remark
    assert "; fleet uses 2.51.0" in remark


def test_an_embedded_context_is_known_by_its_record(folder: Path) -> None:
    path = wrapped(folder / "model.onnx", "blob", embed_mode=1, ep_sdk_version=f"v{BUILD}")
    model = onnx.load(str(path))
    record = {"ep_compatibility_info.QNNExecutionProvider": "v2:6:2.51.0:5.51.0:73:77:8:0"}
    helper.set_model_props(model, record)
    onnx.save(model, str(path))
    (context,) = look(folder).contexts
    assert (context.hexagon_arch, context.soc_model, context.backend_api) == ("v73", 77, "5.51.0")
    assert (context.build_id, context.read_by) == (BUILD, "the model")


def test_weights_outside_the_model(folder: Path, tmp_path: Path) -> None:
    model = onnx.load(str(DATA / "tiny_u8.onnx"))
    onnx.save(model, str(folder / "plain.onnx"), save_as_external_data=True, location="w.data",
              size_threshold=16)  # fmt: skip
    bundle = look(folder)
    assert bundle.missing == ()
    assert any("compiles it at each start" in one for one in bundle.warnings)
    (folder / "w.data").unlink()
    assert [one.named_by for one in look(folder).missing] == ["plain.onnx: external_data"]


def test_a_genai_folder_names_its_parts(folder: Path) -> None:
    pipeline = [
        {"embeddings": {"filename": "embeddings.onnx"}},
        {"prompt": {"filename": "model.onnx", "inputs": ["x"]}},
    ]
    config = {"model": {"type": "decoder-pipeline", "decoder": {"pipeline": pipeline}}}
    (folder / "genai_config.json").write_text(json.dumps(config))
    bundle = look(folder)
    assert [(one.name, one.named_by) for one in bundle.missing] == [
        ("embeddings.onnx", "genai_config.json: model.decoder.pipeline.embeddings.filename")
    ]
    assert any("but no tokenizer file" in one for one in bundle.warnings)
    (folder / "tokenizer.json").write_text("{}")
    wrapped(folder / "embeddings.onnx", V73)
    assert look(folder).usable
    assert look(folder).warnings == ()


@pytest.mark.parametrize("content", [b"", b"\0\1garbage", b"hello" * 100])
def test_what_is_no_model_is_refused(folder: Path, content: bytes) -> None:
    (folder / "model.onnx").write_bytes(content)
    bundle = look(folder)
    assert [item.name for item in bundle.faulty] == ["model.onnx"]
    assert not bundle.usable


def test_each_damaged_model_is_named(folder: Path) -> None:
    for name in ("a.onnx", "b.onnx"):
        (folder / name).write_text("no model")
    (folder / "c.onnx").write_text(
        f"version https://git-lfs.github.com/spec/v1\noid sha256:{'0' * 64}\nsize 5000000\n"
    )
    bundle = look(folder)
    assert {item.name for item in bundle.faulty} == {"a.onnx", "b.onnx", "c.onnx"}
    assert any("c.onnx: a Git LFS pointer" in text and "5" in text for text in bundle.problems)
    assert "model.onnx" in bundle.config["models"]


def test_genai_without_models_names_each(tmp_path: Path) -> None:
    model = {"decoder": {"filename": "decoder.onnx"}, "embedding": {"filename": "embed.onnx"}}
    (tmp_path / "genai_config.json").write_text(json.dumps({"model": model}))
    assert {item.name for item in look(tmp_path).missing} == {"decoder.onnx", "embed.onnx"}


def test_a_cut_model_is_refused_or_whole(folder: Path) -> None:
    whole = (folder / "model.onnx").read_bytes()
    for size in range(len(whole)):
        (folder / "model.onnx").write_bytes(whole[:size])
        bundle = look(folder)
        if bundle.faulty:
            continue
        # protobuf cannot see a cut between two fields; then something must lack.
        assert bundle.config["models"]["model.onnx"]["nodes"], size


@given(st.text(alphabet="v0123456789:.,x", max_size=40))
def test_any_record_is_read_or_unknown(text: str) -> None:
    found = parse(text)
    assert found is None or text.strip().startswith("v2:")


def test_without_onnx_it_says_what_to_install(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(__import__("sys").modules, "onnx", None)
    with pytest.raises(BundleError) as caught:
        look(folder)
    assert caught.value.hint == install_extra("onnx")
