"""Real inputs that fleet once got wrong, by their number, up to what would be sent.

Those of profiles and inventories are in tests/profiles/formats/test_tools.py and
tests/config/test_ansible_files.py, those of the bundle alone in tests/bundles/test_genie.py.
"""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
from msgspec import structs

from fleet.bundles.closure import foreign, unsent
from fleet.bundles.inspect import inspect_bundle
from fleet.bundles.preflight import preflight
from fleet.config.lockfile import load_lock, save_lock
from fleet.config.playbook import load_playbook
from fleet.engine.deploy.release_builder import ReleaseBuilder
from fleet.facts.soc import identify
from fleet.model.errors import InputError
from fleet.model.facts import Soc
from fleet.model.lockfile import Lock, locked
from fleet.model.manifest import Manifest
from fleet.model.plan import ProbeHealth
from fleet.runtimes.store import RuntimeStore
from tests import inputs
from tests.bundles.conftest import make_facts
from tests.runners.kits import gguf
from tests.runtimes.fakes import ARM, elf, sdk_files, write_tree

GENAI_TRANSFORMER = ("libQnnGenAiTransformer.so", "libQnnGenAiTransformerModel.so",
                     "libQnnGenAiTransformerCpuOpPkg.so")  # fmt: skip
COMPOSE = ("libQnnModelDlc.so", "libQnnHtpPrepare.so")


def store(folder: Path, *more: str) -> RuntimeStore:
    files = sdk_files() | {f"lib/{ARM}/{name}": elf() for name in more}
    found = RuntimeStore(folder / "store")
    found.add(write_tree(folder / "sdk", files))
    return found


def builder(folder: Path, runtimes: RuntimeStore, text: str) -> ReleaseBuilder:
    path = folder / "playbook.yaml"
    path.write_text(f'runtime: {{version: "2.51.0", target: {ARM}}}\n' + text)
    return ReleaseBuilder(load_playbook(path), runtimes, print, offline=True)


def sent(made: ReleaseBuilder) -> set[str]:
    """Names in the release, where the check of what a run opens finds nothing to refuse."""
    parts = made.parts(ARM, "v73", "3.12")
    manifest, launches = made.manifest(parts), made.launches(parts)
    release = made.release(parts, manifest)
    found = (*unsent(made.bundle, release, launches),
             *foreign(made.bundle, release, launches)[0])  # fmt: skip
    assert (found, parts.selection.missing) == ((), ())
    return {item.name for item in manifest.files}


def test_c08_every_engine_gets_its_libraries(tmp_path: Path) -> None:
    inputs.genie_bundle(inputs.of("C08"), tmp_path / "bundle")
    text = "name: x\nbundle: bundle\nrun: {prompt: hi}\n"
    names = sent(builder(tmp_path, store(tmp_path, *GENAI_TRANSFORMER), text))
    assert {f"lib/{name}" for name in GENAI_TRANSFORMER} <= names
    (tmp_path / "other").mkdir()
    without = builder(tmp_path, store(tmp_path / "other"), text)
    lacks = without.parts(ARM, "v73").selection.missing
    assert lacks == tuple(f"lib/{ARM}/{name}" for name in GENAI_TRANSFORMER)


def test_c12_a_dialog_of_embeddings_is_refused_with_its_reason(tmp_path: Path) -> None:
    inputs.genie_bundle(inputs.of("C12"), tmp_path / "bundle")
    text = "name: x\nbundle: bundle\nrun: {prompt: hi}\n"
    with pytest.raises(InputError, match="takes embeddings, not text") as caught:
        sent(builder(tmp_path, store(tmp_path), text))
    assert "embedding_file" in caught.value.hint


def test_c14_files_of_processors_are_missing(tmp_path: Path) -> None:
    tiny = Path(__file__).parents[2] / "assets/tiny-genai"
    shutil.copy(tiny / "model.onnx", tmp_path / "m.onnx")
    for name in ("model_qnn.bin", "tokenizer.json"):
        shutil.copy(tiny / name, tmp_path)
    shutil.copy(inputs.of("C14"), tmp_path / "genai_config.json")
    bundle = inspect_bundle(tmp_path, kind="ort")
    assert [item.name for item in bundle.missing] == ["processor_config.json"]
    assert "vision.config_filename" in bundle.missing[0].named_by


