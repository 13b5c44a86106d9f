"""What clients send, checked: bodies become prompts and limits, or errors (HttpError, 4xx).

Nothing is passed over in silence: an unknown field, and one that this service cannot honour,
is an error that names it.
"""

from __future__ import annotations

import json
import math
import re
from typing import Any, Dict, List, NamedTuple, Optional, Union

from fleet.device.server.wire import Head, HttpError

ROLES = ("system", "user", "assistant")
MESSAGES = 256
NEUTRAL = {"n": 1, "frequency_penalty": 0, "presence_penalty": 0, "logprobs": False, "store": False}
_SAMPLING = "leave it out: the bundle fixes the sampler"
UNSUPPORTED = {
    "temperature": _SAMPLING,
    "top_p": _SAMPLING,
    "seed": _SAMPLING,
    "stop": "leave it out: stop sequences are not supported",
    "tools": "leave it out: tools are not supported",
    "tool_choice": "leave it out: tools are not supported",
    "functions": "leave it out: tools are not supported",
    "function_call": "leave it out: tools are not supported",
    "response_format": "leave it out: the service only makes plain text",
    "logit_bias": _SAMPLING,
    "top_logprobs": "leave it out: log probabilities are not supported",
    "n": "must be 1: a request gets one answer",
    "frequency_penalty": _SAMPLING,
    "presence_penalty": _SAMPLING,
    "logprobs": "leave it out: log probabilities are not supported",
    "store": "must be false: the service stores nothing",
    "modalities": "leave it out: the service only makes plain text",
    "audio": "leave it out: the service only makes plain text",
}
_MARK = re.compile(r"<[^<>\s]{1,40}>|\[/?[A-Z_]{1,20}\]")


class Ask(NamedTuple):
    """A request for text. `prompt` is text or token ids; `usage`: a stream ends with a chunk that
    counts the tokens.
    """

    prompt: "Union[str, List[int]]"
    limit: int
    stream: bool = False
    usage: bool = False


class Infer(NamedTuple):
    """A request for one run. `npy`: tensors of the answer as .npy."""

    inputs: "Dict[str, Any]"
    npy: bool


def body_of(head: Head, raw: bytes) -> "Dict[str, Any]":
    """The JSON object of a request."""
    kind = head.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != "application/json":
        raise HttpError(415, "not_json", "send Content-Type: application/json")
    try:
        found = json.loads(raw.decode("utf-8"), parse_constant=_no_constant)
    except (ValueError, RecursionError) as error:
        raise HttpError(400, "not_json", "not valid JSON: %s" % str(error)[:200]) from None
    if not isinstance(found, dict):
        raise HttpError(400, "not_json", "the body must be a JSON object")
    return found


def _no_constant(name: str) -> None:
    raise ValueError("%s is not allowed in JSON" % name)


def bad(param: str, message: str, code: str = "invalid_value") -> HttpError:
    """400 for one field."""
    return HttpError(400, code, "%s: %s" % (param, message), param=param)


