"""The service with backend genai on a board behind a real sshd: real onnxruntime-genai, decoders
of ours on the HTP emulator, asked with text and with token ids, and by clients of OpenAI.
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from fleet.config.playbook import load_playbook
from fleet.runners.genai import PACKAGE, PACKAGE_WINDOWED
from fleet.runtimes.stage import file_lock
from fleet.runtimes.store import RuntimeStore
from tests.engine.serving.conftest import Service, service_on
from tests.support_runtime import NEW, cache_root
from tests.transport.sshd import Sshd, free_port

from .seen import ROOT, saw

pytestmark = pytest.mark.qairt


CLIENTS = ("openai==3.57.0", "litellm==1.110.2")
# As their users write them: no option that is there for fleet.
ASK = """
import json, sys, openai, litellm
url, key, prompt = sys.argv[1:]
turns = [{"role": "user", "content": prompt}]
own = openai.OpenAI(base_url=url, api_key=key)
chat = own.chat.completions.create(model="genai", messages=turns, max_tokens=12, temperature=0)
parts = own.chat.completions.create(model="genai", messages=turns, max_tokens=12, stream=True)
plain = own.completions.create(model="genai", prompt=prompt, max_tokens=12)
lite = litellm.completion(
    model="openai/genai", api_base=url, api_key=key, messages=turns, max_tokens=12
)
streamed = "".join(part.choices[0].delta.content or "" for part in parts if part.choices)
whole = [one.choices[0].message.content for one in (chat, lite)]
print(json.dumps([*whole, streamed, plain.choices[0].text]))
"""


@contextlib.contextmanager
def serving(board: Sshd, folder: Path, store: RuntimeStore, asset: str) -> Iterator[Service]:
    bundle = ROOT / "assets" / asset
    text = f"name: genai\nbundle: {{path: {bundle}, kind: ort}}\nruntime: '{NEW}'\n"
    text += f"serve: {{port: {free_port()}, template: plain}}\n"
    (folder / "p.yaml").write_text(text)
    service = service_on(board, folder, store)
    service.playbook = load_playbook(folder / "p.yaml")
    with file_lock(cache_root() / "packages.lock", 900):
        service.deploy()
    try:
        done = service.start()
        assert done.error is None, done.error
        yield service
    finally:
        service.serving().stop()


@pytest.fixture(autouse=True)
def packages(monkeypatch: pytest.MonkeyPatch) -> None:
    """Packages of the board outlive the run."""
    monkeypatch.setenv("FLEET_HOME", str(cache_root() / "home"))


def test_the_layout_of_llama_for_clients_of_openai(
    board_server: Sshd, tmp_path: Path, qairt_store: RuntimeStore
) -> None:
    """Tokens are those of numpy, for curl, openai and litellm in one session."""
    asset = ROOT / "assets" / "tiny-genai-windowed"
    prompt, tokens = (np.load(asset / f"{name}.npy").tolist() for name in ("prompt", "tokens"))
    site = installed()
    with serving(board_server, tmp_path, qairt_store, asset.name) as service:
        key = service.token()
        with service.tunnel() as url:
            (tmp_path / "token").write_text(f"Authorization: Bearer {key}")
            body = json.dumps({"prompt": prompt, "max_tokens": len(tokens)})
            argv = ["curl", "-sN", "-H", f"@{tmp_path / 'token'}"]
            argv += ["-H", "Content-Type: application/json", "-d", body]
            said = [output([*argv, f"{url}/{path}"]) for path in ("generate/stream", "generate")]
            text = "What is fleet? What is"
            answers = json.loads(
                output([sys.executable, "-c", ASK, f"{url}/v1", key, text], PYTHONPATH=str(site))
            )
    events = [line[6:] for line in said[0].splitlines() if line.startswith("data: ")]
    assert [json.loads(event)["token"] for event in events[:-1]] == tokens
    whole = json.loads(said[1])
    assert whole["tokens"] == tokens
    assert answers == [whole["text"]] * 4
    on = f"the HTP emulator (QAIRT {NEW}) of a board behind a real sshd (x86_64)"
    version = f"{PACKAGE_WINDOWED.partition('==')[2]}, {', '.join(CLIENTS)}"
    showed = "tokens of a sliding cache equal to numpy's, by curl and both clients"
    saw("genai", "a service for clients of OpenAI", version, on, showed)


def installed() -> Path:
    """Both clients in a folder of the cache."""
    folder = cache_root() / f"clients-{'-'.join(CLIENTS)}-{sys.version_info[1]}"
    with file_lock(cache_root() / "packages.lock", 900):
        if not (folder / "litellm").is_dir():
            argv = [sys.executable, "-m", "pip", "install", "-qqq", "--target", str(folder)]
            subprocess.run([*argv, *CLIENTS], check=True, timeout=600)
    return folder


def output(argv: list[str], **more: str) -> str:
    done = subprocess.run(
        argv, env={**os.environ, **more}, capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_text_and_token_ids(board_server: Sshd, tmp_path: Path, qairt_store: RuntimeStore) -> None:
    with (
        serving(board_server, tmp_path, qairt_store, "tiny-genai") as service,
        service.client() as client,
    ):
        asked = client.post("/generate", json={"prompt": "What is fleet?", "max_tokens": 6})
        ids = {"prompt": [1, 42, 137], "max_tokens": 6}
        first, second = (client.post("/generate", json=ids) for _ in range(2))
        refused = client.post("/generate", json={"prompt": [1, 42, 1337]})
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
