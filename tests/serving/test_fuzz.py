"""Whatever is sent, the answer is no 5xx, and the server is there after it."""

from __future__ import annotations

import json
import socket
from typing import Any

import httpx
from hypothesis import given, settings
from hypothesis import strategies as st

from .conftest import TOKEN, Echo

PATHS = ("/generate", "/generate/stream", "/v1/chat/completions", "/infer", "/v1/models", "/x")
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=40),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner),
    max_leaves=12,
)
MESSAGE = st.fixed_dictionaries(
    {}, optional={"role": st.sampled_from(["user", "assistant", "x"]) | JSON, "content": JSON}
)
BODY = JSON | st.fixed_dictionaries(
    {},
    optional={
        "prompt": JSON | st.text(max_size=3000),
        "max_tokens": JSON | st.integers(-1, 60),
        "messages": st.lists(MESSAGE | JSON, max_size=4),
        "stream": JSON,
        "inputs": JSON,
        "model": st.just("echo") | JSON,
    },
)
FEW = settings(
    max_examples=150,
)


def alive(echo: Echo) -> None:
    with echo.client() as client:
        said = client.get("/health").json()
        assert said["ready"]
        assert said["pid"] == echo.process.pid
        assert client.post("/generate", json={"prompt": "a"}).json()["text"] == "a "


def test_any_json(shared: Echo) -> None:
    with shared.client() as client:

        @FEW
        @given(path=st.sampled_from(PATHS), body=BODY, nan=st.booleans())
        def check(path: str, body: Any, nan: bool) -> None:
            if isinstance(body, dict) and body.get("prompt") in ("fail", "crash", "hang"):
                return
            text = json.dumps(body, allow_nan=True, ensure_ascii=nan)
            answer = client.post(
                path,
                content=text.encode("utf-8", "surrogatepass"),
                headers={"Content-Type": "application/json"},
            )
            assert answer.status_code < 500, answer.text
            if answer.status_code != httpx.codes.OK:
                assert set(answer.json()["error"]) == {"code", "message", "param", "type"}

        check()
    alive(shared)


def test_any_bytes(shared: Echo) -> None:
    head = b"POST /generate HTTP/1.1\r\nAuthorization: Bearer %s\r\n" % TOKEN.encode()
    line = st.binary(max_size=60)

    @FEW
    @given(
        st.binary(max_size=400)
        | st.lists(line, max_size=6).map(lambda lines: head + b"\r\n".join(lines) + b"\r\n\r\n")
        | st.binary(max_size=200).map(
            lambda body: (
                head
                + b"Content-Type: application/json\r\nContent-Length: %d\r\n\r\n" % len(body)
                + body
            )
        )
    )
    def check(data: bytes) -> None:
        with socket.create_connection(("127.0.0.1", shared.port), 10) as link:
            link.settimeout(10)
            found = b""
            try:
                link.sendall(data)
                link.shutdown(socket.SHUT_WR)
                while chunk := link.recv(65536):
                    found += chunk
            except ConnectionError:
                pass  # it may close before all is sent
        assert not found.startswith(b"HTTP/1.1 5"), found[:300]
        assert not found or found.startswith(b"HTTP/1.1 ")

    check()
    alive(shared)


def test_deep_and_long_json(shared: Echo) -> None:
    bodies = (
        b"[" * 9000,
        b'{"prompt": ' + b"9" * 9000 + b"}",
        b'{"prompt": NaN}',
        b"\xff\xfe",
        b"",
    )
    with shared.client() as client:
        for body in bodies:
            head = {"Content-Type": "application/json"}
            answer = client.post("/generate", content=body, headers=head)
            assert answer.status_code == 400, (body[:20], answer.text)
        assert client.post("/generate", content=b"x" * 30_000).status_code == 413
        assert client.post("/generate", content=b"{}").status_code == 415
    alive(shared)
