"""A real HTTP server on loopback that can cut connections, change files and fall silent."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


class FileServer(ThreadingHTTPServer):
    """Serves `content` at every path. `cuts` are bytes after which one answer each breaks off."""

    def __init__(self, content: bytes) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.content = content
        self.etag = '"one"'
        self.cuts: list[int] = []
        self.ranges = True
        self.type = "application/zip"
        self.sent = 0  # bytes of bodies
        self.status = 200
        self.shift = 0  # bytes by which a range in the middle begins and ends too early
        self.silent = threading.Event()  # set: headers only, then nothing
        self.over = threading.Event()
        self.seen: list[tuple[str | None, str | None]] = []  # Range, If-Range

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}/sdk.zip"

    def handle_error(self, request: object, client_address: object) -> None:
        """A client that goes away is part of the tests."""


class _Handler(BaseHTTPRequestHandler):
    server: FileServer
    protocol_version = "HTTP/1.1"

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002
        pass

    def do_GET(self) -> None:
        server = self.server
        wanted, condition = self.headers.get("Range"), self.headers.get("If-Range")
        server.seen.append((wanted, condition))
        if self.path == "/moved":
            self.send_response(302)
            self.send_header("Location", "/sdk.zip")
            self.send_header("Content-Length", "0")
            self.end_headers()
            return
        size = len(server.content)
        start, end = 0, size
        status = server.status
        if status == 200 and server.ranges and wanted and condition in {None, server.etag}:
            first, _, last = wanted.removeprefix("bytes=").partition("-")
            start = int(first) if first else max(0, size - int(last))
            end = min(size, int(last) + 1) if first and last else size
            if first and server.shift:
                start, end = 0, min(end - start, server.shift) // 2
            status = 206
        body = server.content[start:end]
        if start >= size > 0:
            status, body = 416, b""
        self.send_response(status)
        self.send_header("ETag", server.etag)
        self.send_header("Content-Type", server.type)
        self.send_header("Content-Length", str(len(body)))
        if status == 206:
            self.send_header("Content-Range", f"bytes {start}-{end - 1}/{size}")
        if status == 416:
            self.send_header("Content-Range", f"bytes */{size}")
        self.end_headers()
        if server.silent.is_set():
            server.over.wait(30)
            body = b""
        cut = server.cuts.pop(0) if server.cuts else len(body)
        self.wfile.write(body[:cut])
        server.sent += len(body[:cut])
        if cut < len(body):
            self.wfile.flush()
            self.close_connection = True


@contextmanager
def serve(content: bytes) -> Iterator[FileServer]:
    """The server, running in a thread."""
    with FileServer(content) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
        thread.start()
        try:
            yield server
        finally:
            server.over.set()
            server.shutdown()
            thread.join()
