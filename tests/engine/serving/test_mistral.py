"""The playbook of the published service, planned for an IQ-9075 of recorded facts.

The model is the user's; its parts are wrappers of our own tiny context binary here. The
packages are the real ones for aarch64; they are chosen and unpacked, not run.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import onnx
import pytest
from onnx import TensorProto, helper

from fleet.bundles.preflight import preflight
from fleet.config.playbook import load_playbook
from fleet.engine.deploy.release_builder import ReleaseBuilder
from fleet.runtimes.store import RuntimeStore
from tests.bundles.conftest import DATA, V73, make_facts
from tests.support_runtime import ARM, cache_root

ROOT = Path(__file__).parents[3]
pytestmark = [pytest.mark.qairt, pytest.mark.slow]


@pytest.fixture
def playbook(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("FLEET_HOME", str(cache_root() / "home"))
    folder = tmp_path / "bundles" / "mistral-7b-genai"
    folder.mkdir(parents=True)
    shutil.copy(DATA / V73, folder / "transformer_1.bin")
    values = [
        helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)
        for name, shape in (("x", [1, 8, 64]), ("out", [1, 8, 32]))
    ]
    node = helper.make_node(
        "EPContext", ["x"], ["out"], "g", domain="com.microsoft", embed_mode=0, main_context=1,
        ep_cache_context="transformer_1.bin", source="QNNExecutionProvider",
    )  # fmt: skip
    graph = helper.make_graph([node], "g", values[:1], values[1:])
    onnx.save(helper.make_model(graph), str(folder / "transformer_1.onnx"))
    model = {
        "context_length": 4096,
        "decoder": {
            "session_options": {"provider_options": [{"qnn": {}}]},
            "pipeline": [{"one": {"filename": "transformer_1.onnx"}}],
        },
    }
    (folder / "genai_config.json").write_text(json.dumps({"model": model}))
    (folder / "tokenizer.json").write_text("{}")
    (tmp_path / "playbooks").mkdir()
    path = tmp_path / "playbooks" / "service.yaml"
    shutil.copy(ROOT / "playbooks" / "ort-mistral-service.yaml", path)
    return path


def test_it_is_planned_for_an_iq_9075(playbook: Path, qairt_store: RuntimeStore) -> None:
    bench = ReleaseBuilder(load_playbook(playbook), qairt_store, lambda _: None)
    facts = make_facts()
    parts = bench.parts(ARM, facts.soc.hexagon_arch, bench.python_of(facts))
    assert parts.python == "3.12"
    manifest = bench.manifest(parts)
    found = preflight(bench.bundle, parts.runtime, parts.selection, ARM, facts)
    assert [one.rule for one in found if one.refuses] == []
    names = {one.name for one in manifest.files}
    assert "run/fleet_server.py" in names
    assert "bundle/transformer_1.bin" in names
    native = [
        one for one in manifest.files if "onnxruntime_genai" in one.name and ".so" in one.name
    ]
    assert native
    for one in native:
        assert one.source.read_bytes()[18:20] == b"\xb7\x00", "the machine of the ELF is aarch64"
    assert "site/onnxruntime_qnn/libQnnHtpV73Skel.so" in names
    assert not [name for name in names if "V75" in name], "only what the chip needs"