def test_c15_a_dlc_brings_what_composes_it(tmp_path: Path) -> None:
    (tmp_path / "bundle").mkdir()
    (tmp_path / "bundle/net.dlc").write_bytes(b"\x01")
    (tmp_path / "bundle/0.raw").write_bytes(b"x")
    text = ("name: x\nbundle: {path: bundle, kind: qnn}\n"
            "run: {runner: qnn-net-run, options: {inputs: [[0.raw]]}}\n")  # fmt: skip
    names = sent(builder(tmp_path, store(tmp_path, *COMPOSE), text))
    assert {f"lib/{name}" for name in COMPOSE} <= names


def test_c17_a_list_of_inputs_is_taken(tmp_path: Path) -> None:
    (tmp_path / "bundle/in").mkdir(parents=True)
    for name in ("net.bin", "in/0.raw"):
        (tmp_path / "bundle" / name).write_bytes(b"x")
    (tmp_path / "bundle/input_list.txt").write_text("#out\nx:=in/0.raw\n")
    made = builder(tmp_path, store(tmp_path), inputs.of("C17").read_text())
    assert "bundle/in/0.raw" in sent(made)
    assert "x:=in/0.raw" in made.launches(made.parts(ARM, "v73"))[-1].config


def test_a_configuration_of_another_system_is_refused(tmp_path: Path) -> None:
    """As the SDK's examples have it for Windows; the deploy would end with an unloaded library."""
    (tmp_path / "bundle").mkdir()
    for name in ("net.bin", "0.raw"):
        (tmp_path / "bundle" / name).write_bytes(b"x")
    extensions = {"shared_library_path": "QnnHtpNetRunExtensions.dll"}
    (tmp_path / "bundle/c.json").write_text(json.dumps({"backend_extensions": extensions}))
    text = ("name: x\nbundle: {path: bundle, kind: qnn}\nrun: {runner: qnn-net-run, "
            "options: {inputs: [[0.raw]], config_file: c.json}}\n")  # fmt: skip
    made = builder(tmp_path, store(tmp_path), text)
    parts = made.parts(ARM, "v73")
    release, launches = made.release(parts, made.manifest(parts)), made.launches(parts)
    (finding,) = foreign(made.bundle, release, launches)[0]
    assert "c.json names QnnHtpNetRunExtensions.dll, a library of Windows" in finding.message
    (tmp_path / "bundle/c.json").write_text(json.dumps({"config_file_path": "0.raw"}))
    assert "bundle/c.json" in sent(builder(tmp_path, store(tmp_path), text))


def test_c31_exec_runs_a_model_of_litert(tmp_path: Path) -> None:
    tiny = Path(__file__).parents[2] / "assets/tiny-litert"
    shutil.copytree(tiny, tmp_path / "bundle")
    text = inputs.of("C31").read_text().replace('runtime: "2.51.0"\n', "")
    assert "bundle/tiny.tflite" in sent(builder(tmp_path, store(tmp_path), text))


def test_c32_a_projector_is_no_model(tmp_path: Path) -> None:
    (tmp_path / "bundle").mkdir()
    for name in ("model-Q4_0.gguf", "mmproj-model-f16.gguf"):
        (tmp_path / "bundle" / name).write_bytes(b"GGUF")
    (tmp_path / "llama-mtmd-cli").write_text("#!/bin/sh\n")
    made = builder(tmp_path, store(tmp_path), inputs.of("C32").read_text())
    assert "bundle/mmproj-model-f16.gguf" in sent(made)
    argv = made.launches(made.parts(ARM, "v73"))[-1].argv
    assert argv[argv.index("-m") + 1] == "model-Q4_0.gguf"


