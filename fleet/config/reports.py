"""pydantic's errors in our words, each with its place in the file."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from inspect import isclass
from typing import Any, Literal, TypeVar, get_args, get_origin, get_type_hints

from pydantic import BaseModel, ValidationError
from pydantic.fields import FieldInfo
from pydantic_core import ErrorDetails

from fleet.config.problems import Problems, suggest_or_list, suggestion
from fleet.config.values import no_word, unlike
from fleet.config.yamlpos import Document, Keys, Vault
from fleet.model.errors import InputError

_M = TypeVar("_M", bound=BaseModel)


def validated(model: type[_M], document: Document, problems: Problems) -> _M:
    """The content of a document. Raises the first error, in its place, where it does not fit."""
    try:
        return model.model_validate(document.data)
    except ValidationError as error:
        report(error, model, document, problems)
        problems.raise_first()
        raise InputError(f"{document.file}: {error}") from error


def report(
    cause: ValidationError, model: type[BaseModel], document: Document, problems: Problems
) -> None:
    """Add each error of a validation to `problems`."""
    details = sorted(cause.errors(include_url=False), key=lambda each: each["type"] == "missing")
    meant: set[tuple[Keys, str]] = set()  # a key that is missing because it is mistyped
    for detail in details:
        path = _locate(document, detail["loc"])
        key = str(path[-1]) if path else ""
        if detail["type"] == "extra_forbidden":
            known = _known(model, detail["loc"])
            problems.add(f"unknown key '{key}'", document.key(path), suggest_or_list(key, known))
            meant.update((path[:-1], name) for name in known if name in suggestion(key, known))
            continue
        if detail["type"] == "missing" and (path, str(detail["loc"][-1])) in meant:
            continue
        message, hint = words(detail, key, document.text(path))
        if detail["type"] == "model_type":
            known = _known(model, (*detail["loc"], ""))
            hint = f"write lines below `{key}:`, with these keys: {', '.join(known)}"
        problems.add(message, document.value(path), hint)


def _locate(document: Document, loc: Keys) -> Keys:
    """The path in the document; names of union branches, which pydantic adds, are left out."""
    path: Keys = ()
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
        field = _keys(model).get(str(part))
        others = get_type_hints(model).get("__pydantic_extra__")  # of a mapping of rows
        model = next(_models(field.annotation if field is not None else others), model)
    return list(_keys(model))


def _keys(model: type[BaseModel]) -> dict[str, FieldInfo]:
    """The fields of a model by the name that stands in the file."""
    return {field.alias or name: field for name, field in model.model_fields.items()}


def words(detail: ErrorDetails, key: str, text: str) -> tuple[str, str]:
    """Message and cure for one pydantic error. The value of a secret is never in them."""
    kind, value = detail["type"], detail["input"]
    context: Mapping[str, Any] = detail.get("ctx") or {}
    if isinstance(value, Vault):
        return unlike(key, value, "text", text)
    if "hint" in context:
        return detail["msg"], str(context["hint"])
    if kind == "missing":
        name = detail["loc"][-1]
        return f"key '{name}' is missing", f"add `{name}:`"
    return _value(detail, key, text)


def _value(detail: ErrorDetails, key: str, text: str) -> tuple[str, str]:
    kind, value = detail["type"], detail["input"]
    context: Mapping[str, Any] = detail.get("ctx") or {}
    of_text = kind in {"string_type", "literal_error"}
    if value is None or (of_text and isinstance(value, bool | int | float)):
        return unlike(key, value, "text", text)
    if kind == "literal_error":
        options = [each.strip("'") for each in str(context["expected"]).split(" or ")]
        names = [name.strip("'") for each in options for name in each.split(", ")]
        return no_word(key, str(value), names)
    return _shape(kind, key, value, context)


def _shape(kind: str, key: str, value: object, context: Mapping[str, Any]) -> tuple[str, str]:
    if kind in {"greater_than_equal", "less_than_equal", "greater_than", "less_than"}:
        sign = {"ge": "at least", "le": "at most", "gt": "more than", "lt": "less than"}
        limit = next(f"{sign[name]} {context[name]}" for name in sign if name in context)
        return f"'{key}' must be {limit}, not {value}", f"write a number that is {limit}"
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
        return (
            f"the value of '{key}' is not valid ({kind})",
            "fleet config schema -h (lists the formats)",
        )
    return unlike(key, value, wanted, "")
