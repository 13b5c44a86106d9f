"""The server on the device as a real process: limits, refusals, ends. Its backend echoes."""

from __future__ import annotations

import ast
import asyncio
import json
import os
import selectors
import signal
import socket
import subprocess
import sys
import threading
import time
from contextlib import ExitStack, closing
from pathlib import Path
from selectors import SelectorKey

import httpx
import pytest
from jsonschema import Draft202012Validator

from fleet.device import server
from fleet.device.server import wire
from fleet.device.server.server import Peers
from fleet.serving.files import service_files

from .conftest import ROOT, TOKEN, Echo, config, echo

STREAM = "/generate/stream"
DEVICE = sorted(Path(str(server.__file__)).parent.glob("*.py"))


def raw(port: int, data: bytes) -> bytes:
    """What comes back for these bytes, to the end of the connection."""
    with socket.create_connection(("127.0.0.1", port), 10) as link:
        link.settimeout(10)
        link.sendall(data)
        link.shutdown(socket.SHUT_WR)
        found = b""
        while chunk := link.recv(65536):
            found += chunk
        return found


@pytest.mark.parametrize("path", DEVICE, ids=lambda path: path.name)
def test_it_is_python_38_and_needs_nothing_but_itself(path: Path) -> None:
    tree = ast.parse(path.read_text("utf-8"), feature_version=(3, 8))
    own = {one.name for one in service_files()}
    for node in ast.walk(tree):
        assert not isinstance(node, ast.Match if hasattr(ast, "Match") else ())
        names = []
        if isinstance(node, ast.Import):
            names = [one.name for one in node.names]
        elif isinstance(node, ast.ImportFrom):
            names = [node.module or ""]
        for name in names:
            if name.startswith("fleet."):
                assert f"run/{name.replace('.', '/')}.py" in own, name
            else:
                known = {*sys.stdlib_module_names, "onnxruntime_genai", "onnxruntime_qnn", "jinja2"}
                assert name.partition(".")[0] in known, name


