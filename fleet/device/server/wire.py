"""HTTP/1.1 on asyncio streams: reads requests within limits, writes answers.

A request is refused by its head before its body is read. Only what clients of an API need is
supported: a body has a Content-Length, and nothing is pipelined.
"""

from __future__ import annotations

import asyncio
import json
import re
from http import HTTPStatus
from typing import Any, Dict, NamedTuple, Optional

_LINE = re.compile(r"([!#$%&'*+.^_`|~0-9A-Za-z-]{1,32}) ([\x21-\x7e]+) HTTP/1\.([01])")
_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]{1,128}")
_VALUE = re.compile(r"[\t\x20-\x7e\x80-\xff]*")
_LENGTH = re.compile(r"[0-9]{1,18}")
TARGET_BYTES = 2048
HEADER_BYTES = 16 << 10
HEADERS = 64
FIRST_SECONDS = 10.0  # until the first byte of a new connection
HEADER_SECONDS = 10.0
BODY_SECONDS = 60.0
IDLE_SECONDS = 75.0  # between two requests of a persistent connection
STALL_SECONDS = 30.0  # a client that reads nothing for this long is gone


class HttpError(Exception):
    """An error answer. `code` is stable, `param` is the affected field."""

    def __init__(
        self,
        status: int,
        code: str,
        message: str,
        *,
        param: Optional[str] = None,
        headers: Optional[Dict[str, str]] = None,
    ) -> None:
        super().__init__(message)
        self.status, self.code, self.message = status, code, message
        self.param, self.headers = param, headers or {}

    def as_dict(self) -> "Dict[str, Any]":
        """Return {"error": {code, message, param, type}}, OpenAI's form."""
        kind = "invalid_request_error" if self.status < 500 else "service_error"
        return {
            "error": {"code": self.code, "message": self.message, "param": self.param, "type": kind}
        }


class Head(NamedTuple):
    """The head of a request. Names of `headers` are in lower case."""

    method: str
    path: str
    headers: "Dict[str, str]"
    length: int
    newest: bool  # HTTP/1.1: chunks are supported
    keep: bool


async def read_head(reader: asyncio.StreamReader, *, first: bool) -> "Optional[Head]":
    """Read the next request up to its body; return None if the client ended the connection.

    `first` means the first request of the connection. Raises HttpError, after which the connection
    must be closed.
    """
    try:
        begin = await asyncio.wait_for(reader.read(1), FIRST_SECONDS if first else IDLE_SECONDS)
        if not begin:
            return None
        rest = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), HEADER_SECONDS)
    except asyncio.TimeoutError:
        raise HttpError(408, "timeout", "the request did not arrive in time") from None
    except asyncio.IncompleteReadError:
        return None
    except asyncio.LimitOverrunError:
        raise HttpError(431, "headers_too_large", "send at most 16 KiB of headers") from None
    return _parsed((begin + rest).decode("latin-1"))


def _parsed(text: str) -> Head:
    line, *lines = text[:-4].lstrip("\r\n").split("\r\n")
    match = _LINE.fullmatch(line)
    if match is None:
        raise HttpError(400, "bad_request", "the request line is not valid; use HTTP/1.1")
    if len(match[2]) > TARGET_BYTES:
        raise HttpError(414, "target_too_long", "send at most 2048 bytes of path and query")
    if len(lines) > HEADERS:
        raise HttpError(431, "headers_too_large", "the request has more than %d headers" % HEADERS)
    headers = _headers(lines)
    if "transfer-encoding" in headers:
        raise HttpError(411, "length_required", "send the body with a Content-Length")
    length = headers.get("content-length", "0")
    if not _LENGTH.fullmatch(length):
        raise HttpError(400, "bad_request", "Content-Length must be a number")
    path = re.sub(r"^https?://[^/]*", "", match[2]).partition("?")[0]
    newest = match[3] == "1"
    wish = headers.get("connection", "keep-alive" if newest else "close").lower()
    return Head(match[1], path, headers, int(length), newest, "close" not in wish)


