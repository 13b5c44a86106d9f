"""Runner genai: a stand-in for onnxruntime-genai says which calls are made; the package itself
needs a model of useful size and is not run here.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import replace
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fleet.bundles.ort import inspect_ort
from fleet.model.errors import InputError
from fleet.model.files import FileRef
from fleet.model.playbook import RunSpec
from fleet.runners import Ended, Kit
from fleet.runners.genai import PACKAGE, PACKAGE_WINDOWED, GenaiRunner, package_for, window_of
from fleet.runners.ort import requirements
from fleet.runners.registry import OWN
from tests.serving.test_genai import GENAI, QNN

from .kits import bundle
from .test_ort import JSON

SHARED = "enable_htp_shared_memory_allocator"
RUNNER = OWN["genai"]
TOO_LONG = "the prompt is longer than the context of the model"
KEYS = (
    "token_seconds", "prompt_tokens", "finish", "text", "init_seconds", "cut_by_context", "error",
)  # fmt: skip
CONFIG: dict[str, Any] = {
    "model": {
        "context_length": 20,
        "decoder": {"session_options": {"provider_options": [{"qnn": {"backend_path": "x"}}]}},
    }
}


def kit(config: dict[str, Any] | None = None, **changes: Any) -> Kit:
    made = bundle("ort", "genai_config.json", "model.onnx")
    made = replace(made, config={"models": {"model.onnx": {}}, "genai": config or CONFIG})
    run = RunSpec(**{"runner": "genai", "prompt": "a b c", "timeout": 30.0, **changes})
    return Kit(made, run, build_id="2.51.0.260929181845")


def run(folder: Path, one: Kit, *more: str) -> Ended:
    """The script as a device starts it, with a stand-in for the packages."""
    site = folder / "site"
    site.mkdir(exist_ok=True)
    (site / "onnxruntime_genai.py").write_text(GENAI)
    (site / "onnxruntime_qnn.py").write_text(QNN)
    start = RUNNER.start(one)
    (folder / "config.json").write_text(start.config)
    script = str(files("fleet.device.npu") / "fleet_genai.py")
    filled = [word.replace("{work}", str(folder)) for word in start.argv[3:]]
    filled = [word.replace("{release}/site", str(site)) for word in filled]
    done = subprocess.run(
        [sys.executable, "-I", script, *filled, *more],
        capture_output=True, timeout=60, check=False, cwd=folder, env={"PATH": os.defpath},
    )  # fmt: skip
    outcome = (folder / "outcome.json").read_bytes()
    return Ended(done.returncode, done.stdout, {"outcome.json": outcome}, done.stderr)


def test_of_a_pipeline_the_parts_for_qnn_are_kept_off_the_cpu() -> None:
    qnn: dict[str, Any] = {"session_options": {"provider_options": [{"QNN": {}}]}}
    stages = [{"embedding": {"session_options": {"provider_options": []}}}, {"decoder": qnn}]
    for pipeline, alone in ((stages, ["decoder"]), ([], True), ("wrong", True)):
        config = {"model": {"decoder": {"pipeline": pipeline}}}
        assert json.loads(RUNNER.start(kit(config)).config)["npu_alone"] == alone


def test_prompt_in_text_out_with_times(tmp_path: Path) -> None:
    one = kit()
    ended = run(tmp_path, one)
    assert (ended.status, ended.stdout) == (0, b"a b c ")
    found = RUNNER.read(RUNNER.start(one), one, ended)
    assert (found.text, found.finish, found.problems) == ("a b c ", "eos", ())
    metrics = found.metrics
    assert (metrics.prompt_tokens, metrics.generated_tokens) == (3, 3)
    assert metrics.ttft_ms is not None
    assert metrics.decode_ms is not None
    assert metrics.prompt_tps == pytest.approx(3000 / metrics.ttft_ms)
    assert metrics.decode_tps == pytest.approx(2000 / metrics.decode_ms)


def test_the_cpu_is_switched_off_over_what_the_folder_says(tmp_path: Path) -> None:
    off = {"session_options": {"session.disable_cpu_ep_fallback": "1"}}
    qnn: dict[str, Any] = {"session_options": {"provider_options": [{"qnn": {}}]}}
    stages = [{"decoder": qnn}]
    piped = {"model": {"decoder": {"pipeline": stages}}}
    for config, over in ((None, off), (piped, {"pipeline": [{"decoder": off}]})):
        run(tmp_path, kit(config))
        said = json.loads((tmp_path / "overlay.json").read_text())
        assert said == {"model": {"decoder": over}}


def test_a_limit_that_is_reached_is_cut(tmp_path: Path) -> None:
    one = kit(max_tokens=2)
    found = RUNNER.read(RUNNER.start(one), one, run(tmp_path, one))
    assert (found.text, found.finish) == ("a b ", "token-limit")
    assert (found.problems, found.marks) == ((), ("cut: the output reached the token limit of 2",))
    full = kit(prompt="w " * 15)
    assert RUNNER.read(RUNNER.start(full), full, run(tmp_path, full)).problems == (
        "cut: the output filled the context length of the model",
    )


def test_a_prompt_that_does_not_fit_is_said(tmp_path: Path) -> None:
    one = kit(prompt="w " * 20)
    found = RUNNER.read(RUNNER.start(one), one, run(tmp_path, one))
    (problem,) = found.problems
    assert problem == (
        "cut: the prompt is longer than the context length of the model: "
        "the prompt has 20 tokens, the context has 20"
    )


def test_the_check_loads_the_model_and_asks_nothing(tmp_path: Path) -> None:
    ended = run(tmp_path, kit(), "--check")
    assert (ended.status, ended.stdout) == (0, b"")
    assert "token_seconds" not in json.loads(ended.files["outcome.json"])


def test_a_folder_without_the_npu_is_a_fallback() -> None:
    one = kit({"model": {"decoder": {"session_options": {"provider_options": []}}}})
    said = {"init_seconds": 1.0, "token_seconds": [0.1, 0.2], "prompt_tokens": 3, "finish": "eos"}
    ended = Ended(0, b"", {"outcome.json": json.dumps(said).encode()})
    found = RUNNER.read(RUNNER.start(one), one, ended)
    assert found.problems == ("cpu-fallback: genai_config.json does not select the QNN provider",)


def test_packages_go_along() -> None:
    asked: list[tuple[str, ...]] = []

    def site(names: tuple[str, ...]) -> tuple[FileRef, ...]:
        asked.append(names)
        return ()

    one = replace(kit(), site=site)
    assert [file.name for file in RUNNER.files(one)] == ["run/fleet_genai.py"]
    assert asked == [(*requirements(one.build_id), PACKAGE)]


def test_a_folder_of_single_models_is_for_ort() -> None:
    made = replace(
        bundle("ort", "model.onnx"), config={"models": {"model.onnx": {}}, "genai": None}
    )
    with pytest.raises(InputError, match=r"no genai_config\.json"):
        RUNNER.start(Kit(made, RunSpec(runner="genai", prompt="x")))
    parts = kit()
    two = replace(parts.bundle, config={"models": {"a.onnx": {}, "b.onnx": {}}, "genai": CONFIG})
    with pytest.raises(InputError) as caught:
        OWN["ort"].start(replace(parts, bundle=two, run=RunSpec(runner="ort")))
    assert "`runner: genai` to run the whole bundle" in caught.value.hint


@given(JSON)
def test_any_outcome_is_read_or_a_problem(said: Any) -> None:
    one = kit()
    ended = Ended(0, b"", {"outcome.json": json.dumps(said).encode()})
    found = RUNNER.read(RUNNER.start(one), one, ended)
    assert found.problems or found.metrics.ttft_ms is not None


@given(st.dictionaries(st.sampled_from(KEYS), JSON))
def test_any_value_of_a_known_key(said: dict[str, Any]) -> None:
    one = kit()
    ended = Ended(0, b"", {"outcome.json": json.dumps(said).encode()})
    found = RUNNER.read(RUNNER.start(one), one, ended)
    assert found.problems or found.metrics.ttft_ms is not None


def test_a_cache_that_slides_gets_a_package_that_has_one_and_no_cpu() -> None:
    assets = Path(__file__).parents[2] / "assets"
    windowed = inspect_ort(assets / "tiny-genai-windowed", None, hashes=False)
    assert (package_for(windowed), window_of(windowed)) == (PACKAGE_WINDOWED, 4)
    (config,) = GenaiRunner().corrected(Kit(windowed, RunSpec(runner="genai")))
    parts = json.loads(config.source.read_text())["model"]["decoder"]["pipeline"]
    alone = [
        name
        for part in parts
        for name, stage in part.items()
        if stage["session_options"].get("session.disable_cpu_ep_fallback") == "1"
    ]
    assert alone == ["transformer_prompt", "transformer_token"]
    plain = inspect_ort(assets / "tiny-genai", None, hashes=False)
    assert (package_for(plain), window_of(plain)) == (PACKAGE, 1)


@pytest.mark.parametrize(
    ("device", "expected"),
    [
        ({"windows": True}, {"backend_path": "QnnHtp.dll", SHARED: "1"}),
        ({}, {"backend_path": "libQnnHtp.so", SHARED: "1"}),
        ({"dsp": False}, {"backend_path": "libQnnHtp.so"}),
    ],
)
def test_options_of_the_provider_fit_the_device(
    device: dict[str, Any], expected: dict[str, str]
) -> None:
    """As published for a PC with Windows; the emulator has no shared memory of an HTP."""
    assets = Path(__file__).parents[2] / "assets"
    folder = inspect_ort(assets / "tiny-genai-windowed", None, hashes=False)
    said = json.loads((assets / "tiny-genai-windowed" / "genai_config.json").read_text())
    published = {"backend_path": "QnnHtp.dll", SHARED: "1"}
    for name, stage in ((n, s) for p in said["model"]["decoder"]["pipeline"] for n, s in p.items()):
        if name.startswith("transformer"):
            stage["session_options"]["provider_options"] = [{"qnn": dict(published)}]
    bundle = replace(folder, config={**folder.config, "genai": said})
    (config,) = GenaiRunner().corrected(Kit(bundle, RunSpec(runner="genai"), **device))
    found = json.loads(config.source.read_text())["model"]["decoder"]["pipeline"]
    stages = {name: stage for part in found for name, stage in part.items()}
    for name in ("transformer_prompt", "transformer_token"):
        assert stages[name]["session_options"]["provider_options"] == [{"qnn": expected}]
    bare = replace(bundle, contexts=())
    (config,) = GenaiRunner().corrected(Kit(bare, RunSpec(runner="genai"), dsp=False))
    assert '"soc_model": "77"' in config.source.read_text(), "what the emulator compiles for"


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"dml": {}}, "provider dml for model.vision"),
        ({"QNN": {"backend_type": "gpu"}}, "QNN backend gpu for model.vision"),
        ({"qnn": {"backend_path": "C:\\\\x\\\\QnnGpu.dll"}}, "QnnGpu.dll for model.vision"),
        ({"qnn": {"backend_path": "libQnnHtp.so", "backend_type": "htp"}}, ""),
        ({"cpu": {}}, ""),
    ],
)
def test_a_part_for_another_processor_is_refused(options: dict[str, Any], words: str) -> None:
    part = {"session_options": {"provider_options": [options]}}
    one = kit({"model": {"vision": part, "decoder": {}}})
    if not words:
        RUNNER.files(one)
        return
    with pytest.raises(InputError, match=words):
        RUNNER.files(one)
