"""Backend geniex on a board behind a real sshd: deploy, start, token, tunnel, health, bench.

`geniex serve` is a stand-in (tests/serving/geniex_standin.py), and the board's health check is the
real libGenie on the HTP emulator, with the bundle that the service has too.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import httpx
import pytest

from fleet.config.playbook import load_playbook
from fleet.model.errors import InputError
from fleet.runtimes.store import RuntimeStore
from fleet.serving import bench
from fleet.serving.bench import Load
from tests.serving.test_geniex import install
from tests.transport.sshd import Sshd, free_port

from .conftest import ROOT, Service, service_on

pytestmark = pytest.mark.qairt


def playbook(folder: Path, **serve: object) -> Path:
    bundle = folder / "bundle"
    if not bundle.exists():
        shutil.copytree(ROOT / "assets" / "tiny-genie", bundle)
        (bundle / "SHA256SUMS").unlink()
        (bundle / "metadata.json").write_text("{}")
    text = {
        "name": "genie-x",
        "bundle": "bundle",
        "serve": {"port": free_port(), "template": "plain", **serve},
    }
    (folder / "p.yaml").write_text(json.dumps(text))
    return folder / "p.yaml"


@pytest.fixture
def served(service_board: Sshd, tmp_path: Path, qairt_store: RuntimeStore) -> Iterator[Service]:
    install(tmp_path / "cli", "qairt")
    path = playbook(tmp_path, backend="geniex", program="cli/geniex")
    one = replace(service_on(service_board, tmp_path, qairt_store), playbook=load_playbook(path))
    with one.running():
        yield one


def test_token_tunnel_health_and_bench_are_those_of_our_own(served: Service) -> None:
    health = served.status()["health"]
    assert isinstance(health, dict)
    assert {health[key] for key in ("backend", "build", "ready", "emulated")} == {
        "geniex", "", True,
    }  # fmt: skip
    with served.tunnel() as url:
        refused = httpx.post(f"{url}/generate", json={"prompt": "hi"}, trust_env=False)
        assert refused.status_code == httpx.codes.UNAUTHORIZED
        load = Load(prompts=("a b c", "d e"), clients=2, requests=6)
        report = bench.run(url, served.token(), load)
    assert report.errors == ()
    assert {(one.prompt, one.text, one.tokens) for one in report.asked} == {
        ("a b c", "a b c ", 3), ("d e", "d e ", 2),
    }  # fmt: skip
    again = served.start()
    assert again.outcome == "unchanged"


@pytest.mark.parametrize(
    ("serve", "words"),
    [
        ({"backend": "geniex"}, "needs a `program:`"),
        ({"program": "cli/geniex"}, "is without `backend: geniex`"),
        ({"backend": "geniex", "program": "cli/none"}, "does not exist"),
    ],
)
def test_a_wrong_serve_section_is_an_error_of_the_playbook(
    tmp_path: Path, serve: dict[str, object], words: str
) -> None:
    install(tmp_path / "cli", "qairt")
    with pytest.raises(InputError, match=words):
        load_playbook(playbook(tmp_path, **serve))


def test_a_program_without_the_plugin_is_refused_before_a_byte(
    service_board: Sshd, tmp_path: Path, qairt_store: RuntimeStore
) -> None:
    install(tmp_path / "cli", "llama_cpp")
    path = playbook(tmp_path, backend="geniex", program="cli/geniex")
    one = replace(service_on(service_board, tmp_path, qairt_store), playbook=load_playbook(path))
    (done,) = one.operation().deploy()
    assert isinstance(done.error, InputError)
    assert "the plugin qairt of GenieX is missing" in done.error.message
    assert done.bytes_sent == 0
