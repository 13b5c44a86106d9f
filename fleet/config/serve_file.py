"""The shape of `serve:` in a playbook."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from fleet.config.chat import shipped_names
from fleet.config.fields import Duration
from fleet.config.shape import Before, Body, Doc, Schema
from fleet.config.values import Pattern
from fleet.model.errors import InputError
from fleet.model.serve import ServeSpec

_PARTS = {
    "begin": "Text before all messages.",
    "system": "A message of the system; {content} stands for its text.",
    "user": "A message of the user.",
    "assistant": "An earlier answer.",
    "end": "Text after all messages, where the model continues.",
}
_TEMPLATE: dict[str, Any] = {
    "anyOf": [
        {"type": "string", "description": "A template of fleet, or the path of a .jinja file."},
        {
            "type": "object",
            "properties": {
                part: {"type": "string", "description": words} for part, words in _PARTS.items()
            },
            "required": ["user"],
            "additionalProperties": False,
        },
    ]
}
_HINT = (
    f"write one of {', '.join(shipped_names())}, the path of a .jinja file, or a mapping like "
    '{user: "<|user|>{content}", end: "<|assistant|>"}'
)


def _template(value: object) -> dict[str, str] | str:
    if isinstance(value, str) and (value in shipped_names() or value.endswith(".jinja")):
        return value
    if not isinstance(value, dict) or not all(isinstance(part, str) for part in value.values()):
        raise InputError("`template` is not a chat template that fleet knows", hint=_HINT)
    if set(value) - set(_PARTS) or "user" not in value:
        raise InputError(
            f"a chat template must have the key `user`; its possible keys are {', '.join(_PARTS)}",
            hint=_HINT,
        )
    for part in ("system", "user", "assistant"):
        if "{content}" not in value.get(part, "{content}"):
            raise InputError(
                f"`{part}` of the chat template lacks the placeholder {{content}}", hint=_HINT
            )
    return {str(key): str(part) for key, part in value.items()}


class ServeBody(Body, frozen=True, kw_only=True):
    """The model as a service on the device: `fleet serve start`."""

    backend: Annotated[
        Literal["genie", "genai", "ort"] | None,
        Doc("Backend. Default: the one for the kind of the bundle."),
    ] = None
    port: Annotated[Annotated[int, Meta(ge=1, le=65535)], Doc("Port on the device.")] = (
        ServeSpec.port
    )
    bind: Annotated[
        Annotated[
            str,
            Pattern(
                r"[0-9A-Za-z.:_-]{1,64}",
                "address",
                "write 127.0.0.1, or 0.0.0.0 for all network interfaces",
            ),
        ],
        Doc(
            "Address on the device to listen at. Only a loopback address needs "
            "`fleet serve "
            "tunnel`."
        ),
    ] = ServeSpec.bind
    queue: Annotated[
        Annotated[int, Meta(ge=0, le=4096)],
        Doc("Requests that may wait; further ones get HTTP 429."),
    ] = ServeSpec.queue
    max_tokens: Annotated[
        Annotated[int, Meta(ge=1, le=1_000_000)],
        Doc("Generate at most this many tokens per answer."),
    ] = ServeSpec.max_tokens
    max_prompt_bytes: Annotated[
        Annotated[int, Meta(ge=1, le=16 << 20)], Doc("Longest prompt, in bytes of UTF-8.")
    ] = ServeSpec.max_prompt_bytes
    request_timeout: Annotated[
        Duration, Doc("Longest time of a request, including its time in the queue.")
    ] = ServeSpec.request_timeout
    stop_timeout: Annotated[Duration, Doc("How long a stop waits for the running request.")] = (
        ServeSpec.stop_timeout
    )
    template: Annotated[
        Annotated[dict[str, str] | str | None, Before(_template, final=True), Schema(_TEMPLATE)],
        Doc(
            "Chat template: a name (plain, llama3, ...), a .jinja file, or parts with {content}. "
            "Default: the one of the model in the bundle; without any there is no "
            "/v1/chat/completions."
        ),
    ] = None

    def spec(self, template: Mapping[str, str] | None) -> ServeSpec:
        """As the engine has it, with the text of the chat template."""
        return ServeSpec(**{**msgspec.structs.asdict(self), "template": template})
