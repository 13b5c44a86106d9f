"""Answers of the paths that need the token: text, streams, tensors, the list of models."""

from __future__ import annotations

import asyncio
import time
import uuid
from typing import Any, Dict, List, Optional, Tuple

from fleet.device.server.api import Ask, Reader, body_of
from fleet.device.server.chat import Cutter
from fleet.device.server.wire import EventStream, Head, HttpError, send_json
from fleet.device.server.work import BackendError, Job

TURN_SECONDS = 0.5  # interval at which a waiting client is checked
COMMENT_SECONDS = 5.0  # interval of comments that keep a silent stream alive
_POSTS = {
    "generate": ("/generate", "/generate/stream", "/v1/chat/completions", "/v1/completions"),
    "infer": ("/infer",),
}
_ALL_POSTS = tuple(path for paths in _POSTS.values() for path in paths)
_POSTS["both"] = _ALL_POSTS
_GETS = ("/health", "/openapi.json", "/v1/models")


class Answers:
    """The processing of requests. `server` accepts jobs (`submit`), and its worker cancels them."""

    def __init__(self, config: "Dict[str, Any]", server: Any, reader: Reader, kind: str) -> None:
        self._config, self._server, self._reader = config, server, reader
        self._posts = _POSTS[kind]
        self._model_path = "/v1/models/" + config["name"]
        self._seconds: float = config["request_seconds"]

    def admit(self, head: Head) -> int:
        """Check path and method; return the maximum body length. Raises HttpError 404 or 405."""
        if head.path in (*_GETS, self._model_path):
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
        """Answer one request; return True if `keep` holds and the connection stays open.

        Raises HttpError if no answer has been sent.
        """
        if head.path in ("/v1/models", self._model_path):
            models = self._models()
            model = models if head.path == "/v1/models" else models["data"][0]
            await send_json(writer, 200, model, keep=keep)
            return keep
        body = body_of(head, raw)
        client = _Client(reader, writer)
        if head.path == "/infer":
            wish = self._reader.infer(body)
            job = Job(lambda backend, _: backend.infer(wish.inputs, wish.npy))
            result = (await self._whole(job, client))[1]
            await send_json(writer, 200, {**result, **self._provenance(), **_times(job)}, keep=keep)
            return keep
        ask, form = self._asked(head.path, body)
        if ask.logits:
            job = Job(lambda backend, _: backend.logits(ask.prompt))
        else:
            job = Job(
                lambda backend, own: backend.generate(ask.prompt, ask.limit, own, ask.sampling),
                Cutter(ask.stops, ask.tools),
            )
        ignored = {"ignored": list(ask.ignored)} if ask.ignored else {}
        if not ask.logits and (ask.stream or head.path == "/generate/stream"):
            stream = EventStream(writer, chunked=head.newest)
            return await self._stream(job, client, form, stream, ignored) and keep and head.newest
        text, result = await self._whole(job, client)
        answer = {**form.whole(text, result), **self._provenance(), **_times(job), **ignored}
        await send_json(writer, 200, answer, keep=keep)
        return keep

    def _asked(self, path: str, body: "Dict[str, Any]") -> "Tuple[Ask, _Plain]":
        if path == "/v1/chat/completions":
            ask = self._reader.chat(body)
            return ask, _Chat(self._config, ask)
        if path == "/v1/completions":
            ask = self._reader.completion(body)
            return ask, _Completion(self._config, ask)
        ask = self._reader.generate(body)
        if ask.logits and path == "/generate/stream":
            raise HttpError(400, "unsupported", "logits: use /generate", param="logits")
        return ask, _Plain(self._config, ask)

    def _provenance(self) -> "Dict[str, Any]":
        return {key: self._config[key] for key in ("release", "emulated")}

    def _models(self) -> "Dict[str, Any]":
        model = {"id": self._config["name"], "object": "model", "created": 0, "owned_by": "fleet"}
        return {"object": "list", "data": [{**model, **self._provenance()}]}

    async def _whole(self, job: Job, client: "_Client") -> "Tuple[str, Dict[str, Any]]":
        """Return the whole result of a job.

        Raises HttpError, or ConnectionError if the client is gone.
        """
        parts: "List[str]" = []
        events = self._events(job, client, self._seconds)
        try:
            async for kind, value in events:
                if kind == "token":
                    parts.append(value[0])
                elif kind == "done":
                    return "".join(parts), value
                elif kind == "error":
                    raise as_http(value)
        finally:
            await events.aclose()
        raise ConnectionError

    async def _stream(
        self,
        job: Job,
        client: "_Client",
        form: "_Plain",
        stream: EventStream,
        ignored: "Dict[str, Any]",
    ) -> bool:
        """Send a job as events. An error before the first event becomes a normal answer."""
        events = self._events(job, client, COMMENT_SECONDS)
        try:
            async for kind, value in events:
                if kind == "idle":
                    await stream.comment("waiting")
                elif kind == "token":
                    await form.token(stream, *value)
                elif kind == "done":
                    more = {**self._provenance(), **_times(job), **ignored}
                    await form.done(stream, value, more)
                else:
                    await _failed(stream, as_http(value), form.error_event)
        finally:
            await events.aclose()
        await stream.end()
        return True

    async def _events(self, job: Job, client: "_Client", silence: float) -> Any:
        """Yield the events of a job; ("idle", None) after `silence` seconds without one.

        At the end the job is cancelled if it still runs, for example because the client is gone.
        """
        self._server.submit(job)
        over, last = False, time.monotonic()
        turn: "Optional[asyncio.Task[Tuple[str, Any]]]" = None
        try:
            while not over:
                # The task survives a timeout: wait_for may lose the event that it waits for.
                turn = turn or asyncio.ensure_future(job.events.get())
                await asyncio.wait({turn}, timeout=TURN_SECONDS)
                now = time.monotonic()
                if client.gone:
                    raise ConnectionError
                if now - job.arrived > self._seconds:
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
    """The connection of a client."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer

    @property
    def gone(self) -> bool:
        """True if the client has closed its side or the connection."""
        return self._reader.at_eof() or self._writer.transport.is_closing()


class _Plain:
    """The answer format of /generate."""

    error_event = "error"

    def __init__(self, config: "Dict[str, Any]", ask: Ask) -> None:
        self.config, self.ask = config, ask

    def whole(self, text: str, result: "Dict[str, Any]") -> "Dict[str, Any]":
        """Return text, finish reason, usage and tokens, or the logits of one pass."""
        if self.ask.logits:
            return {"logits": result["logits"], "usage": usage(result)}
        answer = {"text": text, "finish_reason": result["finish"], "usage": usage(result)}
        tokens = result.get("tokens")
        return answer if tokens is None else {**answer, "tokens": tokens}

    async def token(self, stream: EventStream, text: str, token: "Optional[int]") -> None:
        """Send a piece of text, with its token id if the backend reports it."""
        await stream.send(
            {"text": text} if token is None else {"token": token, "text": text}, "token"
        )

    async def done(
        self, stream: EventStream, result: "Dict[str, Any]", more: "Dict[str, Any]"
    ) -> None:
        """Send the last event: finish reason, usage and the fields of `more`."""
        answer = {"finish_reason": result["finish"], "usage": usage(result), **more}
        await stream.send(answer, "done")


class _Completion(_Plain):
    """The answer format of /v1/completions, and the base of chat."""

    error_event = ""
    kind, chunk, prefix = "text_completion", "text_completion", "cmpl-"

    def __init__(self, config: "Dict[str, Any]", ask: Ask) -> None:
        super().__init__(config, ask)
        self._id = self.prefix + uuid.uuid4().hex
        self._created = int(time.time())

    def _frame(self, kind: str) -> "Dict[str, Any]":
        model = self.config["name"]
        return {"id": self._id, "object": kind, "created": self._created, "model": model}

    def choice(self, text: str, result: "Dict[str, Any]") -> "Dict[str, Any]":
        """Return the only choice of a whole answer to a completion."""
        return {"index": 0, "text": text, "logprobs": None, "finish_reason": result["finish"]}

    def whole(self, text: str, result: "Dict[str, Any]") -> "Dict[str, Any]":
        """Return a whole answer in OpenAI's form."""
        choices = [self.choice(text, result)]
        return {**self._frame(self.kind), "choices": choices, "usage": usage(result)}

    async def token(self, stream: EventStream, text: str, _: "Optional[int]") -> None:
        """Send a piece of text, unless it is ""."""
        if text:
            await self._piece(stream, text, None)

    async def _piece(self, stream: EventStream, text: str, finish: "Optional[str]") -> None:
        choice = {"index": 0, "text": text, "logprobs": None, "finish_reason": finish}
        await stream.send({**self._frame(self.chunk), "choices": [choice]})

    async def _last(self, stream: EventStream, result: "Dict[str, Any]") -> None:
        await self._piece(stream, "", result["finish"])

    async def done(
        self, stream: EventStream, result: "Dict[str, Any]", more: "Dict[str, Any]"
    ) -> None:
        """Send the last chunk, the counts if requested, and [DONE]."""
        await self._last(stream, result)
        if self.ask.usage:
            counts = {"choices": [], "usage": usage(result), **more}
            await stream.send({**self._frame(self.chunk), **counts})
        await stream.send("[DONE]")


