"""Backend genai with a stand-in for onnxruntime-genai: which calls are made, and what is refused.

The stand-in has the names of onnxruntime-genai 0.18; that package itself is not run here.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from tests.transport.sshd import free_port as a_port

from .conftest import ROOT, TOKEN, Echo, config

GENAI = """
import json
import numpy
class Config:
    def __init__(self, path): assert path == "."
    def overlay(self, text): open("overlay.json", "w").write(text)
class Model:
    def __init__(self, config):
        assert registered == [("QNN", "/lib/qnn.so")]
        open(__file__ + ".loads", "a").write("1")
class Tokenizer:
    def __init__(self, model): pass
    def encode(self, text): return [ord(word[0]) + 100 for word in text.split()]
    def create_stream(self): return self
    def decode(self, token): return "%s " % (token if token < 150 else chr(token - 100))
class GeneratorParams:
    def __init__(self, model): pass
    def set_search_options(self, max_length, **more):
        self.most = max_length
        open(__file__ + ".search", "w").write(json.dumps(more))
class Generator:
    def __init__(self, model, params): self.params, self.all, self.said = params, [], 0
    def append_tokens(self, ids): self.all += ids; self.words = list(ids)
    def is_done(self): return len(self.all) >= self.params.most or self.said == len(self.words)
    def generate_next_token(self): self.all.append(self.words[self.said]); self.said += 1
    def get_logits(self): return numpy.array([[[0.0, 1.0], [0.5, -1.0]]])
    def get_next_tokens(self): return [self.all[-1]]
registered = []
def register_execution_provider_library(name, path): registered.append((name, path))
"""
QNN = "def get_ep_name(): return 'QNN'\ndef get_library_path(): return '/lib/qnn.so'\n"


def prepared(folder: Path, **changes: object) -> Path:
    site = folder / "site"
    site.mkdir()
    (site / "onnxruntime_genai.py").write_text(GENAI)
    (site / "onnxruntime_qnn.py").write_text(QNN)
    more = {
        "backend": "genai",
        "site": str(site),
        "context": 20,
        "vocabulary": 100,
        "providers": ["qnn"],
        **changes,
    }
    (folder / "config.json").write_text(json.dumps(config(a_port(), **more)))
    (folder / "token").write_text(TOKEN)
    (folder / "token").chmod(0o600)
    return folder


def argv(folder: Path) -> list[str]:
    return [sys.executable, str(ROOT / "fleet/device/server/fleet_server.py"), str(folder)]


@pytest.fixture(scope="module")
def genai(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Echo]:
    """One session for all tests: no request loads the model again."""
    folder = prepared(tmp_path_factory.mktemp("genai"))
    port = json.loads((folder / "config.json").read_text())["port"]
    with (folder / "log").open("ab") as log:
        process = subprocess.Popen(
            argv(folder), env={"PYTHONPATH": str(ROOT)}, stdout=log, stderr=log
        )
    one = Echo(process, folder, port)
    try:
        one.ready()
        yield one
        assert (folder / "site" / "onnxruntime_genai.py.loads").read_text() == "1"
    finally:
        process.kill()
        process.wait()


def test_the_loop_of_tokens(genai: Echo) -> None:
    whole = genai.post({"prompt": "a b c"}).json()
    assert (whole["text"], whole["finish_reason"]) == ("a b c ", "stop")
    assert whole["usage"] == {"prompt_tokens": 3, "completion_tokens": 3, "total_tokens": 6}
    short = genai.post({"prompt": "a b c", "max_tokens": 2}).json()
    assert (short["text"], short["finish_reason"]) == ("a b ", "length")
    full = genai.post({"prompt": "w " * 15}).json()
    assert (full["usage"]["total_tokens"], full["finish_reason"]) == (20, "length")
    long = genai.post({"prompt": "w " * 20})
    assert long.status_code == httpx.codes.BAD_REQUEST
    assert long.json()["error"]["code"] == "context_exceeded"


def test_token_ids_go_to_the_model_as_they_are(genai: Echo) -> None:
    whole = genai.post({"prompt": [1, 42, 99]}).json()
    assert (whole["text"], whole["tokens"]) == ("1 42 99 ", [1, 42, 99])
    with genai.client() as client:
        stream = client.post("/generate/stream", json={"prompt": [1, 42], "max_tokens": 1}).text
    assert 'data: {"token": 1, "text": "1 "}' in stream
    for wrong in ([], [1, "a"], [True], [1.0], [-1], [100]):
        said = genai.post({"prompt": wrong})
        assert said.status_code == httpx.codes.BAD_REQUEST, wrong
        assert said.json()["error"]["param"] == "prompt"


def test_logits_of_one_pass(genai: Echo) -> None:
    said = genai.post({"prompt": [1, 42], "logits": True}).json()
    assert said["logits"] == [0.5, -1.0]
    assert said["usage"] == {"prompt_tokens": 2, "completion_tokens": 0, "total_tokens": 2}


@pytest.mark.parametrize(
    ("wishes", "search"),
    [
        ({}, {}),
        ({"temperature": 0, "seed": 7}, {"do_sample": False, "random_seed": 7}),
        ({"temperature": 0.7, "top_p": 1}, {"do_sample": True, "temperature": 0.7, "top_p": 1}),
        ({"top_k": -1}, {"do_sample": True, "top_k": 0}),
    ],
)
def test_the_sampler_is_the_one_that_the_client_asks_for(
    genai: Echo, wishes: dict[str, object], search: dict[str, object]
) -> None:
    with genai.client() as client:
        answer = client.post("/v1/completions", json={"prompt": "a b", **wishes}).json()
    assert answer["choices"][0]["text"] == "a b "
    assert "ignored" not in answer
    assert json.loads((genai.folder / "site" / "onnxruntime_genai.py.search").read_text()) == search


def test_a_model_that_would_run_on_the_cpu_is_refused(tmp_path: Path) -> None:
    folder = prepared(tmp_path, providers=["cuda"])
    done = subprocess.run(
        argv(folder), env={"PYTHONPATH": str(ROOT)}, capture_output=True, text=True, timeout=30,
        check=False,
    )  # fmt: skip
    assert done.returncode == 10
    assert "would run on the CPU" in done.stderr
