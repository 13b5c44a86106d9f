"""The OpenAPI document of a service, with its own limits and only the paths of its backend."""

from __future__ import annotations

from typing import Any, Dict, List

from fleet.device.server.api import MESSAGES, SAMPLING, STOPS

Schema = Dict[str, Any]
_COUNT: "Schema" = {"type": ["integer", "null"], "minimum": 0}
_TEXT: "Schema" = {"type": "string"}
_NUMBER: "Schema" = {"type": "number"}
_FLAG: "Schema" = {"type": "boolean"}
_STOP: "Schema" = {
    "anyOf": [_TEXT, {"type": "array", "items": _TEXT, "maxItems": STOPS}, {"type": "null"}],
    "description": "The answer ends before the first of these texts.",
}
_ERRORS = {
    "400": "The request is not valid or not supported; `param` names the field.",
    "401": "The token is missing or wrong.",
    "408": "The request did not come in time.",
    "411": "A body without Content-Length.",
    "413": "The body is too large.",
    "415": "The body is not application/json.",
    "429": "The queue is full; Retry-After says when to try again.",
    "431": "Too many or too large headers.",
    "500": "The request failed in the backend.",
    "503": "The service loads its model, or stops.",
    "504": "The request did not end within the time limit.",
}
_NO_TOKEN = ("400", "431", "408")


def _object(properties: "Schema", *required: str, closed: bool = True) -> "Schema":
    schema: "Schema" = {"type": "object", "properties": properties, "required": list(required)}
    return {**schema, "additionalProperties": False} if closed else schema


def _json(schema: "Schema") -> "Schema":
    return {"content": {"application/json": {"schema": schema}}}


def _ref(name: str) -> "Schema":
    return {"$ref": "#/components/schemas/" + name}


def _answers(good: "Schema", *codes: str) -> "Schema":
    answers = {"200": {"description": "Done.", **good}}
    for code in codes:
        answers[code] = {"description": _ERRORS[code], **_json(_ref("Error"))}
    return answers


def _schemas(config: "Dict[str, Any]") -> "Schema":
    usage = {"prompt_tokens": _COUNT, "completion_tokens": _COUNT, "total_tokens": _COUNT}
    finish = {"enum": ["stop", "length", "cancelled"]}
    times = {"queue_ms": _NUMBER, "total_ms": _NUMBER, "release": _TEXT, "emulated": _FLAG}
    error = {
        "code": _TEXT,
        "message": _TEXT,
        "param": {"type": ["string", "null"]},
        "type": {"enum": ["invalid_request_error", "service_error"]},
    }
    health = {
        "status": {"enum": ["loading", "ready", "stopping"]},
        "ready": _FLAG,
        **dict.fromkeys(("name", "release", "build", "backend"), _TEXT),
        **{key: {"type": "integer"} for key in ("queue", "pid")},
        "emulated": _FLAG,
        "running": _FLAG,
        "paths": {"type": "array", "items": _TEXT},
        "served": {"type": "object", "additionalProperties": {"type": "integer"}},
        "uptime_s": _NUMBER,
        "rss_bytes": {"type": ["integer", "null"]},
    }
    generated = {"text": _TEXT, "finish_reason": finish, "usage": _ref("Usage"), **times}
    ids: "Schema" = {"type": "array", "items": _COUNT}
    logits: "Schema" = {"type": "array", "items": _NUMBER}
    ask = {
        "prompt": _asked(config),
        "max_tokens": _limit(config),
        "stop": _STOP,
        "logits": {**_FLAG, "description": "One pass: the logits behind the last token, no text."},
    }
    return {
        "Error": _object({"error": _object(error, *error)}, "error"),
        "Usage": _object(usage, *usage),
        "Health": _object({**health, "inputs": {"type": "object"}, "text": _FLAG}, *health),
        "Ask": _object(ask, "prompt"),
        "Generated": {
            "anyOf": [
                _object({**generated, "tokens": ids}, *generated),
                _object({"logits": logits, "usage": _ref("Usage"), **times}, "logits"),
            ]
        },
    }


def _prompt(config: "Dict[str, Any]") -> "Schema":
    most = config["max_prompt_bytes"]
    return {
        "type": "string",
        "minLength": 1,
        "maxLength": most,
        "description": "Goes to the model as it is; at most %d bytes of UTF-8." % most,
    }


def _asked(config: "Dict[str, Any]") -> "Schema":
    if config.get("vocabulary") is None:
        return _prompt(config)
    token = {"type": "integer", "minimum": 0, "maximum": config["vocabulary"] - 1}
    return {"anyOf": [_prompt(config), {"type": "array", "items": token, "minItems": 1}]}


def _limit(config: "Dict[str, Any]") -> "Schema":
    most = config["max_tokens"]
    return {"type": ["integer", "null"], "minimum": 1, "maximum": most, "default": most}


def _common(config: "Dict[str, Any]") -> "Schema":
    """Return the fields that chat and completions share."""
    ignored = "Obeyed if the backend can; the answer names it under `ignored` else."
    return {
        "model": {"const": config["name"]},
        "max_tokens": {**_COUNT, "description": "A larger number than the limit is the limit."},
        "stream": {"type": ["boolean", "null"]},
        "stream_options": {"type": "object"},
        "stop": _STOP,
        **{key: {"type": ["number", "null"], "description": ignored} for key in SAMPLING},
    }


