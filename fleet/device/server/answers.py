"""Answers of the paths that need the token: text, streams, tensors, the list of models."""

from __future__ import annotations

import asyncio
import time
import uuid
from typing import Any, Dict, List, Optional, Tuple

from fleet.device.server.api import Ask, Reader, body_of
from fleet.device.server.wire import EventStream, Head, HttpError, send_json
from fleet.device.server.work import BackendError, Job

TURN_SECONDS = 0.5  # how often a client that waits is looked at
COMMENT_SECONDS = 5.0  # a stream in which nothing comes says that it lives
_POSTS = {
    "generate": ("/generate", "/generate/stream", "/v1/chat/completions"),
    "infer": ("/infer",),
}
_ALL_POSTS = tuple(path for paths in _POSTS.values() for path in paths)
_GETS = ("/health", "/openapi.json", "/v1/models")


class Answers:
    """Works off requests. `server` takes jobs (`submit`) and has the worker that cancels them."""

    def __init__(self, config: "Dict[str, Any]", server: Any, reader: Reader, kind: str) -> None:
        self._config, self._server, self._reader = config, server, reader
        self._posts = _POSTS[kind]
        self._seconds: float = config["request_seconds"]

    def admit(self, head: Head) -> int:
        """Path and method; how long the body may be. Raises HttpError 404 or 405."""
        if head.path in _GETS:
            wanted = "GET"
        elif head.path in self._posts:
            wanted = "POST"
        else:
            other = " for this backend" if head.path in _ALL_POSTS else ""
            raise HttpError(404, "not_found", "no such path%s: see /openapi.json" % other)
        if head.method != wanted:
            raise HttpError(405, "method_not_allowed", "use %s" % wanted, headers={"Allow": wanted})
        if wanted == "GET":
            return 0
        return int(self._config["max_infer_bytes" if head.path == "/infer" else "max_body_bytes"])

    async def work(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        head: Head,
        raw: bytes,
        *,
        keep: bool,
    ) -> bool:
        """One request; True when the connection may go on. Raises HttpError before an answer."""
        if head.path == "/v1/models":
            await send_json(writer, 200, self._models(), keep=keep)
            return keep
        body = body_of(head, raw)
        client = _Client(reader, writer)
        if head.path == "/infer":
            wish = self._reader.infer(body)
            job = Job(lambda backend, _: backend.infer(wish.inputs, wish.npy))
            result = (await self._whole(job, client))[1]
            await send_json(writer, 200, {**result, **self._provenance(), **_times(job)}, keep=keep)
            return keep
        chat = head.path == "/v1/chat/completions"
        ask = self._reader.chat(body) if chat else self._reader.generate(body)
        form: "_Plain" = _Chat(self._config, ask) if chat else _Plain(self._config, ask)
        job = Job(lambda backend, own: backend.generate(ask.prompt, ask.limit, own))
        if ask.stream or head.path == "/generate/stream":
            stream = EventStream(writer, chunked=head.newest)
            return await self._stream(job, client, form, stream) and keep and head.newest
        text, result = await self._whole(job, client)
        said = {**form.whole(text, result), **self._provenance(), **_times(job)}
        await send_json(writer, 200, said, keep=keep)
        return keep

    def _provenance(self) -> "Dict[str, Any]":
        return {key: self._config[key] for key in ("release", "emulated")}

    def _models(self) -> "Dict[str, Any]":
        model = {"id": self._config["name"], "object": "model", "created": 0, "owned_by": "fleet"}
        return {"object": "list", "data": [{**model, **self._provenance()}]}

    async def _whole(self, job: Job, client: "_Client") -> "Tuple[str, Dict[str, Any]]":
        """All of a job. Raises HttpError; ConnectionError when the client has gone."""
        parts: "List[str]" = []
        events = self._events(job, client, self._seconds)
        try:
            async for kind, value in events:
                if kind == "token":
                    parts.append(value)
                elif kind == "done":
                    return "".join(parts), value
                elif kind == "error":
                    raise as_http(value)
        finally:
            await events.aclose()
        raise ConnectionError

    async def _stream(
        self, job: Job, client: "_Client", form: "_Plain", stream: EventStream
    ) -> bool:
        """A job as events. An error before the first one is an answer of its own."""
        events = self._events(job, client, COMMENT_SECONDS)
        try:
            async for kind, value in events:
                if kind == "idle":
                    await stream.comment("waiting")
                elif kind == "token":
                    await form.token(stream, value)
                elif kind == "done":
                    await form.done(stream, value, {**self._provenance(), **_times(job)})
                else:
                    await _failed(stream, as_http(value), form.error_event)
        finally:
            await events.aclose()
        await stream.end()
        return True

    async def _events(self, job: Job, client: "_Client", silence: float) -> Any:
        """Events of a job; ("idle", None) after `silence` seconds without one.

        However this ends, nobody works for it any more: a client that goes cancels the job.
        """
        self._server.submit(job)
        over, last = False, time.monotonic()
        turn: "Optional[asyncio.Task[Tuple[str, Any]]]" = None
        try:
            while not over:
                # The task outlives a look at the clock: wait_for may lose what it waited for.
                turn = turn or asyncio.ensure_future(job.events.get())
                await asyncio.wait({turn}, timeout=TURN_SECONDS)
                now = time.monotonic()
                if client.gone:
                    raise ConnectionError
                if now - job.told > self._seconds:
                    late = "no end within %g s" % self._seconds
                    yield "error", BackendError("timeout", late, 504)
                    return
                if turn.done():
                    (kind, value), turn, last = turn.result(), None, now
                    over = kind != "token"
                    yield kind, value
                elif now - last > silence:
                    last = now
                    yield "idle", None
        finally:
            if turn is not None:
                turn.cancel()
            if not over:
                self._server.worker.cancel(job)