class _Chat(_Completion):
    """The answer format of /v1/chat/completions."""

    kind, chunk, prefix = "chat.completion", "chat.completion.chunk", "chatcmpl-"
    _begun = False

    def choice(self, text: str, result: "Dict[str, Any]") -> "Dict[str, Any]":
        """Return the only choice, with tool calls if the answer has them."""
        message = {"role": "assistant", "content": text}  # type: Dict[str, Any]
        calls = _tool_calls(result)
        if calls:
            message = {**message, "content": text or None, "tool_calls": calls}
        finish = "tool_calls" if calls else result["finish"]
        return {"index": 0, "message": message, "finish_reason": finish}

    async def _piece(self, stream: EventStream, text: str, finish: "Optional[str]") -> None:
        await self._delta(stream, {"content": text}, finish)

    async def _delta(
        self, stream: EventStream, delta: "Dict[str, Any]", finish: "Optional[str]"
    ) -> None:
        """Send a chunk; the first one contains the role."""
        role = {} if self._begun or not delta else {"role": "assistant"}
        self._begun = self._begun or bool(role)
        choice = {"index": 0, "delta": {**role, **delta}, "finish_reason": finish}
        await stream.send({**self._frame(self.chunk), "choices": [choice]})

    async def _last(self, stream: EventStream, result: "Dict[str, Any]") -> None:
        calls = _tool_calls(result)
        for index, call in enumerate(calls):
            await self._delta(stream, {"tool_calls": [{"index": index, **call}]}, None)
        await self._delta(stream, {}, "tool_calls" if calls else result["finish"])


