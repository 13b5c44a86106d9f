"""The shape of `serve:` in a playbook."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field, PlainValidator, WithJsonSchema

from fleet.config.fields import Duration, Matches, Strict, wrong
from fleet.model.serve import TEMPLATES, ServeSpec

_PARTS = {
    "begin": "Text before all messages.",
    "system": "A message of the system; {content} stands for its text.",
    "user": "A message of the user.",
    "assistant": "An earlier answer.",
    "end": "Text after all messages, where the model continues.",
}
_TEMPLATE: dict[str, Any] = {
    "anyOf": [
        {"enum": list(TEMPLATES)},
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
    f"write one of {', '.join(TEMPLATES)}, or a mapping like "
    '{user: "<|user|>{content}", end: "<|assistant|>"}'
)


def _template(value: object) -> dict[str, str]:
    if isinstance(value, str) and value in TEMPLATES:
        return dict(TEMPLATES[value])
    if not isinstance(value, dict) or not all(isinstance(part, str) for part in value.values()):
        raise wrong("`template` is not a chat template that fleet knows", _HINT)
    if set(value) - set(_PARTS) or "user" not in value:
        raise wrong(
            f"a chat template must have the key `user`; its possible keys are {', '.join(_PARTS)}",
            _HINT,
        )
    for part in ("system", "user", "assistant"):
        if "{content}" not in value.get(part, "{content}"):
            raise wrong(f"`{part}` of the chat template lacks the placeholder {{content}}", _HINT)
    return {str(key): str(part) for key, part in value.items()}


class ServeBody(Strict):
    """The model as a service on the device: `fleet serve start`."""

    backend: Literal["genie", "genai", "ort"] | None = Field(
        default=None, description="Backend. Default: the one for the kind of the bundle."
    )
    port: Annotated[int, Field(ge=1, le=65535)] = Field(
        default=ServeSpec.port, description="Port on the device."
    )
    bind: Annotated[
        str,
        Matches(
            r"[0-9A-Za-z.:_-]{1,64}",
            "address",
            "write 127.0.0.1, or 0.0.0.0 for all network interfaces",
        ),
    ] = Field(
        default=ServeSpec.bind,
        description="Address on the device to listen at. Only a loopback address needs "
        "`fleet serve "
        "tunnel`.",
    )
    queue: Annotated[int, Field(ge=0, le=4096)] = Field(
        default=ServeSpec.queue, description="Requests that may wait; further ones get HTTP 429."
    )
    max_tokens: Annotated[int, Field(ge=1, le=1_000_000)] = Field(
        default=ServeSpec.max_tokens, description="Generate at most this many tokens per answer."
    )
    max_prompt_bytes: Annotated[int, Field(ge=1, le=16 << 20)] = Field(
        default=ServeSpec.max_prompt_bytes, description="Longest prompt, in bytes of UTF-8."
    )
    request_timeout: Duration = Field(
        default=ServeSpec.request_timeout,
        description="Longest time of a request, including its time in the queue.",
    )
    stop_timeout: Duration = Field(
        default=ServeSpec.stop_timeout, description="How long a stop waits for the running request."
    )
    template: Annotated[
        dict[str, str] | None, PlainValidator(_template), WithJsonSchema(_TEMPLATE)
    ] = Field(
        default=None,
        description="How messages become a prompt: plain, llama3, chatml, mistral, or parts with "
        "{content}. Without it there is no /v1/chat/completions.",
    )

    def spec(self) -> ServeSpec:
        """As the engine has it."""
        return ServeSpec(**self.model_dump())
