"""Conversations and answers as text: chat templates, stop sequences, tool calls.

Templates are Jinja, as in `tokenizer_config.json` of a model, and run in Jinja's immutable sandbox.
On a board, Jinja is next to this file in the release; Python 3.8 and newer.
"""

from __future__ import annotations

import json
import re
from typing import Any, Dict, List, NamedTuple, NoReturn, Optional, Sequence, Tuple

MAX_PROMPT_BYTES = 1 << 20  # a context of 128k tokens is about 0.5 MB of text
SWITCHES = ("enable_thinking", "thinking")  # names of the switch for thinking in templates
_MARK = re.compile(r"<\|[^<>|\s]{1,40}\|>|\[/?[A-Z_]{1,20}\]|</?s>")
# The start of an answer with a tool call: Qwen and Hermes, Nemotron, Llama 3.
_CALL_MARKS = ("<tool_call>", "<TOOLCALL>", "<|python_tag|>")
_CALL_ENDS = {"<tool_call>": "</tool_call>", "<TOOLCALL>": "</TOOLCALL>"}


class TemplateError(Exception):
    """The template is invalid (`line`), or it does not accept a conversation (`line` 0)."""

    def __init__(self, message: str, line: int = 0) -> None:
        super().__init__(message)
        self.line = line


class Template:
    """A compiled chat template with the special tokens that it inserts.

    `marks` are the words that separate turns in the template. Text of a user must not contain them.
    """

    def __init__(self, source: str, bos: str = "", eos: str = "") -> None:
        """Compile a template. Raises TemplateError for a syntax error."""
        import jinja2  # noqa: PLC0415 - 50 ms, only needed with a template
        from jinja2.sandbox import ImmutableSandboxedEnvironment  # noqa: PLC0415

        # The same as in transformers (utils/chat_template_utils.py) without its date function: a
        # date would change the prompt from day to day.
        environment = ImmutableSandboxedEnvironment(
            trim_blocks=True, lstrip_blocks=True, extensions=["jinja2.ext.loopcontrols"]
        )
        environment.filters["tojson"] = _tojson
        environment.globals["raise_exception"] = _refuse
        try:
            self._template = environment.from_string(source)
        except jinja2.TemplateSyntaxError as error:
            raise TemplateError(error.message or "syntax error", error.lineno) from error
        self._tokens = {"bos_token": bos, "eos_token": eos}
        self.can_think = any(word in source for word in SWITCHES)
        self.can_call = re.search(r"\btools\b", source) is not None
        self.marks = tuple(sorted({*_MARK.findall(source)} | {bos, eos} - {""}))

    def render(
        self,
        messages: "Sequence[Any]",
        tools: "Optional[List[Any]]" = None,
        switches: "Optional[Dict[str, bool]]" = None,
    ) -> str:
        """Return the prompt, ready for the model's answer.

        `tools` are JSON schemas of functions in OpenAI's format; `switches` are variables of the
        template. Raises TemplateError.
        """
        values = {**self._tokens, **(switches or {})}  # type: Dict[str, Any]
        if tools:
            values["tools"] = tools
        pieces, size = [], 0
        try:
            for piece in self._template.generate(
                messages=list(messages), add_generation_prompt=True, **values
            ):
                pieces.append(piece)
                size += len(piece)
                if size > MAX_PROMPT_BYTES:
                    break
        except Exception as error:  # the template is a program of its own
            raise TemplateError(str(error)[:300] or type(error).__name__) from error
        if size > MAX_PROMPT_BYTES:
            raise TemplateError("the prompt would be larger than 1 MB")
        return "".join(pieces)


def _refuse(message: str) -> NoReturn:
    raise ValueError(message)


def _tojson(value: object, indent: "Optional[int]" = None) -> str:
    return json.dumps(value, ensure_ascii=False, indent=indent)


class ParsedCall(NamedTuple):
    """A tool call. `arguments` is JSON text."""

    name: str
    arguments: str


