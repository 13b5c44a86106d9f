"""Backend ort on a board: a context binary of ours in ONNX Runtime's QNN provider, `/infer`.

The packages for the board are fetched once into the test cache (40 MB).
"""

from __future__ import annotations

import base64
import io
import shutil
from collections.abc import Iterator
from importlib.resources import files
from pathlib import Path

import httpx
import numpy as np
import pytest

from fleet.bundles.ep.graphs import read_graphs
from fleet.bundles.ep.wrapping import write_wrappers
from fleet.bundles.system_library import system_library
from fleet.config.playbook import load_playbook
from fleet.runtimes.store import RuntimeStore
from tests.support_runtime import cache_root
from tests.transport.sshd import Sshd, free_port

from .conftest import ROOT, Service, service_on

pytestmark = [pytest.mark.qairt, pytest.mark.slow]
X = np.linspace(-1, 1, 512, dtype="float32").reshape(1, 8, 64)


@pytest.fixture(scope="module")
def inferring(
    service_board: Sshd, tmp_path_factory: pytest.TempPathFactory, qairt_store: RuntimeStore
) -> Iterator[Service]:
    folder = tmp_path_factory.mktemp("infer")
    bundle = folder / "bundle"
    bundle.mkdir()
    name = "tiny-v73-qairt2.47.0.bin"
    shutil.copy(str(files("fleet.data") / "contexts" / name), bundle / name)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("FLEET_HOME", str(cache_root()))
        library = system_library(qairt_store)
        assert library is not None
        write_wrappers([read_graphs(bundle / name, library)])
        text = f"name: tiny-ort\nbundle: {{path: {bundle}, kind: ort}}\nruntime: '2.51.0'\n"
        (folder / "p.yaml").write_text(f"{text}serve: {{port: {free_port()}}}\n")
        one = service_on(service_board, folder, qairt_store)
        one.playbook = load_playbook(folder / "p.yaml")
        with one.running():
            yield one


def npy(value: np.ndarray) -> str:
    stream = io.BytesIO()
    np.save(stream, value)
    return base64.b64encode(stream.getvalue()).decode()


def test_numbers_and_npy_give_the_same(inferring: Service) -> None:
    with inferring.client() as client:
        paths = client.get("/openapi.json").json()["paths"]
        exact = client.post("/infer", json={"inputs": {"x": {"npy": npy(X)}}, "output": "npy"})
        plain = client.post("/infer", json={"inputs": {"x": {"data": X.tolist()}}})
    assert "/infer" in paths
    assert "/generate" not in paths
    raw = exact.json()["outputs"]["out"]["npy"]
    value = np.load(io.BytesIO(base64.b64decode(raw)))
    said = plain.json()["outputs"]["out"]
    assert value.shape == (1, 8, 32)
    assert value.max() > 0
    assert np.array_equal(np.array(said["data"], "float32").reshape(said["shape"]), value)
    assert plain.json()["emulated"] is True


LIE = b"\x93NUMPY\x01\x00v\x00" + b"{'descr': '<f4', 'fortran_order': False, 'shape': (10**12,), }"


@pytest.mark.parametrize(
    "given",
    [
        {},
        {"y": {"data": 1}},
        {"x": {"data": 1}},
        {"x": {"data": "abc"}},
        {"x": {"data": [[1], [2, 3]]}},
        {"x": {"data": [None] * 512, "shape": [1, 8, 64]}},
        {"x": {"data": ["1"] * 512, "shape": [1, 8, 64]}},
        {"x": {"data": [True] * 512, "shape": [1, 8, 64]}},
        {"x": {"data": [1] * 512, "shape": [8, 8, 8]}},
        {"x": {"npy": "AAAA"}},
        {"x": {"npy": "*"}},
        {"x": {"npy": npy(X.astype("float64"))}},
        {"x": {"npy": base64.b64encode(LIE).decode()}},
        {"x": {"npy": npy(X), "data": 1}},
    ],
)
def test_what_does_not_fit_the_model_is_400(inferring: Service, given: object) -> None:
    with inferring.client() as client:
        answer = client.post("/infer", json={"inputs": given})
        assert answer.status_code == httpx.codes.BAD_REQUEST, answer.text
        assert client.get("/health").json()["ready"]


def test_text_is_not_for_this_backend(inferring: Service) -> None:
    with inferring.client() as client:
        assert client.post("/generate", json={"prompt": "a"}).status_code == 404


def test_a_decoder_alone_makes_tokens(
    service_board: Sshd, tmp_path: Path, qairt_store: RuntimeStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The tokens of tests/engine/test_ort.py, through the service."""
    monkeypatch.setenv("FLEET_HOME", str(cache_root()))
    bundle = tmp_path / "bundle"
    bundle.mkdir()
    for name in ("model.onnx", "model_qnn.bin"):
        shutil.copy(ROOT / "assets" / "tiny-genai" / name, bundle / name)
    text = f"name: decoder\nbundle: {{path: {bundle}, kind: ort}}\nruntime: '2.51.0'\n"
    (tmp_path / "p.yaml").write_text(f"{text}serve: {{port: {free_port()}}}\n")
    one = service_on(service_board, tmp_path, qairt_store)
    one.playbook = load_playbook(tmp_path / "p.yaml")
    one.deploy()
    try:
        done = one.start()
        assert done.error is None, done.error
        prompt = {"prompt": [281, 275, 301, 32], "max_tokens": 8}
        with one.client() as client:
            whole = client.post("/generate", json=prompt).json()
            stream = client.post("/generate/stream", json=prompt).text
            logits = client.post("/generate", json={**prompt, "logits": True}).json()["logits"]
            paths = client.get("/health").json()["paths"]
            words = client.post("/generate", json={"prompt": "What"})
    finally:
        one.serving().stop()
    assert whole["tokens"] == [216, 129, 132, 479, 181, 23, 339, 253]
    assert 'data: {"token": 216, "text": ""}' in stream
    assert int(np.argmax(logits)) == 216
    assert {"/generate", "/infer"} <= set(paths)
    assert words.json()["error"]["message"] == "prompt: must be token ids"