def _tool_calls(result: "Dict[str, Any]") -> "List[Dict[str, Any]]":
    return [
        {
            "id": "call_" + uuid.uuid4().hex[:24],
            "type": "function",
            "function": {"name": call.name, "arguments": call.arguments},
        }
        for call in result.get("calls", ())
    ]


async def _failed(stream: EventStream, error: HttpError, event: str) -> None:
    """Send an error as an `event` of the stream, or raise it if the stream has not begun."""
    if not stream.begun:
        raise error
    await stream.send(error.as_dict(), event)


def usage(result: "Dict[str, Any]") -> "Dict[str, Any]":
    """Return the token counts with OpenAI's names, null if the backend does not count."""
    asked, made = result["prompt_tokens"], result["completion_tokens"]
    whole = None if asked is None else asked + made
    return {"prompt_tokens": asked, "completion_tokens": made, "total_tokens": whole}


def _times(job: Job) -> "Dict[str, Any]":
    """Return the milliseconds in the queue and in total, as the server saw them."""
    now = time.monotonic()
    waited = round((job.began - job.arrived) * 1000, 1)
    return {"queue_ms": waited, "total_ms": round((now - job.arrived) * 1000, 1)}


def as_http(error: BackendError) -> HttpError:
    """Return the HTTP error for an error of a backend."""
    headers = {"Retry-After": "5"} if error.status == 503 else {}
    param = "prompt" if error.code == "context_exceeded" else None
    return HttpError(error.status, error.code, error.message, param=param, headers=headers)