class _Client:
    """Whether the other side is still there."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer

    @property
    def gone(self) -> bool:
        """It has closed its side, or all of it."""
        return self._reader.at_eof() or self._writer.transport.is_closing()


class _Plain:
    """The form of /generate."""

    error_event = "error"

    def __init__(self, config: "Dict[str, Any]", ask: Ask) -> None:
        self.config, self.ask = config, ask

    def whole(self, text: str, result: "Dict[str, Any]") -> "Dict[str, Any]":
        """One answer."""
        return {"text": text, "finish_reason": result["finish"], "usage": usage(result)}

    async def token(self, stream: EventStream, text: str) -> None:
        """A piece of text."""
        await stream.send({"text": text}, "token")

    async def done(
        self, stream: EventStream, result: "Dict[str, Any]", more: "Dict[str, Any]"
    ) -> None:
        """The end."""
        said = {"finish_reason": result["finish"], "usage": usage(result), **more}
        await stream.send(said, "done")


class _Chat(_Plain):
    """The form of /v1/chat/completions."""

    error_event = ""

    def __init__(self, config: "Dict[str, Any]", ask: Ask) -> None:
        super().__init__(config, ask)
        self._id = "chatcmpl-" + uuid.uuid4().hex
        self._created = int(time.time())
        self._begun = False

    def _frame(self, kind: str) -> "Dict[str, Any]":
        model = self.config["name"]
        return {"id": self._id, "object": kind, "created": self._created, "model": model}

    def whole(self, text: str, result: "Dict[str, Any]") -> "Dict[str, Any]":
        """chat.completion."""
        message = {"role": "assistant", "content": text}
        choice = {"index": 0, "message": message, "finish_reason": result["finish"]}
        frame = self._frame("chat.completion")
        return {**frame, "choices": [choice], "usage": usage(result)}

    async def _chunk(
        self, stream: EventStream, delta: "Dict[str, str]", finish: "Optional[str]"
    ) -> None:
        choice = {"index": 0, "delta": delta, "finish_reason": finish}
        await stream.send({**self._frame("chat.completion.chunk"), "choices": [choice]})

    async def token(self, stream: EventStream, text: str) -> None:
        """chat.completion.chunk; the first one says the role."""
        role = {} if self._begun else {"role": "assistant"}
        self._begun = True
        await self._chunk(stream, {**role, "content": text}, None)

    async def done(
        self, stream: EventStream, result: "Dict[str, Any]", more: "Dict[str, Any]"
    ) -> None:
        """The last chunk, and [DONE]."""
        await self._chunk(stream, {}, result["finish"])
        if self.ask.usage:
            frame = self._frame("chat.completion.chunk")
            await stream.send({**frame, "choices": [], "usage": usage(result), **more})
        await stream.send("[DONE]")


async def _failed(stream: EventStream, error: HttpError, event: str) -> None:
    """An error in a stream, or as an answer of its own where nothing has been sent."""
    if not stream.begun:
        raise error
    await stream.send(error.as_dict(), event)


def usage(result: "Dict[str, Any]") -> "Dict[str, Any]":
    """Counts as OpenAI names them; null where the backend does not count."""
    asked, made = result["prompt_tokens"], result["completion_tokens"]
    whole = None if asked is None else asked + made
    return {"prompt_tokens": asked, "completion_tokens": made, "total_tokens": whole}


def _times(job: Job) -> "Dict[str, Any]":
    """Milliseconds in the queue and in all, as the server saw them."""
    now = time.monotonic()
    waited = round((job.began - job.told) * 1000, 1)
    return {"queue_ms": waited, "total_ms": round((now - job.told) * 1000, 1)}


def as_http(error: BackendError) -> HttpError:
    """The answer for what a backend reports."""
    headers = {"Retry-After": "5"} if error.status == 503 else {}
    param = "prompt" if error.code == "context_exceeded" else None
    return HttpError(error.status, error.code, error.message, param=param, headers=headers)
