"""A stand-in of AI Hub's API on loopback, for the real client `qai-hub`.

Written from the client's own message definitions (public_api_pb2) and from the addresses that
it asks; nobody has seen the real service answer. The file of a model comes from a signed
address, or from S3 with credentials for one object, as the client understands both.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

from qai_hub import public_api_pb2 as pb

TOKEN = "tok-4f1b7c52e9"
SIGNATURE = "sig-98aa31c0"
SECRET_KEY = "sak-77d0e3f1"
SECRETS = (TOKEN, SIGNATURE, SECRET_KEY)
BUCKET = "standin-bucket"


@dataclass
class Asset:
    """A file. The next `len(cuts)` answers break off after so many bytes."""

    filename: str
    content: bytes
    s3: bool = False
    cuts: list[int] = field(default_factory=list)
    status: int = 200


class AiHub(ThreadingHTTPServer):
    """Jobs, models, devices and files by id; `refusals` are answers by path instead."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.jobs: dict[str, pb.Job] = {}
        self.results: dict[str, pb.JobResult] = {}
        self.models: dict[str, pb.Model] = {}
        self.devices: list[pb.Device] = []
        self.assets: dict[str, Asset] = {}
        self.refusals: dict[str, tuple[int, str]] = {}
        self.states: list[int] = []  # of the next looks at a job
        self.stalled = threading.Event()  # a cut of -1 was reached
        self.over = threading.Event()
        self.seen: list[str] = []

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"

    def compile_job(self, job_id: str, model_id: str, **fields: Any) -> pb.CompileJob:
        """A finished compile job with its model; more fields by name."""
        job = pb.CompileJob(compile_job_id=job_id, job_state=pb.JOB_STATE_DONE, **fields)
        job.creation_time.seconds, job.completion_time.seconds = 1_760_000_000, 1_760_000_300
        job.target_model.model_id = model_id
        self.jobs[job_id] = pb.Job(compile_job=job)
        return self.jobs[job_id].compile_job

    def link_job(self, job_id: str, model_id: str, **fields: Any) -> pb.LinkJob:
        """A finished link job with its model."""
        job = pb.LinkJob(link_job_id=job_id, job_state=pb.JOB_STATE_DONE, **fields)
        job.target_model.model_id = model_id
        self.jobs[job_id] = pb.Job(link_job=job)
        return self.jobs[job_id].link_job

    def model(
        self,
        model_id: str,
        asset: Asset,
        *,
        producer: str = "",
        kind: pb.ModelType.ValueType,
        name: str = "",
        **meta: str,
    ) -> pb.Model:
        """A model with its file and its metadata (`qairt_sdk_version="2.51.0..."`)."""
        model = pb.Model(model_id=model_id, name=name, producer_id=producer, model_type=kind)
        model.creation_time.seconds = 1_760_000_300
        for key, value in meta.items():
            number = pb.ModelMetadataKey.Value(f"MODEL_METADATA_KEY_{key.upper()}")
            model.metadata.entries[number] = value
        self.models[model_id] = model
        self.assets[model_id] = asset
        return model

    def handle_error(self, request: object, client_address: object) -> None:
        """A client that goes away is part of the tests."""


class _Handler(BaseHTTPRequestHandler):
    server: AiHub
    protocol_version = "HTTP/1.1"

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002
        pass

    def do_HEAD(self) -> None:
        self.do_GET()

    def do_GET(self) -> None:
        parts = urlsplit(self.path)
        self.server.seen.append(parts.path)
        words = parts.path.strip("/").split("/")
        query = {key: values[0] for key, values in parse_qs(parts.query).items()}
        if words[0] == "files":
            self._file(words[1], query.get("X-Amz-Signature") == SIGNATURE)
        elif words[0] == BUCKET:
            self._file(words[1], "Credential=standin/" in self.headers.get("Authorization", ""))
        elif parts.path in self.server.refusals:
            status, text = self.server.refusals[parts.path]
            self._send(status, text.encode(), "text/plain")
        elif self.headers.get("Authorization") != f"token {TOKEN}":
            self._send(401, b"", "text/plain")
        else:
            message = self._answer(words[2:], query)  # after api, v1
            if message is None:
                self._send(404, b"", "text/plain")
            else:
                self._send(200, message.SerializeToString(), "application/x-protobuf")

    def _answer(self, words: list[str], query: dict[str, str]) -> Any:
        server = self.server
        match words:
            case ["jobs", name] if name in server.jobs:
                job = server.jobs[name]
                if server.states:
                    getattr(job, str(job.WhichOneof("job"))).job_state = server.states.pop(0)
                return job
            case ["jobs", name, "result"]:
                return server.results.get(name)
            case ["models", name]:
                return server.models.get(name)
            case ["models", name, "download"] if name in server.assets:
                return _way(server, name, server.assets[name])
            case ["devices"]:
                same = [one for one in server.devices if one.name == query.get("name")]
                return pb.DeviceList(devices=same)
            case _:
                return None

    def _file(self, name: str, allowed: bool) -> None:
        asset = self.server.assets[name]
        if not allowed or asset.status != 200:
            text = f"<Error><Code>AccessDenied</Code><Message>{SIGNATURE}</Message></Error>"
            self._send(asset.status if allowed else 403, text.encode(), "application/xml")
            return
        whole = self.command == "HEAD" or not asset.cuts
        cut = len(asset.content) if whole else asset.cuts.pop(0)
        self.send_response(200)
        self.send_header("Content-Length", str(len(asset.content)))
        self.send_header("ETag", '"one"')
        self.end_headers()
        if self.command == "HEAD":
            return
        if cut < 0:
            self.wfile.write(asset.content[: len(asset.content) // 2])
            self.wfile.flush()
            self.server.stalled.set()
            self.server.over.wait(60)
        self.wfile.write(asset.content[: max(cut, 0)])
        self.close_connection = cut != len(asset.content)

    def _send(self, status: int, body: bytes, kind: str) -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)


def _way(server: AiHub, model_id: str, asset: Asset) -> pb.FileDownloadResponse:
    if asset.s3:
        return pb.FileDownloadResponse(
            credentials=pb.S3Credentials(
                access_key_id="standin",
                secret_access_key=SECRET_KEY,
                session_token="session",
                bucket=BUCKET,
                key=model_id,
                region="us-west-2",
                filename=asset.filename,
            )
        )
    url = f"{server.url}/files/{model_id}?X-Amz-Signature={SIGNATURE}"
    return pb.FileDownloadResponse(url=pb.FileDownloadURL(url=url, filename=asset.filename))


@contextmanager
def aihub() -> Iterator[AiHub]:
    """A running stand-in."""
    with AiHub() as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        try:
            yield server
        finally:
            server.over.set()
            server.shutdown()
            thread.join()
