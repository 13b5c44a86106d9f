"""Suites of prompts: YAML, JSON lines or `suite:` of a playbook → `Suite`, with positions.

docs/verify.md describes the format. Prompts are rendered here, before fleet sends anything. A
template that refuses a conversation and a check that can never pass are therefore errors of the
file.
"""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from importlib.resources import files
from pathlib import Path
from typing import Annotated, Any, Literal

from msgspec import Meta, Struct, ValidationError, convert

from fleet.config.chat import Message, template_for
from fleet.config.problems import Problems, missing_file, near_hint, suggest_or_list
from fleet.config.shape import Body, read_body
from fleet.config.values import Before, Doc, FilePath, Schema
from fleet.config.yamlpos import MAX_BYTES, Document, Keys, describe, parse, read
from fleet.device.server.chat import MAX_PROMPT_BYTES
from fleet.model.errors import InputError, PlaybookError, Position, SuiteError
from fleet.model.rollout import Amount
from fleet.model.suite import (
    DEFAULT_ANSWER_TOKENS,
    DETECTORS,
    AnswerCheck,
    Suite,
    SuiteQuestion,
    SuiteUse,
)

MAX_QUESTIONS = 10_000
SHIPPED = ("instruct", "tiny", "tiny-chat")
_LINES = (".jsonl", ".ndjson")


def _at_least(value: object) -> Amount:
    if isinstance(value, bool) or not isinstance(value, str | int):
        raise InputError(
            "'at_least' must be a number of prompts or a percentage", hint='write 18, or "90%"'
        )
    return Amount.parse(value)


def _on_off(value: object) -> object:
    """Return the truth value of the words `on` and `off`. YAML 1.1 reads them as true and false,
    and other readers as text.
    """
    return {"on": True, "off": False}.get(value, value) if isinstance(value, str) else value


def _gate(value: object) -> object:
    """Return `off` for false, because YAML 1.1 reads a bare `off` as false."""
    return "off" if value is False else value


Gate = Annotated[Literal["health", "run", "off"], Before(_gate)]
OnOff = Annotated[
    bool,
    Before(_on_off),
    Schema({"anyOf": [{"type": "boolean"}, {"enum": ["on", "off"]}]}),
]


def _quoted(value: object) -> object:
    if isinstance(value, bool | int | float):
        raise InputError(
            f"the expected text is not quoted, so YAML reads it as {describe(value)}",
            hint=f'quote it: "{value}"',
        )
    return value


Texts = Annotated[str | list[str], Before(_quoted)]
AtLeast = Annotated[
    Amount,
    Before(_at_least, final=True),
    Schema({"anyOf": [{"type": "integer", "minimum": 0}, {"type": "string"}]}),
]
Count = Annotated[int, Meta(ge=0)]
Detector = Literal["empty", "not-utf8", "repetition", "no-stop"]


def _tolerance(value: object) -> object:
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        raise InputError("'tolerance' must be a number or a percentage", hint='write 0.5, or "1%"')
    return Amount.parse(value) if isinstance(value, str) else float(value)


Tolerance = Annotated[
    float | Amount,
    Before(_tolerance, final=True),
    Schema({"anyOf": [{"type": "number", "minimum": 0}, {"type": "string"}]}),
]


class NumberBody(Body, frozen=True, kw_only=True):
    """A number with a tolerance."""

    value: Annotated[float, Doc("The expected number; the last number of the answer counts.")]
    tolerance: Annotated[
        Tolerance, Doc("Largest difference that passes: 0.5, or a share like 1%.")
    ] = 0.0


class ChoiceBody(Body, frozen=True, kw_only=True):
    """An answer that is one of several options."""

    right: Annotated[str, Doc("The option that is right.")]
    of: Annotated[list[str], Doc("All options, such as [A, B, C, D].")]


class JsonBody(Body, frozen=True, kw_only=True):
    """The content of a JSON answer."""

    fields: Annotated[
        dict[str, Any] | None, Doc("Fields with their values; a path like `user.name` is allowed.")
    ] = None
    schema: Annotated[dict[str, Any] | None, Doc("JSON Schema of the answer.")] = None


class ToolCallBody(Body, frozen=True, kw_only=True):
    """The only tool call of an answer."""

    name: Annotated[str, Doc("Name of the tool.")]
    arguments: Annotated[
        dict[str, Any] | None, Doc("All arguments with their values. Default: any arguments.")
    ] = None