def test_a_program_off_the_npu_gets_nothing_of_the_htp(tmp_path: Path) -> None:
    """A dialog of Genie's CPU engine, a model of LiteRT on the CPU and a script: a board without
    FastRPC and without a known chip runs them.
    """
    (tmp_path / "bundle").mkdir()
    (tmp_path / "bundle/model.gguf").write_bytes(gguf())
    (tmp_path / "bundle/tokenizer.json").write_text("{}")
    model = {"type": "library", "library": {"version": 1, "model-bin": "model.gguf"}}
    dialog = {
        "type": "basic", "context": {"size": 512}, "tokenizer": {"path": "tokenizer.json"},
        "engine": {"backend": {"type": "QnnGenAiTransformer"}, "model": model},
    }  # fmt: skip
    (tmp_path / "bundle/genie_config.json").write_text(json.dumps({"dialog": dialog}))
    (tmp_path / "bench.sh").write_text("#!/bin/sh\nnproc\n")
    shutil.copytree(Path(__file__).parents[2] / "assets/tiny-litert", tmp_path / "lite")
    runtimes = store(tmp_path, *GENAI_TRANSFORMER)
    texts = {
        "genie": "bundle: bundle\nrun: {prompt: hi}\n",
        "litert": "bundle: {path: lite, kind: litert}\n"
        "run: {runner: litert, options: {accelerator: cpu}}\n",
        "exec": "bundle: {path: bundle, kind: files}\nrun: {runner: exec, program: bench.sh}\n",
    }
    bare = make_facts(None, nodes=(), libcdsprpc_unversioned=False, libcdsprpc=())
    for runner, text in texts.items():
        path = tmp_path / "playbook.yaml"
        path.write_text(f"runtime: {{target: {ARM}}}\nname: x\n{text}")
        made = ReleaseBuilder(load_playbook(path), runtimes, print, offline=True)
        parts = made.parts(ARM, None)
        files = {item.name for item in parts.selection.files}
        assert not [name for name in files if "Htp" in name or name.startswith("dsp/")]
        assert ("lib/libGenie.so" in files) is (runner == "genie")
        assert (parts.selection.missing, parts.selection.arch_problem) == ((), "")
        without_htp = structs.replace(bare, soc=identify(Soc(), "QCM4490"))
        assert without_htp.soc.htp is False
        for facts in (bare, without_htp):
            refused = preflight(made.bundle, parts.runtime, parts.selection, ARM, facts)
            assert [item.rule for item in refused if item.refuses] == []
        npu = replace(parts.selection, npu=True)
        assert preflight(made.bundle, parts.runtime, npu, ARM, bare)[0].refuses


def test_a_test_off_the_npu_is_not_called_a_session() -> None:
    manifest = Manifest("x", (), origin={"npu": False})
    assert ProbeHealth(manifest).describe().startswith("test x/")
    assert ProbeHealth(Manifest("x", ())).describe().startswith("open an NPU session with x/")


def test_a_program_with_fastrpc_uses_the_npu(tmp_path: Path) -> None:
    (tmp_path / "bench").write_bytes(b"\x7fELF libcdsprpc.so\0")
    (tmp_path / "bundle").mkdir()
    (tmp_path / "bundle/a").write_text("x")
    text = ("name: x\nbundle: {path: bundle, kind: files}\n"
            "run: {runner: exec, program: bench}\n")  # fmt: skip
    (tmp_path / "playbook.yaml").write_text(f"runtime: {{target: {ARM}}}\n{text}")
    made = ReleaseBuilder(load_playbook(tmp_path / "playbook.yaml"), store(tmp_path), print)
    selection = made.parts(ARM, "v73").selection
    assert (selection.npu, selection.files) == (True, ())


def test_a_flat_release_is_locked_with_all_of_its_names(tmp_path: Path) -> None:
    (tmp_path / "bundle").mkdir()
    for name in ("net.pte", "input_list.txt"):
        (tmp_path / "bundle" / name).write_text("x")
    (tmp_path / "qnn_executor_runner").write_text("#!/bin/sh\n")
    text = ("name: x\nbundle: {path: bundle, kind: executorch}\n"
            "run: {runner: executorch, program: qnn_executor_runner}\n")  # fmt: skip
    made = builder(tmp_path, store(tmp_path, "libQnnHtpPrepare.so"), text)
    manifest = made.manifest(made.parts(ARM, "v73"))
    release = locked(manifest, ARM, "v73", {})
    assert save_lock(tmp_path / "fleet.lock", Lock("x", "0" * 64, (release,)))
    names = {file.name for file in load_lock(tmp_path / "fleet.lock").releases[0].files}
    assert names == {file.name for file in manifest.files} >= {"net.pte", "input_list.txt"}


def test_every_input_has_a_test() -> None:
    """C13 is in test_closure.py; C26 and C27 are of the ssh layer (tests/transport)."""
    here = Path(__file__).parents[1]
    texts = "".join(
        path.read_text()
        for path in (*here.glob("*/test_genie.py"), *here.glob("*/*/test_tools.py"),
                     *here.glob("*/test_ansible_files.py"), Path(__file__))
    )  # fmt: skip
    names = {path.name.split(".")[0] for path in inputs.HERE.glob("C*")}
    tested = {name for name in names if f'"{name}' in texts or name.lower() in texts}
    assert names - tested <= {"C13", "C26", "C27"}, json.dumps(sorted(names - tested))