def _headers(lines: "list[str]") -> "Dict[str, str]":
    headers: "Dict[str, str]" = {}
    for line in lines:
        name, colon, value = line.partition(":")
        if not colon or not _NAME.fullmatch(name) or not _VALUE.fullmatch(value):
            raise HttpError(400, "bad_request", "a header line is not valid; write NAME: VALUE")
        key, text = name.lower(), value.strip(" \t")
        if key in headers and key in ("content-length", "host", "authorization"):
            raise HttpError(400, "bad_request", "the header %s is there twice; send it once" % key)
        headers[key] = text
    return headers


async def read_body(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, head: Head, most: int
) -> bytes:
    """Read the body of at most `most` bytes. Raises HttpError; the connection must then be
    closed.
    """
    if head.length > most:
        raise HttpError(413, "body_too_large", "the body may have %d bytes" % most)
    if head.length and head.headers.get("expect", "").lower() == "100-continue":
        writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
    try:
        return await asyncio.wait_for(reader.readexactly(head.length), BODY_SECONDS)
    except asyncio.TimeoutError:
        raise HttpError(408, "timeout", "the body did not arrive in time") from None
    except asyncio.IncompleteReadError:
        raise HttpError(400, "bad_request", "the body is shorter than it says") from None


def _head(status: int, headers: "Dict[str, str]") -> bytes:
    lines = ["HTTP/1.1 %d %s" % (status, HTTPStatus(status).phrase)]
    lines += ["%s: %s" % pair for pair in headers.items()]
    return ("\r\n".join(lines) + "\r\n\r\n").encode("latin-1")


async def drained(writer: asyncio.StreamWriter) -> None:
    """Wait until the client has read enough. Raises ConnectionError if it reads nothing."""
    try:
        await asyncio.wait_for(writer.drain(), STALL_SECONDS)
    except asyncio.TimeoutError:
        raise ConnectionError("the client takes nothing") from None


async def send_json(
    writer: asyncio.StreamWriter,
    status: int,
    value: object,
    *,
    headers: "Optional[Dict[str, str]]" = None,
    keep: bool = True,
    bare: bool = False,
) -> None:
    """Send `value` as JSON; `keep` the connection open. `bare`: without the body, for HEAD."""
    body = json.dumps(value, ensure_ascii=True, allow_nan=False).encode() + b"\n"
    fields = {
        "Content-Type": "application/json",
        "Content-Length": str(len(body)),
        "Cache-Control": "no-store",
        "Connection": "keep-alive" if keep else "close",
        **(headers or {}),
    }
    writer.write(_head(status, fields) + (b"" if bare else body))
    await drained(writer)


class EventStream:
    """Server-sent events, in chunks so that the client notices a broken stream."""

    def __init__(self, writer: asyncio.StreamWriter, *, chunked: bool) -> None:
        self._writer, self._chunked = writer, chunked
        self.begun = False

    def _begin(self) -> bytes:
        self.begun = True
        fields = {
            "Content-Type": "text/event-stream; charset=utf-8",
            "Cache-Control": "no-store",
            "X-Accel-Buffering": "no",
            "Connection": "keep-alive" if self._chunked else "close",
        }
        if self._chunked:
            fields["Transfer-Encoding"] = "chunked"
        return _head(200, fields)

    async def send(self, value: object, event: str = "") -> None:
        """Send an event: a value as JSON, or a text unchanged."""
        data = value if isinstance(value, str) else json.dumps(value, allow_nan=False)
        head = "event: %s\n" % event if event else ""
        await self._write(("%sdata: %s\n\n" % (head, data)).encode())

    async def comment(self, text: str) -> None:
        """Send a line that clients ignore, to keep the connection alive."""
        await self._write((": %s\n\n" % text).encode())

    async def _write(self, data: bytes) -> None:
        begin = b"" if self.begun else self._begin()
        if self._chunked:
            data = b"%x\r\n%s\r\n" % (len(data), data)
        self._writer.write(begin + data)
        await drained(self._writer)

    async def end(self) -> None:
        """Send the end of the stream."""
        if self._chunked:
            self._writer.write(b"0\r\n\r\n")
        await drained(self._writer)