@pytest.mark.parametrize(
    ("sent", "status"),
    [
        (b"GARBAGE\r\n\r\n", 400),
        (b"GET /health HTTP/3.0\r\n\r\n", 400),
        (b"GET /health HTTP/1.1\r\nno colon\r\n\r\n", 400),
        (b"GET /health HTTP/1.1\r\n folded: x\r\n\r\n", 400),
        (b"GET /health HTTP/1.1\r\na: \0\r\n\r\n", 400),
        (b"GET /" + b"x" * 3000 + b" HTTP/1.1\r\n\r\n", 414),
        (b"GET / HTTP/1.1\r\n" + b"a: b\r\n" * 65 + b"\r\n", 431),
        (b"GET / HTTP/1.1\r\na: " + b"x" * 20000 + b"\r\n\r\n", 431),
        (b"GET /nowhere HTTP/1.1\r\n\r\n", 404),
        (b"BREW /health HTTP/1.1\r\n\r\n", 405),
        (b"HEAD /health HTTP/1.1\r\n\r\n", 405),
        (b"POST /generate HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 411),
        (b"POST /generate HTTP/1.1\r\nContent-Length: -1\r\n\r\n", 400),
        (b"POST /generate HTTP/1.1\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n", 400),
        (b"POST /infer HTTP/1.1\r\n\r\n", 404),
    ],
)
def test_what_is_no_request_is_4xx(shared: Echo, sent: bytes, status: int) -> None:
    head, _, body = raw(shared.port, sent).partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 %d " % status)
    if not sent.startswith(b"HEAD"):
        assert set(json.loads(body)["error"]) == {"code", "message", "param", "type"}
    else:
        assert body == b""


@pytest.mark.parametrize(
    ("body", "code", "param"),
    [
        ({}, "missing_field", "prompt"),
        ({"prompt": 1}, "invalid_value", "prompt"),
        ({"prompt": ""}, "invalid_value", "prompt"),
        ({"prompt": "a\0b"}, "invalid_value", "prompt"),
        ({"prompt": "\ud800"}, "invalid_value", "prompt"),
        ({"prompt": "a" * 2001}, "prompt_too_long", "prompt"),
        ({"prompt": "a", "max_tokens": 0}, "invalid_value", "max_tokens"),
        ({"prompt": "a", "max_tokens": 51}, "invalid_value", "max_tokens"),
        ({"prompt": "a", "max_tokens": True}, "invalid_value", "max_tokens"),
        ({"prompt": "a", "max_tokens": 1.0}, "invalid_value", "max_tokens"),
        ({"prompt": "a", "temperature": 1}, "unknown_field", "temperature"),
    ],
)
def test_each_wrong_field_is_named(
    shared: Echo, body: dict[str, object], code: str, param: str
) -> None:
    with shared.client() as client:
        head = {"Content-Type": "application/json"}
        answer = client.post("/generate", content=json.dumps(body), headers=head)
    assert answer.status_code == 400
    assert answer.json()["error"]["code"] == code
    assert answer.json()["error"]["param"] == param


@pytest.mark.parametrize(
    ("body", "status", "param"),
    [
        ({}, 400, "messages"),
        ({"messages": []}, 400, "messages"),
        ({"messages": [{"role": "tool", "content": "x"}]}, 400, "messages[0].role"),
        ({"messages": [{"role": "function", "content": "x"}]}, 400, "messages[0].role"),
        ({"messages": [{"role": "system", "content": "x"}]}, 400, "messages"),
        (
            {"messages": [{"role": "system", "content": "x"}, {"role": "user", "content": "x"}]},
            400,
            "messages",
        ),
        ({"messages": [{"role": "assistant", "content": "x"}]}, 400, "messages"),
        ({"messages": [{"role": "user", "content": "x [/INST]"}]}, 400, "messages[0].content"),
        ({"messages": [{"role": "user", "content": [{"type": "image"}]}]}, 400, None),
        ({"model": "gpt-4", "messages": []}, 404, "model"),
        ({"messages": [], "tools": [{}]}, 400, "tools"),
        ({"messages": [], "stream": ""}, 400, "stream"),
        ({"messages": [], "user": 1}, 400, "user"),
        ({"max_tokens": -2, "max_completion_tokens": 1, "messages": []}, 400, "max_tokens"),
        ({"messages": [{"role": "user", "content": "x", "name": 1}]}, 400, "messages[0].name"),
        ({"messages": [], "n": 2}, 400, "n"),
        ({"messages": [], "stream_options": {"x": 1}}, 400, "stream_options"),
    ],
)
def test_what_a_chat_cannot_have_is_said(
    shared: Echo, body: dict[str, object], status: int, param: str | None
) -> None:
    with shared.client() as client:
        answer = client.post("/v1/chat/completions", json=body)
    assert answer.status_code == status
    if param:
        assert answer.json()["error"]["param"] == param


def test_messages_become_a_prompt_by_the_template(shared: Echo) -> None:
    turns = [("user", "one"), ("assistant", "two"), ("user", "three")]
    parts = {"type": "text", "text": "three"}
    body = {"messages": [{"role": role, "content": text} for role, text in turns], "n": 1}
    body["messages"][-1]["content"] = [parts]  # type: ignore[index]
    with shared.client() as client:
        said = client.post("/v1/chat/completions", json=body).json()
    text = said["choices"][0]["message"]["content"]
    assert text == "<s>[INST] one [/INST] two</s>[INST] three [/INST] "


def test_a_connection_serves_one_request_after_the_other(shared: Echo) -> None:
    ask = b'{"prompt": "a b"}'
    request = (
        b"POST /generate HTTP/1.1\r\nAuthorization: Bearer %s\r\nContent-Type: application/json\r\n"
        b"Content-Length: %d\r\n\r\n%s" % (TOKEN.encode(), len(ask), ask)
    )
    with socket.create_connection(("127.0.0.1", shared.port), 10) as link:
        for _ in range(3):
            link.sendall(request)
            assert b'"text": "a b "' in link.recv(65536)


def test_failures_of_the_backend_are_5xx_and_tell_no_details(shared: Echo) -> None:
    with shared.client() as client:
        failed = client.post("/generate", json={"prompt": "fail"})
        crashed = client.post(STREAM, json={"prompt": "crash"})
        fine = client.post("/generate", json={"prompt": "still here"})
    assert (failed.status_code, failed.json()["error"]["code"]) == (500, "generation_failed")
    assert (crashed.status_code, crashed.json()["error"]["code"]) == (500, "internal")
    assert "secret detail" not in crashed.text
    assert "secret detail" in shared.log
    assert fine.json()["text"] == "still here "


def test_the_document_is_true(shared: Echo) -> None:
    with shared.client() as client:
        document = client.get("/openapi.json").json()
        answers = {
            "Health": client.get("/health"),
            "Generated": client.post("/generate", json={"prompt": "a"}),
            "Error": client.post("/generate", json={}),
        }
    assert set(document["paths"]) == {
        "/health", "/openapi.json", "/v1/models", "/generate", STREAM, "/v1/chat/completions",
        "/v1/completions",
    }  # fmt: skip
    for name, answer in answers.items():
        schema = {"$ref": f"#/components/schemas/{name}", "components": document["components"]}
        Draft202012Validator(schema).validate(answer.json())


def test_a_slow_request_has_an_end(tmp_path: Path) -> None:
    with echo(tmp_path, 0.0, "HEADER_SECONDS=0.2", "BODY_SECONDS=0.2") as one:
        for begun in (b"GET /he", b"POST /generate HTTP/1.1\r\nContent-Length: 5\r\n"):
            with socket.create_connection(("127.0.0.1", one.port), 10) as link:
                link.sendall(begun)
                assert b" 408 " in link.recv(4096)
                assert link.recv(4096) == b""


class Jumping(asyncio.SelectorEventLoop):
    """A loop whose clock jumps to what is due next: the limits that ship, and no waiting."""

    def __init__(self) -> None:
        self.now = 0.0
        loop = self

        class Selector(selectors.DefaultSelector):
            def select(self, timeout: float | None = None) -> list[tuple[SelectorKey, int]]:
                found = super().select(0)
                if not found and timeout:
                    loop.now += timeout
                return found

        super().__init__(Selector())

    def time(self) -> float:
        return self.now


@pytest.mark.parametrize("asked_before", [False, True])
def test_how_long_the_first_byte_is_waited_for(asked_before: bool) -> None:
    loop = Jumping()

    async def waited() -> float:
        reader = asyncio.StreamReader()
        if asked_before:
            reader.feed_data(b"GET /health HTTP/1.1\r\n\r\n")
            assert await wire.read_head(reader, first=True) is not None
        began = loop.time()
        with pytest.raises(wire.HttpError, match="did not arrive in time"):
            await wire.read_head(reader, first=not asked_before)
        return loop.time() - began

    try:
        seconds = loop.run_until_complete(waited())
    finally:
        loop.close()
    assert seconds == pytest.approx(75.0 if asked_before else 10.0)


def silent(port: int, count: int, stack: ExitStack) -> None:
    for _ in range(count):
        stack.enter_context(socket.create_connection(("127.0.0.1", port), 10))


def test_connections_without_a_token_do_not_keep_its_holder_out(tmp_path: Path) -> None:
    crowd = 600
    with echo(tmp_path) as one, one.client() as client, ExitStack() as stack:
        assert client.get("/v1/models").status_code == 200
        silent(one.port, crowd, stack)
        new = one.post({"prompt": "a new connection"})
        assert (new.status_code, new.text.count("a new connection")) == (200, 1), new.text
        assert client.get("/v1/models").status_code == 200, "one that is open stays so"
        assert len(list(Path(f"/proc/{one.process.pid}/fd").iterdir())) < crowd


def test_holders_of_the_token_have_a_limit_of_their_own(tmp_path: Path) -> None:
    with echo(tmp_path, 0.0, "CONNECTIONS=2", "STRANGERS=3") as one, ExitStack() as stack:
        clients = [stack.enter_context(one.client()) for _ in range(3)]
        codes = [client.get("/v1/models").status_code for client in clients]
        assert codes == [200, 200, 503]
        assert one.health().status_code == 200, "whoever only asks for that needs no room"
        clients[0].close()
        end = time.monotonic() + 30
        while one.post({"prompt": "a"}).status_code != 200:
            assert time.monotonic() < end, "room that is left is not given to the next"
            time.sleep(0.01)


def test_a_request_past_its_time_is_ended(tmp_path: Path) -> None:
    with echo(tmp_path, 0.3, request_seconds=1.0) as one, one.client() as client:
        late = client.post("/generate", json={"prompt": "a " * 40})
        assert (late.status_code, late.json()["error"]["code"]) == (504, "timeout")
        stream = client.post(STREAM, json={"prompt": "a " * 40})
        assert "event: token" in stream.text
        assert stream.text.rstrip().splitlines()[-2] == "event: error"


def test_a_stop_finishes_what_runs_and_refuses_the_rest(tmp_path: Path) -> None:
    with echo(tmp_path) as one, one.client() as client:
        text = "w hold" + " w" * 18
        with client.stream("POST", STREAM, json={"prompt": text}) as answer:
            lines = answer.iter_lines()
            assert next(lines) == "event: token"
            waits: list[httpx.Response] = []
            waiting = threading.Thread(target=lambda: waits.append(one.post({"prompt": "a"})))
            waiting.start()
            while one.health().json()["queue"] == 0:
                time.sleep(0.01)
            one.process.send_signal(signal.SIGTERM)
            waiting.join()
            refused = one.post({"prompt": "new"})
            health = one.health()
            (tmp_path / "go").touch()
            rest = list(lines)
        assert sum(line == "event: token" for line in rest) == 19
        assert "event: done" in rest
        assert [one.status_code for one in (waits[0], refused, health)] == [503, 503, 503]
        assert refused.json()["error"]["code"] == "stopping"
        assert health.json()["status"] == "stopping"
        assert one.process.wait(10) == 0
        assert "closed" in one.log


def test_a_session_that_hangs_ends_the_process_for_the_unit_to_start_it(tmp_path: Path) -> None:
    ask = b'{"prompt": "hang"}'
    request = (
        b"POST /generate HTTP/1.1\r\nAuthorization: Bearer %s\r\nContent-Type: application/json\r\n"
        b"Content-Length: %d\r\n\r\n%s" % (TOKEN.encode(), len(ask), ask)
    )
    with echo(tmp_path, 0.0, "ABORT_SECONDS=0.3") as one:
        assert raw(one.port, request) == b"", "a client that has gone gets nothing"
        assert one.process.wait(20) == 70
        assert "hangs" in one.log


def test_a_long_log_is_moved_away(tmp_path: Path) -> None:
    with echo(tmp_path, 0.0, "LOG_BYTES=100") as one, one.client() as client:
        for _ in range(5):
            client.post("/generate", json={"prompt": "crash"})
        moved = tmp_path / "log.1"
        end = time.monotonic() + 10
        while not moved.exists():
            assert time.monotonic() < end
            time.sleep(0.05)
        client.post("/generate", json={"prompt": "crash"})
        assert "secret detail" in moved.read_text()
        assert len(one.log) < 100


def started(folder: Path, **changes: object) -> subprocess.CompletedProcess[str]:
    (folder / "config.json").write_text(json.dumps(config(1, **changes)))
    program = ROOT / "fleet/device/server/fleet_server.py"
    return subprocess.run(
        [sys.executable, str(program), str(folder)],
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
        env={"PYTHONPATH": str(ROOT)},
    )


def test_what_cannot_start_says_why_and_is_not_tried_again(tmp_path: Path) -> None:
    token = tmp_path / "token"
    assert "token" in started(tmp_path).stderr
    token.write_text(TOKEN)
    token.chmod(0o644)
    readable = started(tmp_path)
    assert (readable.returncode, "other users can read" in readable.stderr) == (10, True)
    token.chmod(0o600)
    unknown = started(tmp_path, backend="tpu")
    assert (unknown.returncode, "the backend tpu does not exist" in unknown.stderr) == (10, True)
    genai = started(tmp_path, backend="genai", site=str(tmp_path / "site"))
    assert genai.returncode == 10
    assert "onnxruntime-genai" in genai.stderr


def test_a_taken_port_is_said(tmp_path: Path) -> None:
    with echo(tmp_path / "one") as one:
        (tmp_path / "two").mkdir()
        folder = tmp_path / "two"
        (folder / "config.json").write_text(json.dumps(config(one.port)))
        (folder / "token").write_text(TOKEN)
        (folder / "token").chmod(0o600)
        second = subprocess.run(
            [sys.executable, "-m", "tests.serving.echo", str(folder)],
            cwd=ROOT,
            capture_output=True,
            text=True,
            timeout=30,
            check=False,
        )
    assert second.returncode == 12
    assert f"port {one.port}" in second.stderr


_FLOOD = """
import os, socket, sys
"".encode("idna")  # it is looked up where the other user may not read
os.setgid(65534); os.setuid(65534)
links = [socket.create_connection(("127.0.0.1", int(sys.argv[1]))) for _ in range(300)]
print("open", flush=True)
sys.stdin.read()
"""


@pytest.mark.root
@pytest.mark.skipif(os.geteuid() != 0, reason="needs root to become another user")
def test_another_user_who_opens_connections_without_end_keeps_nobody_out(shared: Echo) -> None:
    """The owner's connection is the oldest, and its first byte comes after 300 of a stranger."""
    request = f"GET /health HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {TOKEN}\r\n"
    with (
        socket.create_connection(("127.0.0.1", shared.port), 10) as link,
        subprocess.Popen(
            [sys.executable, "-c", _FLOOD, str(shared.port)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        ) as flood,
    ):
        assert flood.stdout is not None
        assert flood.stdout.readline() == b"open\n"
        assert shared.health().status_code == 200, "a new connection is let in"
        link.sendall(f"{request}Connection: close\r\n\r\n".encode())
        assert link.recv(100).startswith(b"HTTP/1.1 200 ")
        flood.communicate(b"")


def test_where_a_connection_comes_from() -> None:
    with closing(Peers()) as peers, socket.create_server(("127.0.0.1", 0)) as listening:
        port = listening.getsockname()[1]
        with socket.create_connection(("127.0.0.1", port)) as link:
            peer, own = link.getsockname(), link.getpeername()
            assert peers.origin(peer, own) == f"uid {os.getuid()}"
            assert peers.origin(("10.0.0.7", 5), own) == "address 10.0.0.7"
            assert peers.origin(None, own) == "unknown"
        assert peers.origin((own[0], 1), own) == "unknown", "nobody is there"
