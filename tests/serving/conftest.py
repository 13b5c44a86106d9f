from __future__ import annotations

import contextlib
import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import httpx
import pytest

from fleet.config.chat import ChatTemplate
from tests.transport.sshd import free_port

ROOT = Path(__file__).parents[2]
TOKEN = "0123456789abcdef-token"
TEMPLATE = ChatTemplate(
    "<s>{% for m in messages %}"
    "{% if m.role == 'user' %}[INST] {{ m.content }} [/INST]"
    "{% elif m.role == 'assistant' %} {{ m.content }}</s>"
    "{% else %}{{ raise_exception('the template has no role ' ~ m.role) }}{% endif %}"
    "{% endfor %}",
    "of the tests",
).for_service()


def config(port: int, **changes: object) -> dict[str, object]:
    return {
        "name": "echo",
        "release": "0123456789abcdef",
        "build": "2.51.0",
        "backend": "genie",
        "emulated": True,
        "bind": "127.0.0.1",
        "port": port,
        "queue": 16,
        "max_tokens": 50,
        "max_prompt_bytes": 2000,
        "max_body_bytes": 20_000,
        "max_infer_bytes": 100_000,
        "request_seconds": 60.0,
        "stop_seconds": 5.0,
        "template": TEMPLATE,
        **changes,
    }


@dataclass
class Echo:
    process: subprocess.Popen[bytes]
    folder: Path
    port: int

    @property
    def log(self) -> str:
        return (self.folder / "log").read_text("utf-8", "replace")

    def client(self, **headers: str) -> httpx.Client:
        head = {"Authorization": f"Bearer {TOKEN}", **headers}
        return httpx.Client(
            base_url=f"http://127.0.0.1:{self.port}",
            headers=head,
            timeout=30,
            trust_env=False,
            verify=False,
        )

    def health(self) -> httpx.Response:
        with self.client() as client:
            return client.get("/health")

    def post(self, body: dict[str, object]) -> httpx.Response:
        with self.client() as client:
            return client.post("/generate", json=body)

    def ready(self) -> None:
        end = time.monotonic() + 30
        while time.monotonic() < end:
            with contextlib.suppress(httpx.HTTPError), self.client() as client:
                if client.get("/health").status_code == 200:
                    return
            assert self.process.poll() is None, self.log
            time.sleep(0.02)
        raise AssertionError(self.log)


Start = Callable[..., Echo]


@contextlib.contextmanager
def echo(folder: Path, pause: float = 0.0, *limits: str, **changes: object) -> Iterator[Echo]:
    folder.mkdir(parents=True, exist_ok=True)
    port = free_port()
    (folder / "config.json").write_text(json.dumps(config(port, **changes)))
    (folder / "token").write_text(TOKEN + "\n")
    (folder / "token").chmod(0o600)
    with (folder / "log").open("ab") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "tests.serving.echo", str(folder), str(pause), *limits],
            cwd=ROOT,
            stdout=log,
            stderr=log,
        )
    one = Echo(process, folder, port)
    try:
        one.ready()
        yield one
    finally:
        process.kill()
        process.wait()


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Echo]:
    """One server for the tests of a module that do not end it."""
    with echo(tmp_path_factory.mktemp("echo")) as one:
        yield one