class Reader:
    """Bodies, by the limits of the configuration."""

    def __init__(self, config: "Dict[str, Any]") -> None:
        self._name: str = config["name"]
        self._tokens: int = config["max_tokens"]
        self._bytes: int = config["max_prompt_bytes"]
        self._template: "Optional[Dict[str, str]]" = config.get("template")
        self._vocabulary: "Optional[int]" = config.get("vocabulary")  # None: no token ids
        texts = "".join((self._template or {}).values())
        self._marks = tuple(sorted(set(_MARK.findall(texts))))

    def generate(self, body: "Dict[str, Any]") -> Ask:
        """Body of /generate and /generate/stream."""
        _only(body, ("prompt", "max_tokens"))
        if "prompt" not in body:
            raise bad("prompt", "the field is missing", "missing_field")
        prompt, limit = body["prompt"], self._limit(body, "max_tokens")
        if isinstance(prompt, list) and self._vocabulary is not None:
            return Ask(self._ids(prompt, self._vocabulary), limit)
        return Ask(self._text("prompt", prompt), limit)

    def chat(self, body: "Dict[str, Any]") -> Ask:
        """Body of /v1/chat/completions."""
        _refuse(body)
        known = ("model", "messages", "max_tokens", "max_completion_tokens", "stream", "user")
        _only(body, (*known, "stream_options", *UNSUPPORTED))
        model = body.get("model", self._name)
        if model != self._name:
            raise HttpError(404, "model_not_found", "the model is %s" % self._name, param="model")
        stream, options = body.get("stream"), body.get("stream_options")
        stream = False if stream is None else stream
        if not isinstance(stream, bool):
            raise bad("stream", "must be true or false")
        if options is not None and not (isinstance(options, dict) and stream):
            raise bad("stream_options", "must be an object, and stream must be true")
        usage = (options or {}).get("include_usage", False)
        if not isinstance(usage, bool) or set(options or ()) - {"include_usage"}:
            raise bad("stream_options", "may only contain include_usage: true or false")
        if not isinstance(body.get("user", ""), str):
            raise bad("user", "must be text")
        older, newer = self._limit(body, "max_tokens"), self._limit(body, "max_completion_tokens")
        limit = older if body.get("max_completion_tokens") is None else newer
        return Ask(self._prompt(body.get("messages")), limit, stream, usage)

    def infer(self, body: "Dict[str, Any]") -> Infer:
        """Body of /infer; what fits the model is for the backend to say."""
        _only(body, ("inputs", "output"))
        inputs, output = body.get("inputs"), body.get("output", "json")
        if not isinstance(inputs, dict):
            raise bad("inputs", "must be an object: name of the input to tensor")
        if output not in ("json", "npy"):
            raise bad("output", "must be json or npy")
        for name, tensor in inputs.items():
            param = "inputs.%s" % name[:80]
            if not isinstance(tensor, dict) or len({"data", "npy"} & set(tensor)) != 1:
                raise bad(param, "must be an object with either data or npy")
            if set(tensor) - {"data", "npy", "shape"}:
                raise bad(param, "may only contain data, shape and npy")
            if not isinstance(tensor.get("npy", ""), str):
                raise bad(param, "npy must be text in base64")
            if "shape" in tensor and not _is_shape(tensor["shape"]):
                raise bad(param, "shape must be a list of at most 8 whole numbers")
        return Infer(inputs, output == "npy")

    def _limit(self, body: "Dict[str, Any]", key: str) -> int:
        value = body.get(key)
        if value is None:
            return self._tokens
        if isinstance(value, bool) or not isinstance(value, int):
            raise bad(key, "must be a whole number")
        if not 1 <= value <= self._tokens:
            raise bad(key, "must be from 1 to %d, not %d" % (self._tokens, value))
        return value

    def _ids(self, prompt: "List[Any]", vocabulary: int) -> "List[int]":
        if not prompt:
            raise bad("prompt", "must not be empty")
        if not all(type(token) is int and 0 <= token < vocabulary for token in prompt):
            raise bad("prompt", "token ids must be whole numbers from 0 to %d" % (vocabulary - 1))
        return prompt

    def _text(self, param: str, value: object) -> str:
        if not isinstance(value, str):
            raise bad(param, "must be text")
        try:
            size = len(value.encode())
        except UnicodeEncodeError:
            raise bad(param, "contains a lone surrogate, which is not valid text") from None
        if not value.strip() or "\0" in value:
            raise bad(param, "must not be empty" if not value.strip() else "must not contain NUL")
        if size > self._bytes:
            raise bad(param, "%d bytes; at most %d" % (size, self._bytes), "prompt_too_long")
        return value

    def _prompt(self, messages: object) -> str:
        """Messages through the template of the playbook."""
        if self._template is None:
            raise HttpError(
                400,
                "no_template",
                "this service has no chat template; use /generate, or set serve: template:",
            )
        if not isinstance(messages, list) or not 1 <= len(messages) <= MESSAGES:
            raise bad("messages", "must be a list of 1 to %d messages" % MESSAGES)
        parts = [self._template.get("begin", "")]
        parts += [self._message("messages[%d]" % n, message) for n, message in enumerate(messages)]
        if messages[-1]["role"] != "user":
            raise bad("messages", "the last message must have the role user")
        return self._text("messages", "".join([*parts, self._template.get("end", "")]))

    def _message(self, param: str, message: object) -> str:
        if not isinstance(message, dict):
            raise bad(param, "must be an object with role and content")
        if set(message) - {"role", "content", "name"}:
            raise bad(param, "may only contain role and content", "unknown_field")
        if not isinstance(message.get("name", ""), str):
            raise bad(param + ".name", "must be text")
        role = message.get("role")
        form = (self._template or {}).get(role) if isinstance(role, str) else None
        if role not in ROLES or form is None:
            known = [name for name in ROLES if name in (self._template or {})]
            raise bad(param + ".role", "must be one of: %s" % ", ".join(known))
        text = self._text(param + ".content", _joined(message.get("content")))
        for mark in self._marks:
            if mark in text:
                raise bad(param + ".content", "must not contain %s" % mark)
        return form.replace("{content}", text)


def _joined(content: object) -> object:
    """A list of text parts as one text; anything else as it is."""
    if isinstance(content, list) and all(
        isinstance(part, dict) and part.get("type") == "text" and isinstance(part.get("text"), str)
        for part in content
    ):
        return "".join(part["text"] for part in content)
    return content


def _only(body: "Dict[str, Any]", known: "tuple[str, ...]") -> None:
    for key in body:
        if key not in known:
            raise HttpError(400, "unknown_field", "unknown field %s" % key[:80], param=key[:80])


def _refuse(body: "Dict[str, Any]") -> None:
    for key, why in UNSUPPORTED.items():
        value = body.get(key)
        if value in (None, [], {}):
            continue
        if key in NEUTRAL and not isinstance(value, str) and value == NEUTRAL[key]:
            continue
        raise bad(key, why, "unsupported")


def _is_shape(value: object) -> bool:
    if not isinstance(value, list) or len(value) > 8:
        return False
    sizes: "List[int]" = [size for size in value if type(size) is int and 0 <= size < 1 << 31]
    return len(sizes) == len(value) and math.prod(sizes) < 1 << 31