class LengthBody(Body, frozen=True, kw_only=True):
    """Bounds for the length of an answer."""

    min_words: Annotated[Count | None, Doc("Fewest words.")] = None
    max_words: Annotated[Count | None, Doc("Most words.")] = None
    min_chars: Annotated[Count | None, Doc("Fewest characters.")] = None
    max_chars: Annotated[Count | None, Doc("Most characters.")] = None
    min_lines: Annotated[Count | None, Doc("Fewest lines.")] = None
    max_lines: Annotated[Count | None, Doc("Most lines.")] = None


class ExpectBody(Body, frozen=True, kw_only=True):
    """Checks of one answer, which all have to pass."""

    exact: Annotated[Texts | None, Doc("The whole answer, or a list of allowed answers.")] = None
    contains: Annotated[Texts | None, Doc("Text that the answer contains; of a list all.")] = None
    lacks: Annotated[Texts | None, Doc("Text that the answer does not contain.")] = None
    regex: Annotated[str | None, Doc("Regular expression (Python) found in the answer.")] = None
    ignore_case: Annotated[bool, Doc("Ignore upper and lower case in the checks above.")] = False
    number: Annotated[float | NumberBody | None, Doc("The last number of the answer.")] = None
    choice: Annotated[str | ChoiceBody | None, Doc("The chosen option; short form: of A to D.")] = (
        None
    )
    json: Annotated[bool | JsonBody | None, Doc("The answer is JSON: true, or a mapping.")] = None
    tool_call: Annotated[str | ToolCallBody | None, Doc("The tool that the answer calls.")] = None
    length: Annotated[LengthBody | None, Doc("Bounds for the length of the answer.")] = None
    thinks: Annotated[
        OnOff | None, Doc("`on`: there is text between <think> and </think>; `off`: there is none.")
    ] = None


class MessageBody(Body, frozen=True, kw_only=True):
    """A message of a conversation."""

    role: Annotated[Literal["system", "user", "assistant", "tool"], Doc("Who speaks.")]
    content: Annotated[str, Doc("Text of the message.")]


class QuestionBody(Body, frozen=True, kw_only=True):
    """A prompt: `user` or `messages` for the chat template, a verbatim `prompt`, or `tokens`."""

    name: Annotated[str | None, Doc("Name in results. Default: the number of the prompt.")] = None
    prompt: Annotated[str | None, Doc("The whole prompt, with the words of the template.")] = None
    user: Annotated[str | None, Doc("SuiteQuestion for the chat template.")] = None
    system: Annotated[str | None, Doc("System message to `user`.")] = None
    messages: Annotated[list[MessageBody] | None, Doc("Conversation for the chat template.")] = None
    tokens: Annotated[list[Count] | None, Doc("Token ids instead of text.")] = None
    think: Annotated[OnOff | None, Doc("Thinking of a model that has both modes.")] = None
    max_tokens: Annotated[Annotated[int, Meta(ge=1)] | None, Doc("Most tokens to generate.")] = None
    expect: Annotated[ExpectBody | None, Doc("Checks of the answer. Default: detectors only.")] = (
        None
    )
    detect: Annotated[list[Detector] | None, Doc("Detectors for this answer. Default: all.")] = None


class SuiteBody(Body, frozen=True, kw_only=True):
    """A suite of prompts."""

    prompts: Annotated[list[QuestionBody] | None, Doc("The prompts with their checks.")] = None
    name: Annotated[str | None, Doc("Name in results. Default: that of the file.")] = None
    template: Annotated[
        FilePath | None,
        Doc(
            "Chat template for `user` and `messages`: a name like llama3, or a .jinja file. "
            "Default: that of the model in the bundle."
        ),
    ] = None
    system: Annotated[str | None, Doc("System message to each `user`.")] = None
    think: Annotated[OnOff | None, Doc("Thinking, for all prompts.")] = None
    max_tokens: Annotated[Annotated[int, Meta(ge=1)], Doc("Most tokens of an answer.")] = (
        DEFAULT_ANSWER_TOKENS
    )
    at_least: Annotated[
        AtLeast | None, Doc("Prompts that have to pass: 18, or 90%. Default: all.")
    ] = None
    differ: Annotated[bool, Doc("The answers should differ; one answer to all is a fault.")] = False
    sampling: Annotated[
        Literal["greedy", "bundle"],
        Doc("`greedy`: the most likely token always; `bundle`: as the bundle says."),
    ] = "greedy"
    detect: Annotated[list[Detector] | None, Doc("Detectors for all answers. Default: all.")] = None


