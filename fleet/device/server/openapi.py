"""The OpenAPI document of a service, with its own limits and only the paths of its backend."""

from __future__ import annotations

from typing import Any, Dict

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


def _object(properties: "Schema", *required: str, closed: bool = True) -> "Schema":
    schema: "Schema" = {"type": "object", "properties": properties, "required": list(required)}
    return {**schema, "additionalProperties": False} if closed else schema


def _json(schema: "Schema") -> "Schema":
    return {"content": {"application/json": {"schema": schema}}}


def _ref(name: str) -> "Schema":
    return {"$ref": "#/components/schemas/" + name}


def _answers(good: "Schema") -> "Schema":
    """Return the answers of a path; docs/serving.md lists the statuses of errors."""
    error = {"description": "An error; its code is stable.", **_json(_ref("Error"))}
    return {"200": {"description": "Done.", **good}, "default": error}


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


def _infer() -> "Schema":
    shape = {"type": "array", "maxItems": 8, "items": {"type": "integer", "minimum": 0}}
    data = _object({"data": {}, "shape": shape}, "data")
    npy = _object({"npy": {"type": "string", "contentEncoding": "base64"}}, "npy")
    tensors = {"type": "object", "additionalProperties": {"anyOf": [data, npy]}}
    return _object({"inputs": tensors, "output": {"enum": ["json", "npy"]}}, "inputs")


def _post(summary: str, body: "Schema", good: "Schema") -> "Schema":
    return {
        "post": {
            "summary": summary,
            "security": [{"token": []}],
            "requestBody": {"required": True, **_json(body)},
            "responses": _answers(good),
        }
    }


def _get(summary: str, schema: "Schema", **more: object) -> "Schema":
    return {"get": {"summary": summary, "responses": _answers(_json(schema)), **more}}


def _text_paths(config: "Dict[str, Any]") -> "Schema":
    events = {"content": {"text/event-stream": {"schema": _TEXT}}}
    both = {"content": {**_json({"type": "object"})["content"], **events["content"]}}
    paths = {
        "/generate": _post("Text for a prompt.", _ref("Ask"), _json(_ref("Generated"))),
        "/generate/stream": _post(
            "The same as a stream: token events, then done.", _ref("Ask"), events
        ),
        "/v1/completions": _post("Text, compatible with OpenAI.", _completion(config), both),
    }
    if config.get("template"):
        paths["/v1/chat/completions"] = _post("Chat, compatible with OpenAI.", _chat(config), both)
    return paths


def document(config: "Dict[str, Any]", kind: str) -> "Schema":
    """Return the document, for a backend that makes text (`generate`) or runs a graph (`infer`)."""
    ran = _object({"outputs": {}, "run_ms": {}}, "outputs", "run_ms", closed=False)
    more = {} if kind == "infer" else _text_paths(config)
    if kind != "generate":
        more["/infer"] = _post("One run of the model.", _infer(), _json(ran))
    return {
        "openapi": "3.1.0",
        "info": {"title": "%s by fleet" % config["name"], "version": config["release"]},
        "paths": {
            "/health": _get("The model, and whether it is ready (else 503).", _ref("Health")),
            "/openapi.json": _get("This document.", {"type": "object"}),
            "/v1/models": _get("The only model.", {"type": "object"}, security=[{"token": []}]),
            **more,
        },
        "components": {
            "schemas": _schemas(config),
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
        },
    }
