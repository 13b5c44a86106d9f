"""The service with backend genai on a board behind a real sshd: real onnxruntime-genai, a decoder
of ours on the HTP emulator, asked with text and with token ids.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from fleet.config.playbook import load_playbook
from fleet.runners.genai import PACKAGE
from fleet.runtimes.lock import file_lock
from fleet.runtimes.store import RuntimeStore
from tests.engine.serving.conftest import service_on
from tests.support_runtime import NEW, cache_root
from tests.transport.sshd import Sshd, free_port

from .seen import ROOT, saw

pytestmark = pytest.mark.qairt


def test_text_and_token_ids(
    board_server: Sshd, tmp_path: Path, qairt_store: RuntimeStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FLEET_HOME", str(cache_root() / "home"))
    folder = ROOT / "assets" / "tiny-genai"
    text = f"name: genai\nbundle: {{path: {folder}, kind: ort}}\nruntime: '{NEW}'\n"
    (tmp_path / "p.yaml").write_text(f"{text}serve: {{port: {free_port()}}}\n")
    service = service_on(board_server, tmp_path, qairt_store)
    service.playbook = load_playbook(tmp_path / "p.yaml")
    with file_lock(cache_root() / "packages.lock", 900):
        service.deploy()
    try:
        done = service.start()
        assert done.error is None, done.error
        with service.client() as client:
            asked = client.post("/generate", json={"prompt": "What is fleet?", "max_tokens": 6})
            ids = {"prompt": [1, 42, 137], "max_tokens": 6}
            first, second = (client.post("/generate", json=ids) for _ in range(2))
            refused = client.post("/generate", json={"prompt": [1, 42, 1337]})
    finally:
        service.serving().stop()
    assert asked.json()["usage"] == {
        "prompt_tokens": 4, "completion_tokens": 6, "total_tokens": 10,
    }  # fmt: skip
    assert first.json()["usage"]["prompt_tokens"] == 3
    assert first.json()["text"] == second.json()["text"] != ""
    assert first.json()["emulated"] is True
    assert refused.status_code == 400
    assert "from 0 to 479" in refused.json()["error"]["message"]
    on = f"the HTP emulator (QAIRT {NEW}) of a board behind a real sshd (x86_64)"
    version = PACKAGE.partition("==")[2]
    saw("genai", "onnxruntime-genai as a service", version, on, "text and token ids in, text out")
