"""Validation of requests: bodies become prompts and limits, or errors (HttpError, 4xx).

Nothing is ignored silently. An unknown field is an error that names it, and so is an unsupported
field that would change the answer. An unsupported field that the answer does not depend on, such as
a missing sampler option, is accepted and listed under `ignored`.
"""

from __future__ import annotations

import json
import math
from typing import Any, Dict, List, NamedTuple, Optional, Tuple, Union

from fleet.device.server.chat import SWITCHES, Template, TemplateError
from fleet.device.server.wire import Head, HttpError

MESSAGES = 1024
STOPS, STOP_CHARS, TOOLS = 16, 200, 128
_ROLES = {"developer": "system"}  # other names of roles that templates know
_FIELDS = (
    *("model", "max_tokens", "max_completion_tokens", "stream", "stream_options", "stop"),
    *("messages", "tools", "tool_choice", "parallel_tool_calls", "chat_template_kwargs"),
    *("prompt", "suffix", "echo", "best_of"),
)
# Fields of a sampler with their smallest and largest value.
SAMPLING = {
    "temperature": (0, 10),
    "top_p": (0, 1),
    "top_k": (-1, 1 << 31),
    "min_p": (0, 1),
    "seed": (-(1 << 63), (1 << 64) - 1),
    "frequency_penalty": (-2, 2),
    "presence_penalty": (-2, 2),
    "repetition_penalty": (0, 10),
}
# Values of SAMPLING fields that have no effect.
_NEUTRAL = {
    "top_p": 1, "top_k": -1, "min_p": 0, "frequency_penalty": 0, "presence_penalty": 0,
    "repetition_penalty": 1,
}  # fmt: skip
# Fields that do not change the text of an answer: user, storage, price.
_APART = {
    *("user", "metadata", "service_tier", "safety_identifier", "prompt_cache_key", "store"),
    *("prompt_cache_retention", "cache_prompt", "prediction", "verbosity", "reasoning_effort"),
}
_PLAIN = "leave it out: the service only makes plain text"
_JSON = {"type": "json_object"}  # the prompt has to ask for JSON itself, as with OpenAI
_LOGPROBS = "leave it out: log probabilities are not supported"
# Fields whose absence would surprise the client, with their harmless values.
UNSUPPORTED = {
    "n": ((1,), "must be 1: a request gets one answer"),
    "best_of": ((1,), "must be 1: a request gets one answer"),
    "echo": ((False,), "must be false: the answer does not repeat the prompt"),
    "suffix": (("",), "leave it out: the model only continues a text"),
    "logprobs": ((False, 0), _LOGPROBS),
    "top_logprobs": ((0,), _LOGPROBS),
    "logit_bias": ((), "leave it out: the bundle fixes the sampler"),
    "response_format": (({"type": "text"}, _JSON), _PLAIN),
    "modalities": ((["text"],), _PLAIN),
    "audio": ((), _PLAIN),
    "functions": ((), "use tools"),
    "function_call": (("none", "auto"), "use tool_choice"),
    "web_search_options": ((), "leave it out: the service searches nothing"),
}


class Ask(NamedTuple):
    """A request for text. `prompt` is text or token ids.

    `usage`: a stream ends with a chunk of token counts. `sampling` are fields of SAMPLING that the
    backend supports, `tools` are names of the functions that may be called, `ignored` are fields
    without effect. `logits`: one pass, no text.
    """

    prompt: "Union[str, List[int]]"
    limit: int
    stream: bool = False
    usage: bool = False
    stops: "Tuple[str, ...]" = ()
    sampling: "Dict[str, Any]" = {}  # noqa: RUF012 - nobody changes it
    tools: "Tuple[str, ...]" = ()
    ignored: "Tuple[str, ...]" = ()
    logits: bool = False


class Infer(NamedTuple):
    """A request for one run. `npy`: the answer has tensors as .npy."""

    inputs: "Dict[str, Any]"
    npy: bool


def body_of(head: Head, raw: bytes) -> "Dict[str, Any]":
    """Return the JSON object of a request. Raises HttpError 400 or 415."""
    kind = head.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != "application/json":
        raise HttpError(415, "not_json", "send Content-Type: application/json")
    try:
        body = json.loads(raw.decode("utf-8"), parse_constant=_no_constant)
    except (ValueError, RecursionError) as error:
        raise HttpError(400, "not_json", "not valid JSON: %s" % str(error)[:200]) from None
    if not isinstance(body, dict):
        raise HttpError(400, "not_json", "the body must be a JSON object")
    return body


