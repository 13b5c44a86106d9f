"""All that is wrong with a file, each with its place and cure; pydantic's errors in our words."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from inspect import isclass
from typing import Any, Literal, NoReturn, get_args, get_origin

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from fleet.config.yaml_words import printable
from fleet.config.yamlpos import Document, Keys, Vault, describe
from fleet.model.errors import InputError, Position

SECRET_KEYS = frozenset({"password", "become_password", "key_passphrase"})
_LISTED = 40  # more known names than this only confuse


class Problems:
    """Errors of one file, collected. `kind` is the class that they are raised as."""

    def __init__(self, kind: type[InputError]) -> None:
        self._kind = kind
        self._found: list[InputError] = []

    def add(self, message: str, position: Position, hint: str = "") -> None:
        """Remember an error; the same one at the same place counts once."""
        message, hint = printable(message), printable(hint)
        if not any(e.message == message and e.position == position for e in self._found):
            self._found.append(self._kind(message, position=position, hint=hint))

    @property
    def errors(self) -> tuple[InputError, ...]:
        """All errors, in the order of their places in the file."""
        return tuple(sorted(self._found, key=_place))

    def raise_first(self, all_by: str = "") -> None:
        """Raise the first error, with the number of the others; `all_by` lists them all."""
        found = self.errors
        if not found:
            return
        first, others = found[0], found[1:]
        if not others:
            raise first
        if all_by:
            more = f"and {len(others)} more; `{all_by}` lists all"
        else:
            lines = sorted({error.position.line for error in others if error.position})
            more = f"and {len(others)} more, line {', '.join(str(line) for line in lines)}"
        _again(first, more)


def _again(error: InputError, more: str) -> NoReturn:
    raise type(error)(f"{error.message} ({more})", position=error.position, hint=error.hint)


def _place(error: InputError) -> tuple[int, int]:
    return (error.position.line, error.position.column) if error.position else (0, 0)


def suggestion(name: str, known: Iterable[str], *, cutoff: float = 0.6) -> str:
    """`did you mean 'port'?`, or "" when nothing is near."""
    names = {each.lower(): each for each in known}
    near = difflib.get_close_matches(name.lower(), names, n=1, cutoff=cutoff)
    return f"did you mean '{names[near[0]]}'?" if near else ""


def suggest_or_list(name: str, known: Sequence[str]) -> str:
    """The near name, or the list of known ones."""
    return suggestion(name, known) or f"known: {', '.join(list(known)[:_LISTED])}"


def report(
    cause: ValidationError,
    model: type[BaseModel],
    document: Document,
    problems: Problems,
    *,
    base: Keys = (),
    skip: int = 0,
) -> None:
    """Add each error of a validation to `problems`.

    The data stood at `base` of the document; the first `skip` parts of pydantic's location
    belong to `base` already.
    """
    details = sorted(cause.errors(include_url=False), key=lambda each: each["type"] == "missing")
    meant: set[tuple[Keys, str]] = set()  # a key that is missing because it is mistyped
    for detail in details:
        path = _locate(document, base, detail["loc"][skip:])
        key = str(path[-1]) if path else ""
        if detail["type"] == "extra_forbidden":
            known = _known(model, detail["loc"])
            problems.add(f"unknown key '{key}'", document.key(path), suggest_or_list(key, known))
            meant.update((path[:-1], name) for name in known if name in suggestion(key, known))
            continue
        if detail["type"] == "missing" and (path, str(detail["loc"][-1])) in meant:
            continue
        message, hint = words(detail, key, document.text(path))
        problems.add(message, document.value(path), hint)


def _locate(document: Document, base: Keys, loc: Keys) -> Keys:
    """The path in the document; names of union branches, which pydantic adds, are left out."""
    path = base
    for part in loc:
        if (*path, part) in document.values:
            path = (*path, part)
    return path


def _models(annotation: object) -> Iterator[type[BaseModel]]:
    if isclass(annotation) and issubclass(annotation, BaseModel):
        yield annotation
    elif get_origin(annotation) is not Literal:
        for part in get_args(annotation):
            yield from _models(part)


def _known(model: type[BaseModel], loc: Keys) -> list[str]:
    for part in loc[:-1]:
        field = model.model_fields.get(str(part))
        if field is not None:
            model = next(_models(field.annotation), model)
    return list(model.model_fields)


def words(detail: ErrorDetails, key: str, text: str) -> tuple[str, str]:
    """Message and cure for one pydantic error. The value of a secret is never in them."""
    kind, value = detail["type"], detail["input"]
    context: Mapping[str, Any] = detail.get("ctx") or {}
    if isinstance(value, Vault):
        return (
            f"'{key}' is encrypted by ansible-vault; fleet cannot decrypt it",
            "put it into a variable of the environment and write env:NAME",
        )
    if "hint" in context:
        return detail["msg"], str(context["hint"])
    if kind == "missing":
        name = detail["loc"][-1]
        return f"key '{name}' is missing", f"add `{name}:`"
    return _value(detail, key, text)


def _value(detail: ErrorDetails, key: str, text: str) -> tuple[str, str]:
    kind, value = detail["type"], detail["input"]
    context: Mapping[str, Any] = detail.get("ctx") or {}
    if value is None:
        return f"'{key}' has no value", "give it one, or remove the key"
    if kind in {"string_type", "literal_error"} and isinstance(value, bool | int | float):
        shown = "..." if key in SECRET_KEYS else text or value
        what = "a truth value" if isinstance(value, bool) else "a number"
        return f"'{key}' must be text, and YAML reads this as {what}", f'quote it: "{shown}"'
    if kind == "literal_error":
        options = [each.strip("'") for each in str(context["expected"]).split(" or ")]
        names = [name.strip("'") for each in options for name in each.split(", ")]
        near = suggestion(str(value), names)
        return f"'{value}' is no {key}", near or f"one of: {', '.join(names)}"
    return _shape(kind, key, value, context)


def _shape(kind: str, key: str, value: object, context: Mapping[str, Any]) -> tuple[str, str]:
    got = describe(value)
    if kind in {"greater_than_equal", "less_than_equal", "greater_than", "less_than"}:
        sign = {"ge": "at least", "le": "at most", "gt": "more than", "lt": "less than"}
        limit = next(f"{sign[name]} {context[name]}" for name in sign if name in context)
        return f"'{key}' must be {limit}, not {value}", ""
    wanted = {
        "int_type": "a whole number",
        "int_from_float": "a whole number",
        "float_type": "a number",
        "bool_type": "true or false",
        "string_type": "text",
        "list_type": "a list",
        "tuple_type": "a list",
        "dict_type": "a mapping",
        "model_type": "a mapping",
        "model_attributes_type": "a mapping",
        "finite_number": "a finite number",
    }.get(kind)
    if wanted is None:
        return f"'{key}' is not valid ({kind})", "see `fleet schema`"
    hint = "remove the quotes" if isinstance(value, str) and wanted != "a mapping" else ""
    return f"'{key}' must be {wanted}, not {got}", hint
