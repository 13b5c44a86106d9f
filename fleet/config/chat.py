"""Prompts by chat template: a chat template adds the text that a model expects around a question.

A hand-written prompt easily misses a header or an empty line, and the model then answers badly at
full speed. Templates are Jinja, as in `tokenizer_config.json` of a model. They come from the
bundle, from a file, or from `fleet/data/chat/`, and run in Jinja's immutable sandbox.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any

from fleet.config.problems import suggest_or_list
from fleet.device.server.chat import SWITCHES, Template, TemplateError
from fleet.model.errors import InputError, reason

_MAX_TOKENIZER_BYTES = 32 << 20  # tokenizer_config.json: 50 kB for Llama 3, some MB for others
_MAX_TEMPLATE_BYTES = 1 << 20
# (bos_token, eos_token) of the models of the shipped templates.
_TOKENS = {
    "chatml": ("", ""),
    "llama3": ("<|begin_of_text|>", "<|eot_id|>"),
    "nemotron": ("<|begin_of_text|>", "<|eot_id|>"),
    "mistral": ("<s>", "</s>"),
    "phi": ("", ""),
    "plain": ("", ""),
    "qwen": ("", ""),
}
Message = Mapping[str, Any]  # role (system, user, assistant, tool), content, tool_calls


@dataclass(frozen=True)
class ChatTemplate:
    """A chat template with the special tokens that it inserts. `origin` is its name in messages."""

    source: str
    origin: str
    bos_token: str = ""
    eos_token: str = ""

    def for_service(self) -> dict[str, str]:
        """Return the template in the form that the server on a device reads. Raises InputError if
        it is not valid.
        """
        self._compiled()
        return {"source": self.source, "bos": self.bos_token, "eos": self.eos_token}

    @property
    def can_think(self) -> bool:
        """True if the template has a switch for thinking."""
        return any(word in self.source for word in SWITCHES)

    def render(self, messages: Sequence[Message], *, think: bool | None = None) -> str:
        """Return the prompt for `messages`, ready for the model's answer.

        `think` switches the thinking of a model that has both modes; None leaves the model's
        default. Raises InputError if the template is not valid or refuses these messages, and for
        `think` if the template has no such switch.
        """
        if think is not None and not self.can_think:
            raise InputError(
                f"the chat template {self.origin} has no switch for thinking",
                hint="remove `think:`, or use a template of a model that can think: qwen, nemotron",
            )
        switches = {} if think is None else dict.fromkeys(SWITCHES, think)
        template = self._compiled()
        try:
            return template.render(messages, switches=switches)
        except TemplateError as error:
            raise InputError(
                f"the chat template {self.origin} does not accept this conversation: {error}",
                hint="change `chat:`, or name another template with `template:`",
            ) from error

    def _compiled(self) -> Template:
        try:
            return Template(self.source, self.bos_token, self.eos_token)
        except TemplateError as error:
            raise InputError(
                f"the chat template {self.origin} is wrong in line {error.line}: {error}",
                hint="correct the template, or name another one with `template:`",
            ) from error


def shipped_names() -> list[str]:
    """Return the names of the templates that are part of fleet."""
    return sorted(_TOKENS)


@cache
def shipped(name: str) -> ChatTemplate:
    """Return a template that is part of fleet. Raises InputError for another name."""
    if name not in _TOKENS:
        raise InputError(
            f"fleet has no chat template '{name}'",
            hint=suggest_or_list(name, shipped_names()) + "; or the path of a .jinja file",
        )
    source = (files("fleet.data") / "chat" / f"{name}.jinja").read_text("utf-8")
    return ChatTemplate(source, name, *_TOKENS[name])


def template_for(name: str | None, folder: Path, bundle: Path) -> ChatTemplate:
    """Return the template with this name or .jinja path, relative to `folder`; for None, the
    bundle's.

    Raises InputError if there is no such template, or if the bundle has none.
    """
    if name is None:
        template = template_of_bundle(bundle)
        if template is None:
            raise InputError(
                f"the bundle {bundle} has no chat template",
                hint=f"name one: template: {', '.join(shipped_names())}, or a .jinja file",
            )
        return template
    path = folder / Path(name).expanduser()
    return template_of_file(path) if path.suffix == ".jinja" else shipped(name)


def template_of_file(path: Path) -> ChatTemplate:
    """Return the template in a .jinja file. Raises InputError if it cannot be read as text."""
    return ChatTemplate(_text(path, _MAX_TEMPLATE_BYTES), str(path))


def template_of_bundle(bundle: Path) -> ChatTemplate | None:
    """Return the chat template of the model in a bundle folder, or None if there is none.

    The template is in `chat_template.jinja`, else in `chat_template` of `tokenizer_config.json`.
    The special tokens are always in `tokenizer_config.json`. Raises InputError for files that
    cannot be read.
    """
    own, config = bundle / "chat_template.jinja", bundle / "tokenizer_config.json"
    body: dict[str, Any] = {}
    if config.is_file():
        try:
            read = json.loads(_text(config, _MAX_TOKENIZER_BYTES))
        except ValueError as error:
            raise InputError(
                f"{config} is not valid JSON: {reason(error)}",
                hint="copy the file from the model again",
            ) from error
        body = read if isinstance(read, dict) else {}
    source = _text(own, _MAX_TEMPLATE_BYTES) if own.is_file() else _source_in(body)
    if not source:
        return None
    tokens = (_token(body.get("bos_token")), _token(body.get("eos_token")))
    return ChatTemplate(source, str(own if own.is_file() else config), *tokens)


def _source_in(body: Mapping[str, Any]) -> str:
    """Return `chat_template` of a tokenizer configuration, or the default one if it is a list."""
    value = body.get("chat_template")
    if isinstance(value, list):
        named = {row.get("name"): row.get("template") for row in value if isinstance(row, dict)}
        value = named.get("default")
    return value if isinstance(value, str) else ""


def _token(value: object) -> str:
    text = value.get("content") if isinstance(value, dict) else value
    return text if isinstance(text, str) else ""


def _text(path: Path, most: int) -> str:
    try:
        with path.open("rb") as stream:
            data = stream.read(most + 1)
        text = data.decode("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(
            f"cannot read {path}: {reason(error)}", hint="give a text file in UTF-8"
        ) from error
    if len(data) > most:
        raise InputError(f"{path} is larger than {most >> 20} MB", hint="give another file")
    return text