def _no_constant(name: str) -> None:
    raise ValueError("%s is not allowed in JSON" % name)


def bad(param: str, message: str, code: str = "invalid_value") -> HttpError:
    """Return error 400 for the field `param`."""
    return HttpError(400, code, "%s: %s" % (param, message), param=param)


class Reader:
    """A validator of bodies with the limits of the configuration.

    `sampling` are the fields of SAMPLING that the backend supports. For a `greedy` backend,
    `temperature` 0 and the other fields have no effect.
    """

    def __init__(
        self, config: "Dict[str, Any]", sampling: "Tuple[str, ...]" = (), *, greedy: bool = False
    ) -> None:
        self._name: str = config["name"]
        self._tokens: int = config["max_tokens"]
        self._bytes: int = config["max_prompt_bytes"]
        given: "Optional[Dict[str, str]]" = config.get("template")
        self._template = None if given is None else Template(**given)
        self._vocabulary: "Optional[int]" = config.get("vocabulary")  # None: no token ids
        self._text_in: bool = config.get("text", True)  # False: no tokenizer, token ids only
        self._sampling, self._greedy = sampling, greedy

    def generate(self, body: "Dict[str, Any]") -> Ask:
        """Validate the body of /generate and /generate/stream."""
        _only(body, ("prompt", "max_tokens", "stop", "logits"))
        logits = body.get("logits", False)
        if not isinstance(logits, bool):
            raise bad("logits", "must be true or false")
        prompt, limit = self._asked(body), self._limit(body, "max_tokens")
        return Ask(prompt, limit, stops=_stops(body), logits=logits)

    def completion(self, body: "Dict[str, Any]") -> Ask:
        """Validate the body of /v1/completions: a text that the model continues, without a
        template.
        """
        given = body.get("prompt")
        if isinstance(given, list) and len(given) == 1 and isinstance(given[0], (str, list)):
            body = {**body, "prompt": given[0]}
        return self._openai(body, lambda: self._asked(body), ())

    def chat(self, body: "Dict[str, Any]") -> Ask:
        """Validate the body of /v1/chat/completions."""
        tools, names = self._tools(body)
        switches = self._switches(body.get("chat_template_kwargs"))
        return self._openai(
            body, lambda: self._prompt(body.get("messages"), tools, switches), names
        )

    def _openai(self, body: "Dict[str, Any]", prompt: Any, names: "Tuple[str, ...]") -> Ask:
        for key, (harmless, why) in UNSUPPORTED.items():
            value = body.get(key)
            if value not in (None, [], {}) and not any(
                value == good and type(value) is type(good) for good in harmless
            ):
                raise bad(key, why, "unsupported")
        _only(body, (*_FIELDS, *SAMPLING, *UNSUPPORTED, *_APART))
        model = body.get("model", self._name)
        if model != self._name:
            raise HttpError(404, "model_not_found", "the model is %s" % self._name, param="model")
        stream, usage = _streaming(body)
        if not isinstance(body.get("user") or "", str):
            raise bad("user", "must be text")
        older, newer = (self._limit(body, key, cap=True) for key in ("max_tokens", _NEWER))
        sampling, ignored = self._sampled(body)
        if body.get("tool_choice") not in (None, "auto", "none"):
            ignored = (*ignored, "tool_choice")
        if body.get("response_format") == _JSON:
            ignored = (*ignored, "response_format")
        limit = older if body.get(_NEWER) is None else newer
        stops = _stops(body)
        return Ask(prompt(), limit, stream, usage, stops, sampling, names, ignored)

    def _sampled(self, body: "Dict[str, Any]") -> "Tuple[Dict[str, Any], Tuple[str, ...]]":
        """Return the sampler options, and the names of those that this backend does not support."""
        obeyed, ignored = {}, []  # type: Tuple[Dict[str, Any], List[str]]
        for key, (least, most) in SAMPLING.items():
            value = body.get(key)
            if value is None:
                continue
            number = not isinstance(value, bool) and isinstance(value, (int, float))
            if not number or not least <= value <= most:
                raise bad(key, "must be a number from %d to %d" % (least, most))
            if key in self._sampling:
                obeyed[key] = value
            elif self._greedy and key in ("seed", "top_p", "top_k", "min_p"):
                continue
            elif value != (0 if self._greedy and key == "temperature" else _NEUTRAL.get(key)):
                ignored.append(key)
        return obeyed, tuple(ignored)

    def _tools(self, body: "Dict[str, Any]") -> "Tuple[List[Any], Tuple[str, ...]]":
        """Return the schemas of the tools for the model, and their names."""
        tools, choice = body.get("tools") or [], body.get("tool_choice")
        if not isinstance(tools, list) or len(tools) > TOOLS:
            raise bad("tools", "must be a list of at most %d tools" % TOOLS)
        if tools and (self._template is None or not self._template.can_call):
            raise bad("tools", "leave it out: the chat template has no tools", "unsupported")
        names = []
        for number, tool in enumerate(tools):
            function = tool.get("function") if isinstance(tool, dict) else None
            name = function.get("name") if isinstance(function, dict) else None
            if not isinstance(name, str) or tool.get("type") != "function":
                raise bad("tools[%d]" % number, "must be a function with a name")
            names.append(name)
        if isinstance(choice, dict):
            function = choice.get("function")
            wanted = function.get("name") if isinstance(function, dict) else None
            if wanted not in names:
                raise bad("tool_choice", "must name one of the tools")
            tools = [tool for tool in tools if tool["function"]["name"] == wanted]
            names = [str(wanted)]
        elif choice not in (None, "auto", "none", "required"):
            raise bad("tool_choice", "must be auto, none, required, or name a function")
        return ([], ()) if choice == "none" else (tools, tuple(names))

    def _switches(self, given: object) -> "Dict[str, bool]":
        if given is None:
            return {}
        if not isinstance(given, dict) or not all(
            key in SWITCHES and isinstance(value, bool) for key, value in given.items()
        ):
            raise bad("chat_template_kwargs", "may only contain %s: true or false" % SWITCHES[0])
        return given

    def infer(self, body: "Dict[str, Any]") -> Infer:
        """Validate the body of /infer. The backend checks whether the tensors fit the model."""
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

    def _limit(self, body: "Dict[str, Any]", key: str, *, cap: bool = False) -> int:
        """Return the maximum tokens of an answer.

        With `cap`, a larger value becomes the service's own.
        """
        value = body.get(key)
        if value is None or (cap and type(value) is int and value == -1):
            return self._tokens
        if isinstance(value, bool) or not isinstance(value, int):
            raise bad(key, "must be a whole number")
        if cap and value > self._tokens:
            return self._tokens
        if not 1 <= value <= self._tokens:
            raise bad(key, "must be from 1 to %d, not %d" % (self._tokens, value))
        return value

    def _asked(self, body: "Dict[str, Any]") -> "Union[str, List[int]]":
        prompt = body.get("prompt")
        if "prompt" not in body:
            raise bad("prompt", "the field is missing", "missing_field")
        if isinstance(prompt, list) and self._vocabulary is not None:
            return self._ids(prompt, self._vocabulary)
        return self._text("prompt", prompt)

    def _ids(self, prompt: "List[Any]", vocabulary: int) -> "List[int]":
        if not prompt:
            raise bad("prompt", "must not be empty")
        if not all(type(token) is int and 0 <= token < vocabulary for token in prompt):
            raise bad("prompt", "token ids must be whole numbers from 0 to %d" % (vocabulary - 1))
        return prompt

    def _text(self, param: str, value: object) -> str:
        if not isinstance(value, str) or not self._text_in:
            ids = "" if self._vocabulary is None else " or token ids"
            raise bad(param, "must be " + ("text" + ids if self._text_in else "token ids"))
        try:
            size = len(value.encode())
        except UnicodeEncodeError:
            raise bad(param, "contains a lone surrogate, which is not valid text") from None
        if not value.strip() or "\0" in value:
            raise bad(param, "must not be empty" if not value.strip() else "must not contain NUL")
        if size > self._bytes:
            raise bad(param, "%d bytes; at most %d" % (size, self._bytes), "prompt_too_long")
        return value

    def _prompt(self, messages: object, tools: "List[Any]", switches: "Dict[str, bool]") -> str:
        """Return the chat template's prompt; `switches` are its variables. Raises HttpError."""
        if self._template is None:
            raise HttpError(
                400,
                "no_template",
                "this service has no chat template; use /generate, or set serve: template:",
            )
        if not isinstance(messages, list) or not 1 <= len(messages) <= MESSAGES:
            raise bad("messages", "must be a list of 1 to %d messages" % MESSAGES)
        turns = [
            self._message("messages[%d]" % number, message, self._template)
            for number, message in enumerate(messages)
        ]
        if turns[-1]["role"] not in ("user", "tool"):
            raise bad("messages", "the last message must have the role user or tool")
        try:
            prompt = self._template.render(turns, tools, switches)
        except TemplateError as error:
            message = "the chat template does not accept them: %s" % error
            raise bad("messages", message) from error
        return self._text("messages", prompt)

    def _message(self, param: str, message: object, template: Template) -> "Dict[str, Any]":
        if not isinstance(message, dict):
            raise bad(param, "must be an object with role and content")
        role = message.get("role")
        role = _ROLES.get(role, role) if isinstance(role, str) else None
        known = ["system", "user", "assistant", *(["tool"] if template.can_call else [])]
        if role not in known:
            raise bad(param + ".role", "must be one of: %s" % ", ".join(known))
        for key in ("name", "tool_call_id"):
            if not isinstance(message.get(key) or "", str):
                raise bad("%s.%s" % (param, key), "must be text")
        calls = _calls(param, message.get("tool_calls")) if role == "assistant" else []
        content = _joined(message.get("content"))
        content = "" if content is None and calls else content
        if not isinstance(content, str):
            raise bad(param + ".content", "must be text")
        if role == "user" or content:
            self._text(param + ".content", content)
        for mark in template.marks:
            if mark in content:
                raise bad(param + ".content", "must not contain %s" % mark)
        turn = {"role": role, "content": content}  # type: Dict[str, Any]
        return {**turn, "tool_calls": calls} if calls else turn