class Cutter:
    """A filter for the text of an answer on its way to the client.

    The text ends before the first of `stops`. If `tools` has names, text that may be a tool call is
    held back until the end, and `calls` then contains the calls.
    """

    def __init__(self, stops: "Sequence[str]" = (), tools: "Sequence[str]" = ()) -> None:
        self._stops, self._tools = tuple(stops), tuple(tools)
        self._kept, self._sent, self._calling = "", False, False
        self.stopped = False
        self.calls: "List[ParsedCall]" = []

    def take(self, piece: str) -> str:
        """Return the text that may be sent now."""
        if self.stopped:
            return ""
        self._kept += piece
        places = [at for stop in self._stops for at in (self._kept.find(stop),) if at >= 0]
        if places:
            self.stopped = True
            self._kept = self._kept[: min(places)]
        if self._calling or (self._tools and self._begins_call()):
            return ""
        return self._sent_up_to(len(self._kept) if self.stopped else self._safe_length())

    def end(self) -> str:
        """Return the rest of the text, and fill in `calls`."""
        if self._calling:
            self._kept, self.calls = read_calls(self._kept, self._tools)
        return self._sent_up_to(len(self._kept))

    def _sent_up_to(self, length: int) -> str:
        text, self._kept = self._kept[:length], self._kept[length:]
        self._sent = self._sent or bool(text.strip())
        return text

    def _begins_call(self) -> bool:
        bare = self._kept.lstrip()
        self._calling = any(mark in bare for mark in _CALL_MARKS)
        self._calling = self._calling or (not self._sent and bare[:1] in ("{", "["))
        return self._calling

    def _safe_length(self) -> int:
        """Return the length of held text that cannot be the start of a stop sequence or a call."""
        ends = (*self._stops, *(_CALL_MARKS if self._tools else ()))
        longest = max((len(end) for end in ends), default=1) - 1
        for size in range(min(longest, len(self._kept)), 0, -1):
            if any(end.startswith(self._kept[-size:]) for end in ends):
                return len(self._kept) - size
        return len(self._kept)


def read_calls(text: str, tools: "Sequence[str]") -> "Tuple[str, List[ParsedCall]]":
    """Return the text before the calls, and the calls of `tools` in an answer.

    Formats: `<tool_call>{...}</tool_call>` (Qwen, Hermes), `<TOOLCALL>[{...}]</TOOLCALL>`
    (Nemotron), `<|python_tag|>{...}` or the JSON alone, several with `;` between them (Llama 3). An
    answer with anything else in such a place has no calls and stays unchanged.
    """
    places = [(text.find(mark), mark) for mark in _CALL_MARKS if mark in text]
    at, mark = min(places) if places else (len(text) - len(text.lstrip()), "")
    rest, calls = text[at:], []  # type: Tuple[str, List[ParsedCall]]
    while rest.strip():
        rest = rest.strip().lstrip(";").strip()
        rest = rest[len(mark) :] if mark and rest.startswith(mark) else rest
        try:
            value, length = json.JSONDecoder().raw_decode(rest.lstrip())
        except (ValueError, RecursionError):
            return text, []
        rest = rest.lstrip()[length:].lstrip()
        end = _CALL_ENDS.get(mark, "")
        rest = rest[len(end) :] if end and rest.startswith(end) else rest
        for item in value if isinstance(value, list) else [value]:
            call = _call(item, tools)
            if call is None:
                return text, []
            calls.append(call)
    return (text[:at].rstrip(), calls) if calls else (text, [])


def _call(item: object, tools: "Sequence[str]") -> "Optional[ParsedCall]":
    if not isinstance(item, dict):
        return None
    name, arguments = item.get("name"), item.get("arguments", item.get("parameters", {}))
    if isinstance(arguments, str):
        try:
            arguments = json.loads(arguments)
        except (ValueError, RecursionError):
            return None
    if name not in tools or not isinstance(arguments, dict):
        return None
    return ParsedCall(str(name), json.dumps(arguments, ensure_ascii=False))
