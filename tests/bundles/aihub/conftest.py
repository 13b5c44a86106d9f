"""The real client, configured for a stand-in of AI Hub on loopback."""

from __future__ import annotations

import io
import time
import types
import zipfile
from collections.abc import Iterator
from pathlib import Path

import backoff._sync
import pytest
import qai_hub.util.session
from qai_hub import public_api_pb2 as pb

from tests.standins.aihub import TOKEN, AiHub, Asset, aihub

TINY = Path(__file__).parents[3] / "assets" / "tiny-genie"
CONTEXT = (TINY / "tiny_genie_part_1_of_1.bin").read_bytes()
BUILD = "2.51.0.260929181845"
IQ9 = pb.Device(
    name="Dragonwing IQ-9075 EVK",
    os="1.7",
    attributes=["chipset:qualcomm-qcs9075", "hexagon:v73", "soc-model:77", "os:qualcomm-linux"],
)


def zipped(files: dict[str, bytes]) -> bytes:
    """A zip of these files."""
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in files.items():
            archive.writestr(name, content)
    return stream.getvalue()


def genie_zip(top: str = "") -> bytes:
    """assets/tiny-genie as a .genie.zip."""
    return zipped({top + path.name: path.read_bytes() for path in sorted(TINY.iterdir())})


def configure(path: Path, url: str, token: str = TOKEN) -> Path:
    """A client.ini as `qai-hub configure` writes it."""
    path.write_text(f"[api]\napi_token = {token}\napi_url = {url}\nweb_url = {url}\n", "utf-8")
    return path


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[AiHub]:
    """A stand-in with job jbin1 → model mbin1: a context binary for the IQ-9075."""
    with aihub() as server:
        ini = configure(tmp_path / "client.ini", server.url)
        monkeypatch.setenv("QAIHUB_CLIENT_INI", str(ini))
        monkeypatch.setenv("AWS_ENDPOINT_URL_S3", server.url)
        monkeypatch.setenv("NO_PROXY", "127.0.0.1")
        monkeypatch.setenv("FLEET_HOME", str(tmp_path / "home"))
        server.compile_job(
            "jbin1", "mbin1", name="tiny", device=IQ9, options="--target_runtime qnn_context_binary"
        )
        server.model(
            "mbin1",
            Asset("job_jbin1_optimized_bin_mbin1.bin", CONTEXT),
            producer="jbin1",
            kind=pb.MODEL_TYPE_QNN_CONTEXT_BINARY,
            name="tiny",
            qairt_sdk_version=BUILD,
        )
        yield server


@pytest.fixture(autouse=True)
def patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """The client tries as often as ever, but does not wait in between."""
    monkeypatch.setattr(qai_hub.util.session, "BACKOFF_FACTOR", 0.0)
    hasty = types.SimpleNamespace(**vars(time) | {"sleep": lambda _: None})
    monkeypatch.setattr(backoff._sync, "time", hasty)