def _chat(config: "Dict[str, Any]") -> "Schema":
    part = _object({"type": {"const": "text"}, "text": _TEXT}, "type", "text", closed=False)
    content = {"anyOf": [_TEXT, {"type": "array", "items": part}, {"type": "null"}]}
    roles = ["system", "developer", "user", "assistant", "tool"]
    message = _object({"role": {"enum": roles}, "content": content}, "role", closed=False)
    properties = {
        **_common(config),
        "messages": {"type": "array", "minItems": 1, "maxItems": MESSAGES, "items": message},
        "max_completion_tokens": _COUNT,
        "tools": {"type": "array", "items": {"type": "object"}},
    }
    return _object(properties, "messages", closed=False)


def _completion(config: "Dict[str, Any]") -> "Schema":
    prompt: "Schema" = {"prompt": {**_asked(config), "description": "Also a list of one."}}
    return _object({**_common(config), **prompt}, "prompt", closed=False)


def _answered(kind: str, choice: "Schema") -> "Schema":
    properties = {
        "id": _TEXT,
        "object": {"const": kind},
        "created": {"type": "integer"},
        "model": _TEXT,
        "choices": {"type": "array", "items": _object(choice, *choice)},
        "usage": _ref("Usage"),
    }
    return _object(properties, *properties, closed=False)


def _chatted() -> "Schema":
    content: "Schema" = {"type": ["string", "null"]}
    calls: "Schema" = {"type": "array", "items": {"type": "object"}}
    fields = {"role": {"const": "assistant"}, "content": content, "tool_calls": calls}
    message = _object(fields, "role", "content")
    choice = {"index": {"const": 0}, "message": message, "finish_reason": _TEXT}
    return _answered("chat.completion", choice)


def _completed() -> "Schema":
    index: "Schema" = {"const": 0}
    choice = {"index": index, "text": _TEXT, "logprobs": {"type": "null"}, "finish_reason": _TEXT}
    return _answered("text_completion", choice)


def _infer() -> "Schema":
    shape = {"type": "array", "maxItems": 8, "items": {"type": "integer", "minimum": 0}}
    data = _object({"data": {}, "shape": shape}, "data")
    npy = _object({"npy": {"type": "string", "contentEncoding": "base64"}}, "npy")
    tensors = {"type": "object", "additionalProperties": {"anyOf": [data, npy]}}
    return _object({"inputs": tensors, "output": {"enum": ["json", "npy"]}}, "inputs")


def _post(summary: str, body: "Schema", good: "Schema") -> "Schema":
    codes = [code for code in _ERRORS if code != "408"]
    return {
        "post": {
            "summary": summary,
            "security": [{"token": []}],
            "requestBody": {"required": True, **_json(body)},
            "responses": _answers(good, *codes),
        }
    }


def _get(summary: str, schema: "Schema", *codes: str) -> "Schema":
    operation: "Schema" = {"summary": summary, "responses": _answers(_json(schema), *codes)}
    return {"get": operation}


def _text_paths(config: "Dict[str, Any]") -> "Schema":
    events = {"content": {"text/event-stream": {"schema": _TEXT}}}
    paths = {
        "/generate": _post("Text for a prompt.", _ref("Ask"), _json(_ref("Generated"))),
        "/generate/stream": _post(
            "The same as a stream: token events, then done.", _ref("Ask"), events
        ),
    }
    both = {"content": {**_json(_completed())["content"], **events["content"]}}
    paths["/v1/completions"] = _post("Text, compatible with OpenAI.", _completion(config), both)
    if config.get("template"):
        both = {"content": {**_json(_chatted())["content"], **events["content"]}}
        paths["/v1/chat/completions"] = _post("Chat, compatible with OpenAI.", _chat(config), both)
    return paths


def document(config: "Dict[str, Any]", kind: str) -> "Schema":
    """Return the document, for a backend that makes text (`generate`) or runs a graph (`infer`)."""
    health = _get("Which model runs, and whether it is ready.", _ref("Health"), *_NO_TOKEN)
    not_yet = {"description": "Not ready yet, or stopping.", **_json(_ref("Health"))}
    health["get"]["responses"]["503"] = not_yet
    models = _get("The only model.", {"type": "object"}, *_NO_TOKEN, "401")
    models["get"]["security"] = [{"token": []}]
    tensors: "List[str]" = ["outputs", "run_ms"]
    ran = _object({name: {} for name in tensors}, *tensors, closed=False)
    more = {} if kind == "infer" else _text_paths(config)
    if kind != "generate":
        more["/infer"] = _post("One run of the model.", _infer(), _json(ran))
    return {
        "openapi": "3.1.0",
        "info": {"title": "%s by fleet" % config["name"], "version": config["release"]},
        "paths": {
            "/health": health,
            "/openapi.json": _get("This document.", {"type": "object"}, *_NO_TOKEN),
            "/v1/models": models,
            **more,
        },
        "components": {
            "schemas": _schemas(config),
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
        },
    }