_NEWER = "max_completion_tokens"


def _streaming(body: "Dict[str, Any]") -> "Tuple[bool, bool]":
    """Return `stream`, and whether a stream ends with token counts."""
    stream, options = body.get("stream"), body.get("stream_options")
    stream = False if stream is None else stream
    if not isinstance(stream, bool):
        raise bad("stream", "must be true or false")
    if options is not None and not isinstance(options, dict):
        raise bad("stream_options", "must be an object")
    usage = (options or {}).get("include_usage", False)
    obfuscated = (options or {}).get("include_obfuscation", False)
    if not isinstance(usage, bool) or obfuscated not in (True, False):
        raise bad("stream_options", "may only contain include_usage: true or false")
    if set(options or ()) - {"include_usage", "include_obfuscation"}:
        raise bad("stream_options", "may only contain include_usage: true or false")
    return stream, usage


def _stops(body: "Dict[str, Any]") -> "Tuple[str, ...]":
    stop = body.get("stop")
    stops = [stop] if isinstance(stop, str) else [] if stop is None else stop
    if not isinstance(stops, list) or len(stops) > STOPS:
        raise bad("stop", "must be text, or a list of at most %d texts" % STOPS)
    if not all(isinstance(text, str) and 0 < len(text) <= STOP_CHARS for text in stops):
        raise bad("stop", "each text must have from 1 to %d characters" % STOP_CHARS)
    return tuple(stops)