class SuiteUseBody(SuiteBody, frozen=True, kw_only=True):
    """`suite:` of a playbook: a file with some keys changed, or the prompts themselves."""

    file: Annotated[
        FilePath | None, Doc("instruct, tiny, or a .yaml or .jsonl file of the playbook's folder.")
    ] = None
    gate: Annotated[
        Gate,
        Doc(
            "`health`: ask the suite before a new release is switched on; `run`: after the first "
            "run; `off`: only in `fleet verify`."
        ),
    ] = "health"


def load_suite(name: str, folder: Path, bundle: Path, template: str | None = None) -> Suite:
    """Return a shipped suite by its name, or the suite in a file.

    `template` is used if the suite names none. Raises SuiteError with position and cure.
    """
    document, body = _file(name, folder)
    return _made(body, _Origin(document, (), bundle, template), Path(name).stem)


def suite_use(
    body: str | SuiteUseBody, document: Document, bundle: Path, template: str | None = None
) -> SuiteUse:
    """Return `suite:` of a playbook. Raises PlaybookError or SuiteError with its position."""
    folder, at = document.file.absolute().parent, document.value(("suite",))
    if isinstance(body, str):
        body = SuiteUseBody(file=body)
    if (body.file is None) == (body.prompts is None):
        raise PlaybookError(
            "`suite` needs either file or prompts",
            position=at,
            hint="write `suite: tiny`, `suite: answers.yaml`, or `suite:` with `prompts:`",
        )
    if body.file is None:
        suite = _made(body, _Origin(document, ("suite",), bundle, template), "playbook")
        return SuiteUse(suite, body.gate)
    try:
        inner, own = _file(body.file, folder)
    except SuiteError as error:
        error.position = error.position or at
        raise
    given = {
        key: value
        for key in own.__struct_fields__
        if (value := getattr(body, key)) != getattr(SuiteBody(), key)
    }
    own = SuiteBody(**{key: getattr(own, key) for key in own.__struct_fields__} | given)
    return SuiteUse(
        _made(own, _Origin(inner, (), bundle, template), Path(body.file).stem), body.gate
    )


def _file(name: str, folder: Path) -> tuple[Document, SuiteBody]:
    if name in SHIPPED:
        shipped = files("fleet.data") / "suites" / f"{name}.yaml"
        document = parse(shipped.read_text("utf-8"), Path(f"{name}.yaml"), SuiteError)
        return document, _read(document, Problems(SuiteError))
    path = folder / Path(name).expanduser()
    if not path.suffix and not path.exists():
        raise SuiteError(
            f"no suite is called '{name}'",
            hint=suggest_or_list(name, SHIPPED) + "; or name a .yaml or .jsonl file",
        )
    if not path.is_file():
        raise SuiteError(f"the suite {path} does not exist", hint=near_hint(path))
    if path.suffix in _LINES:
        return _lines(path)
    problems = Problems(SuiteError)
    document = read(path, SuiteError, problems)
    return document, _read(document, problems)


def _read(document: Document, problems: Problems) -> SuiteBody:
    body = read_body(SuiteBody, document, problems)
    problems.raise_first()
    return body


def _lines(path: Path) -> tuple[Document, SuiteBody]:
    """Read JSON lines with one prompt each. Raises SuiteError with the position of the line."""
    try:
        data = path.read_bytes()
    except OSError as error:
        raise missing_file(path, error, SuiteError) from error
    if len(data) > MAX_BYTES:
        raise SuiteError(f"the suite {path} is larger than 4 MB", hint="split it into two suites")
    rows: list[Any] = []
    values: dict[Keys, tuple[int, int]] = {(): (1, 1), ("prompts",): (1, 1)}
    for number, line in enumerate(data.decode("utf-8", "replace").splitlines(), 1):
        if not line.strip():
            continue
        values["prompts", len(rows)] = (number, 1)
        try:
            rows.append(json.loads(line, object_pairs_hook=_once))
        except (ValueError, RecursionError) as error:
            raise SuiteError(
                f"the line is not valid JSON: {error}",
                position=Position(path, number, 1),
                hint='write one object a line: {"prompt": "...", "expect": {"exact": "..."}}',
            ) from error
    document = Document(path, {"prompts": rows}, {}, values, {})
    return document, _read(document, Problems(SuiteError))


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    made = dict(pairs)
    if len(made) != len(pairs):
        raise ValueError("a key occurs twice")
    return made


