"""Wrappers of real context binaries: what they say, and what they never do."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import onnx
import pytest
from typer.testing import CliRunner

from fleet.bundles.ep.compatibility import Compatibility, parse
from fleet.bundles.ep.graphs import read_graphs
from fleet.bundles.ep.models import read_model
from fleet.bundles.ep.wrapping import write_wrappers
from fleet.cli.main import app
from fleet.model.errors import BundleError
from tests.bundles.conftest import BUILD, DATA, V73
from tests.support_runtime import cache_root

LLM = "tiny_llm_v73_soc77_qairt2.51.0.bin"
THREE = "three_graphs_v73_soc77_qairt2.51.0.bin"
pytestmark = pytest.mark.qairt


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "bins"
    made.mkdir()
    for name in (V73, LLM, THREE):
        shutil.copy(DATA / name, made)
    return made


def test_tensors_are_those_of_the_model(folder: Path, qnn_system: Path) -> None:
    """The tiny LLM was exported with these; tiny_llm_build.py of the experiments made it."""
    (graph,) = read_graphs(folder / LLM, qnn_system).graphs
    found = {one.name: (one.element, one.shape) for one in (*graph.inputs, *graph.outputs)}
    assert found == {
        "input_ids": ("INT32", (1, 1)),
        "attention_mask": ("UINT16", (1, 1, 1, 64)),
        "position_ids_cos": ("UINT16", (1, 1, 1, 8)),
        "position_ids_sin": ("UINT16", (1, 1, 1, 8)),
        "past_key_0_in": ("UINT16", (2, 1, 16, 63)),
        "past_value_0_in": ("UINT16", (2, 1, 63, 16)),
        "logits": ("UINT16", (1, 1, 260)),
        "past_key_0_out": ("UINT16", (2, 1, 16, 1)),
        "past_value_0_out": ("UINT16", (2, 1, 1, 16)),
    }
    mask = next(one for one in graph.inputs if one.name == "attention_mask")
    assert mask.scale == pytest.approx(50 / 65535, rel=1e-4)
    assert mask.offset == -65535


def test_a_wrapper_says_what_onnxruntime_itself_writes(folder: Path, qnn_system: Path) -> None:
    (made,) = write_wrappers([read_graphs(folder / V73, qnn_system)])
    ours = read_model(made.path, "ours.onnx")
    theirs = read_model(DATA / "ort_made_wrapper.onnx", "theirs.onnx")
    assert (ours.inputs, ours.outputs) == (theirs.inputs, theirs.outputs)
    assert ours.compatibility == theirs.compatibility == "v2:6:2.51.0:5.51.0:73:77:0:0"
    assert parse(ours.compatibility) == Compatibility(6, "2.51.0", "5.51.0", (73,), (77,), ())
    (node,) = ours.nodes
    (reference,) = theirs.nodes
    assert (node.name, node.partition) == (reference.name, reference.partition)
    assert (node.embedded, node.sdk_version) == (False, f"v{BUILD}")
    assert node.context == V73
    onnx.checker.check_model(str(made.path), full_check=False)


def test_each_graph_has_a_wrapper_and_twice_is_the_same(folder: Path, qnn_system: Path) -> None:
    read = read_graphs(folder / THREE, qnn_system)
    first = {one.path: one.path.read_bytes() for one in write_wrappers([read])}
    assert len(first) == 3
    assert {one.path: one.path.read_bytes() for one in write_wrappers([read])} == first
    assert {path.stem for path in first} == {one.name for one in read.graphs}
    assert not list(folder.glob(".*"))


def test_nothing_is_written_over_what_differs(folder: Path, qnn_system: Path) -> None:
    mine = folder / f"{Path(V73).stem}.onnx"
    mine.write_bytes(b"my own model")
    files = [read_graphs(folder / name, qnn_system) for name in (THREE, V73)]
    with pytest.raises(BundleError, match="already exists with other content"):
        write_wrappers(files)
    assert [path.name for path in folder.glob("*.onnx")] == [mine.name], "none of them at all"
    assert mine.read_bytes() == b"my own model"


def test_another_folder_has_to_have_the_binaries(
    folder: Path, qnn_system: Path, tmp_path: Path
) -> None:
    read = read_graphs(folder / V73, qnn_system)
    with pytest.raises(BundleError, match=f"does not contain {V73}"):
        write_wrappers([read], tmp_path)
    shutil.copy(folder / V73, tmp_path)
    (made,) = write_wrappers([read], tmp_path)
    assert made.path.parent == tmp_path


def test_a_cut_file_is_refused(folder: Path, qnn_system: Path) -> None:
    whole = (folder / V73).read_bytes()
    (folder / V73).write_bytes(whole[: len(whole) // 2])
    with pytest.raises(BundleError, match="30010"):
        read_graphs(folder / V73, qnn_system)


def test_the_command(folder: Path, qnn_system: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home = folder.parent / "home"
    home.mkdir()
    (home / "runtimes").symlink_to(cache_root() / "runtimes")
    monkeypatch.setenv("FLEET_HOME", str(home))
    argv = ["bundle", "wrap-ep", *map(str, sorted(folder.glob("*.bin"))), "--json"]
    done = CliRunner().invoke(app, argv)
    assert done.exit_code == 0, done.output
    said = json.loads(done.stdout)
    assert len(said) == 5
    assert {one["compatibility"] for one in said} == {"v2:6:2.51.0:5.51.0:73:77:0:0"}
    assert all(Path(one["wrapper"]).is_file() for one in said)
    look = CliRunner().invoke(app, ["bundle", "inspect", str(folder), "--json"])
    assert look.exit_code == 0, look.output
    bundle = json.loads(look.stdout)
    assert (bundle["kind"], bundle["qairt"], bundle["missing"]) == ("ort", BUILD, [])
    assert {one["name"] for one in bundle["contexts"]} == {V73, LLM, THREE}


def test_without_a_library_it_says_what_to_type(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FLEET_HOME", str(tmp_path / "empty"))
    done = CliRunner().invoke(app, ["bundle", "wrap-ep", str(folder / V73)])
    assert isinstance(done.exception, BundleError)
    assert done.exception.hint == "fleet runtime fetch --target x86_64-linux-clang"