def _calls(param: str, calls: object) -> "List[Any]":
    """Return earlier tool calls as templates expect them, with the arguments as an object."""
    parsed: "List[Any]" = []
    if not isinstance(calls or [], list):
        raise bad(param + ".tool_calls", "must be a list")
    for call in calls if isinstance(calls, list) else ():
        function = call.get("function") if isinstance(call, dict) else None
        name = function.get("name") if isinstance(function, dict) else None
        try:
            arguments = json.loads(function["arguments"] or "{}")  # type: ignore[index]
        except (ValueError, TypeError, KeyError, RecursionError):
            arguments = None
        if not isinstance(name, str) or not isinstance(arguments, dict):
            raise bad(param + ".tool_calls", "must be functions with a name and JSON arguments")
        parsed.append({"type": "function", "function": {"name": name, "arguments": arguments}})
    return parsed


def _joined(content: object) -> object:
    """Return a list of text parts as one text, and any other value unchanged."""
    if isinstance(content, list) and all(
        isinstance(part, dict) and part.get("type") == "text" and isinstance(part.get("text"), str)
        for part in content
    ):
        return "".join(part["text"] for part in content)
    return content


def _only(body: "Dict[str, Any]", known: "Tuple[str, ...]") -> None:
    for key in body:
        if key not in known:
            raise HttpError(400, "unknown_field", "unknown field %s" % key[:80], param=key[:80])


def _is_shape(value: object) -> bool:
    if not isinstance(value, list) or len(value) > 8:
        return False
    sizes: "List[int]" = [size for size in value if type(size) is int and 0 <= size < 1 << 31]
    return len(sizes) == len(value) and math.prod(sizes) < 1 << 31