@dataclass(frozen=True)
class _Origin:
    """The origin of a suite: its keys in a document, the bundle, and the template for a suite that
    names none.
    """

    document: Document
    keys: Keys
    bundle: Path
    template: str | None


def _made(body: SuiteBody, origin: _Origin, name: str) -> Suite:
    problems = Problems(SuiteError)
    questions = tuple(_Maker(body, origin, problems).questions())
    wanted = body.at_least
    at_least = wanted.of(len(questions), up=True) if wanted else len(questions)
    if wanted and not wanted.percent and wanted.number > len(questions):
        problems.add(
            f"at_least is {wanted}, but the suite has {len(questions)} prompts",
            origin.document.value((*origin.keys, "at_least")),
            f"write at most {len(questions)}",
        )
    problems.raise_first()
    plain = [[asdict(question) for question in questions], at_least, body.differ, body.sampling]
    digest = hashlib.sha256(json.dumps(plain, sort_keys=True, default=list).encode()).hexdigest()
    return Suite(
        body.name or name,
        questions,
        at_least,
        digest,
        body.differ,
        body.sampling == "greedy",
    )


class _Maker:
    """The questions of a suite, with rendered prompts and validated checks."""

    def __init__(self, body: SuiteBody, origin: _Origin, problems: Problems) -> None:
        self._body, self._origin, self._problems = body, origin, problems
        self._document, self._keys = origin.document, origin.keys
        self._names: set[str] = set()

    def questions(self) -> Iterator[SuiteQuestion]:
        rows = self._body.prompts or []
        if not 0 < len(rows) <= MAX_QUESTIONS:
            self._problems.add(
                f"the suite has {len(rows)} prompts; it needs 1 to {MAX_QUESTIONS}",
                self._document.value((*self._keys, "prompts")),
                "write `prompts:` with one `- ` for each prompt",
            )
            return
        for number, row in enumerate(rows):
            place = (*self._keys, "prompts", number)
            name = row.name or str(number + 1)
            if name in self._names:
                self._add(place, f"two prompts are called '{name}'", "give each its own `name:`")
            self._names.add(name)
            prompt = self._prompt(row, place)
            checks = tuple(self._checks(row.expect or ExpectBody(), (*place, "expect")))
            detect = next((d for d in (row.detect, self._body.detect) if d is not None), DETECTORS)
            yield SuiteQuestion(
                name,
                prompt,
                tuple(row.tokens or ()),
                row.max_tokens or self._body.max_tokens,
                checks,
                tuple(detect),
            )

    def _add(self, keys: Keys, message: str, hint: str) -> None:
        self._problems.add(message, self._document.value(keys), hint)

    def _prompt(self, row: QuestionBody, place: Keys) -> str:
        kinds = ("prompt", "user", "messages", "tokens")
        given = [key for key in kinds if getattr(row, key) is not None]
        if len(given) != 1:
            message = (
                f"a prompt has both {given[0]} and {given[1]}" if given else "a prompt has no text"
            )
            self._add(place, message, f"give exactly one of: {', '.join(kinds)}")
            return ""
        text = row.prompt or ""
        if given[0] in {"user", "messages"}:
            text = self._rendered(row, (*place, given[0]))
        elif row.system is not None or row.think is not None:
            self._add(
                place,
                f"`system` and `think` change nothing next to `{given[0]}`",
                "write `user:` instead, or remove the two keys",
            )
        if given[0] != "tokens" and not text.strip():
            self._add((*place, given[0]), "the prompt is empty", "write a text")
        if given == ["tokens"] and not row.tokens:
            self._add((*place, "tokens"), "the prompt has no tokens", "write token ids: [1, 42]")
        if len(text) > MAX_PROMPT_BYTES or "\0" in text:
            self._add((*place, given[0]), "the prompt is no text below 1 MB", "shorten the prompt")
        return text

    def _rendered(self, row: QuestionBody, place: Keys) -> str:
        body = self._body
        if row.messages is not None:
            messages: list[Message] = [{"role": m.role, "content": m.content} for m in row.messages]
        else:
            system = row.system if row.system is not None else body.system
            messages = [{"role": "system", "content": system}] if system is not None else []
            messages.append({"role": "user", "content": row.user or ""})
        think = row.think if row.think is not None else body.think
        try:
            folder = self._document.file.absolute().parent
            template = template_for(
                body.template or self._origin.template, folder, self._origin.bundle
            )
            return template.render(messages, think=think)
        except InputError as error:
            if body.template:
                place = (*self._keys, "template")
            self._add(place, error.message, error.hint)
            return ""

    def _checks(self, body: ExpectBody, place: Keys) -> Iterator[AnswerCheck]:
        for kind in body.__struct_fields__:
            value = getattr(body, kind)
            if value is None or kind == "ignore_case":
                continue
            try:
                made = _CHECKS.get(kind, _as_it_is)(value)
            except InputError as error:
                self._add((*place, kind), error.message, error.hint)
            else:
                yield AnswerCheck(kind, made, body.ignore_case)


def _as_it_is(value: object) -> object:
    return value


def _texts(value: Texts) -> tuple[str, ...]:
    texts = (value,) if isinstance(value, str) else tuple(value)
    if not texts or not all(texts):
        raise InputError("the expected text is empty", hint="write the text, or remove the key")
    return texts


def _pattern(value: str) -> str:
    try:
        re.compile(value)
    except (re.error, RecursionError, OverflowError) as error:
        raise InputError(
            f"'{value}' is not a regular expression: {error}",
            hint="correct it; put it in single quotes, and a backslash before . ( ) [ ] meant "
            "as text",
        ) from error
    return value


def _number(value: float | NumberBody) -> tuple[float, float]:
    if not isinstance(value, NumberBody):
        value = NumberBody(value=value)
    tolerance = value.tolerance
    if isinstance(tolerance, Amount):
        unit = abs(value.value) / 100 if tolerance.percent else 1
        tolerance = float(tolerance.number) * unit
    if not (math.isfinite(value.value) and math.isfinite(tolerance) and tolerance >= 0):
        raise InputError(
            "the number and its tolerance must be finite, and the tolerance not negative",
            hint="write {value: 42, tolerance: 0.5}",
        )
    return float(value.value), float(tolerance)


def _choice(value: str | ChoiceBody) -> tuple[str, tuple[str, ...]]:
    body = value if isinstance(value, ChoiceBody) else ChoiceBody(right=value, of=list("ABCD"))
    if body.right not in body.of or not all(body.of):
        raise InputError(
            f"the choice '{body.right}' is none of {', '.join(body.of)}",
            hint="write {right: yes, of: [yes, no]} with quotes around the words",
        )
    return body.right, tuple(body.of)


def _json(value: bool | JsonBody) -> dict[str, Any]:
    if value is False:
        raise InputError("`json: false` checks nothing", hint="remove it, or write `json: true`")
    if not isinstance(value, JsonBody):
        return {}
    if value.schema is not None:
        check_schema(value.schema)
    given = {"fields": value.fields, "schema": value.schema}
    return {key: part for key, part in given.items() if part is not None}


_Kind = Literal["object", "array", "string", "number", "integer", "boolean", "null"]


class _Schema(Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    """The words of JSON Schema that the check of answers supports."""

    type: _Kind | list[_Kind] = "object"
    properties: dict[str, _Schema] = {}
    required: list[str] = []
    additional_properties: bool = True
    items: _Schema | None = None
    min_items: int = 0
    max_items: int = 0
    enum: list[Any] = []
    const: Any = None
    minimum: float = 0
    maximum: float = 0
    min_length: int = 0
    max_length: int = 0
    pattern: str = ""
    title: str = ""
    description: str = ""

    def __post_init__(self) -> None:
        """Check the regular expression. Raises InputError."""
        _pattern(self.pattern)


def check_schema(schema: Mapping[str, Any]) -> None:
    """Check a JSON Schema. Raises InputError for words and types that fleet does not support."""
    try:
        convert(schema, _Schema)
    except ValidationError as error:
        raise InputError(
            f"the check does not know this JSON Schema: {error}",
            hint=f"fleet supports the words {', '.join(_Schema.__struct_encode_fields__)}; see "
            "https://json-schema.org/understanding-json-schema",
        ) from error


def _tool_call(value: str | ToolCallBody) -> tuple[str, dict[str, Any] | None]:
    return (value, None) if isinstance(value, str) else (value.name, value.arguments)


def _length(value: LengthBody) -> dict[str, int]:
    bounds = {key: getattr(value, key) for key in value.__struct_fields__}
    return {key: bound for key, bound in bounds.items() if bound is not None}


_CHECKS: dict[str, Any] = {
    "exact": _texts,
    "contains": _texts,
    "lacks": _texts,
    "regex": _pattern,
    "number": _number,
    "choice": _choice,
    "json": _json,
    "tool_call": _tool_call,
    "length": _length,
}
