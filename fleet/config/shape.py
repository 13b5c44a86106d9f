"""The only reader of files that people write, which walks a msgspec Struct value by value, and the
JSON Schemas of these Structs.

A Struct declares keys, types and defaults, and in `Annotated` the further rules of a value: `Doc`,
`Before`, `After`, `Pattern`, `Range`, `msgspec.Meta`. The walker reports all errors of a document
at once, each with its line and column. `T | SomeStruct` is a short form or a mapping.
"""

from __future__ import annotations

import types
from dataclasses import dataclass
from functools import cache
from inspect import isclass
from typing import (
    Annotated,
    Any,
    ClassVar,
    Literal,
    TypeVar,
    Union,
    get_args,
    get_origin,
    get_type_hints,
)

import msgspec

from fleet.config.problems import Problems, suggest_or_list, suggestion
from fleet.config.values import After, Before, Doc, Pattern, Range, Schema, beyond, no_word, unlike
from fleet.config.yamlpos import Document, Keys, Vault
from fleet.model.errors import InputError

WANTED = {int: "a whole number", float: "a number", bool: "true or false", str: "text"}
LIMITS = (msgspec.Meta, Range)
BAD: Any = object()  # the result for a value whose error has been reported
_B = TypeVar("_B", bound=msgspec.Struct)


class Body(msgspec.Struct, frozen=True):
    """A mapping that knows all its keys.

    With `OTHERS` every other key is a value of that type, which is checked and discarded. If values
    contradict each other, `__post_init__` raises InputError.
    """

    OTHERS: ClassVar[Any] = None


@dataclass(frozen=True)
class Key:
    """A key of a Struct, with its type hint resolved."""

    name: str
    type: Any
    needed: bool
    default: Any
    description: str


def unwrapped(annotation: Any) -> tuple[Any, tuple[Any, ...]]:
    """Return (type inside `Annotated`, its marks), or (annotation, ())."""
    if get_origin(annotation) is Annotated:
        inner, *marks = get_args(annotation)
        return inner, tuple(marks)
    return annotation, ()


def branches(annotation: Any) -> tuple[Any, ...]:
    """Return the members of a union, or the type alone."""
    plain, _ = unwrapped(annotation)
    return get_args(plain) if get_origin(plain) in {Union, types.UnionType} else (annotation,)


def is_body(annotation: Any) -> bool:
    """Return True for a Struct."""
    plain, _ = unwrapped(annotation)
    return isclass(plain) and issubclass(plain, msgspec.Struct)


@cache
def keys_of(kind: type[msgspec.Struct]) -> dict[str, Key]:
    """Return the keys of a Struct by their names in the file."""
    hints = get_type_hints(kind, include_extras=True)
    keys = {}
    for field in msgspec.structs.fields(kind):
        hint = hints[field.name]
        doc = next((mark for mark in unwrapped(hint)[1] if isinstance(mark, Doc)), "")
        made = None if field.default_factory is msgspec.NODEFAULT else field.default_factory
        default = field.default if made is None else made()
        keys[field.encode_name] = Key(field.name, hint, field.required, default, str(doc))
    return keys


def key_name(path: Keys) -> str:
    """Return the last key of a path; an item of a list has that of the list."""
    return next((key for key in reversed(path) if isinstance(key, str)), "")


def read_body(kind: type[_B], document: Document, problems: Problems) -> _B:
    """Return the content of a document. Raises the first error, with its position."""
    body: _B = Walker(document, problems).value(kind, document.data, ())
    if body is BAD:
        problems.raise_first()
    return body


class Walker:
    """A converter for the values of one document; errors go to `problems`."""

    def __init__(self, document: Document, problems: Problems) -> None:
        self._document, self._problems = document, problems

    def value(self, annotation: Any, value: Any, path: Keys) -> Any:
        """Return the converted value, or BAD after reporting its error."""
        plain, marks = unwrapped(annotation)
        try:
            for mark in marks:
                if isinstance(mark, Before):
                    value = mark.read(value)
                    if mark.final:
                        return value
            converted = self._inner(plain, value, path)
            for mark in marks if converted is not BAD and converted is not None else ():
                if isinstance(mark, Pattern | After):
                    converted = mark.check(converted)
                elif isinstance(mark, LIMITS):
                    wrong = beyond(key_name(path), converted, mark)
                    if wrong is not None:
                        return self._wrong(path, *wrong)
        except InputError as error:
            return self._wrong(path, error.message, error.hint)
        return converted

    def _inner(self, plain: Any, value: Any, path: Keys) -> Any:
        members = branches(plain)
        if len(members) > 1:
            return self._member(members, value, path)
        if isinstance(value, Vault) or value is None:
            return value if plain is Any else self._unlike(path, value, "text")
        if is_body(plain):
            return self._body(plain, value, path)
        readers = {list: self._list, tuple: self._tuple, dict: self._dict, Literal: self._word}
        read = readers.get(get_origin(plain))
        return read(get_args(plain), value, path) if read else self._leaf(plain, value, path)

    def _member(self, members: tuple[Any, ...], value: Any, path: Keys) -> Any:
        """Convert a value of `None | short form | mapping` to the member that fits."""
        if value is None and type(None) in members:
            return None
        real = [member for member in members if member is not type(None)]
        if len(real) > 1:
            kind = dict if isinstance(value, dict) else list if isinstance(value, list) else None
            listed = get_origin(unwrapped(real[-1])[0]) is list
            if listed and not isinstance(value, str | list):
                return self._unlike(path, value, "a list")
            fits = [member for member in real if self._kind(member) is kind]
            real = fits or [member for member in real if self._kind(member) is None] or real
        return self.value(real[0], value, path)

    @staticmethod
    def _kind(annotation: Any) -> type | None:
        plain, _ = unwrapped(annotation)
        return dict if is_body(plain) else get_origin(plain)

    def _body(self, kind: type[msgspec.Struct], value: Any, path: Keys) -> Any:
        keys = keys_of(kind)
        if not isinstance(value, dict):
            hint = f"write lines below `{path[-1] if path else ''}:`, with these keys: "
            return self._unlike(path, value, "a mapping", hint + ", ".join(keys))
        others = getattr(kind, "OTHERS", None)
        unknown = [name for name in value if name not in keys]
        if others is not None:
            rows = [self.value(others, value[name], (*path, name)) for name in unknown]
            unknown = [name for name, row in zip(unknown, rows, strict=True) if row is BAD]
        for name in unknown if others is None else ():
            hint = suggest_or_list(str(name), list(keys))
            place = self._document.key((*path, name))
            self._problems.add(f"unknown key '{name}'", place, hint)
        made = {
            key.name: self.value(key.type, value[name], (*path, name))
            for name, key in keys.items()
            if name in value
        }
        meant = {suggestion(str(name), list(keys)) for name in unknown}
        for name, key in keys.items():
            if key.needed and name not in value and f"did you mean '{name}'?" not in meant:
                self._wrong(path, f"key '{name}' is missing", f"add `{name}:`")
        bad = unknown or any(item is BAD for item in made.values())
        needed = all(name in value for name, key in keys.items() if key.needed)
        return kind(**made) if needed and not bad else BAD

    def _list(self, kinds: tuple[Any, ...], value: Any, path: Keys) -> Any:
        if not isinstance(value, list):
            return self._unlike(path, value, "a list")
        made = [self.value(kinds[0], item, (*path, number)) for number, item in enumerate(value)]
        return BAD if any(item is BAD for item in made) else made

    def _tuple(self, kinds: tuple[Any, ...], value: Any, path: Keys) -> Any:
        every = kinds[1:] == (...,)
        if not isinstance(value, list) or not (every or len(value) == len(kinds)):
            return self._unlike(path, value, "a list" if every else f"a list of {len(kinds)}")
        types = kinds[:1] * len(value) if every else kinds
        made = [self.value(types[at], item, (*path, at)) for at, item in enumerate(value)]
        return BAD if any(item is BAD for item in made) else tuple(made)

    def _dict(self, kinds: tuple[Any, ...], value: Any, path: Keys) -> Any:
        if not isinstance(value, dict):
            return self._unlike(path, value, "a mapping")
        names = [self.value(kinds[0], name, (*path, name)) for name in value]
        made = [self.value(kinds[1], item, (*path, name)) for name, item in value.items()]
        return BAD if BAD in (*names, *made) else dict(zip(names, made, strict=True))

    def _word(self, words: tuple[Any, ...], value: Any, path: Keys) -> Any:
        if any(value == word and type(value) is type(word) for word in words):
            return value
        if not isinstance(value, str) and any(isinstance(word, str) for word in words):
            return self._unlike(path, value, "text")
        shown = [str(word).lower() if isinstance(word, bool) else str(word) for word in words]
        return self._wrong(path, *no_word(key_name(path), str(value), shown))

    def _leaf(self, plain: Any, value: Any, path: Keys) -> Any:
        try:
            return msgspec.convert(value, plain, strict=True)
        except (msgspec.ValidationError, UnicodeEncodeError):  # the latter of a lone surrogate
            return self._unlike(path, value, WANTED.get(plain, "text"))

    def _unlike(self, path: Keys, value: Any, wanted: str, hint: str = "") -> Any:
        key, text = key_name(path), self._document.text(path)
        message, usual = unlike(key, value, wanted, text)
        return self._wrong(path, message, hint or usual)

    def _wrong(self, path: Keys, message: str, hint: str = "") -> Any:
        self._problems.add(message, self._document.value(path), hint)
        return BAD


_PLAIN = {str: "string", int: "integer", float: "number", bool: "boolean"}
_LIMITS = {
    "ge": "minimum",
    "gt": "exclusiveMinimum",
    "le": "maximum",
    "lt": "exclusiveMaximum",
}
_LENGTHS = {str: "minLength", list: "minItems", tuple: "minItems"}


def struct_schema(kind: type[msgspec.Struct]) -> dict[str, Any]:
    """Return the schema of a Struct, with the schemas of its parts below `$defs`."""
    parts: dict[str, Any] = {}
    return {**_body(kind, parts), "$defs": parts}


def _body(kind: type[msgspec.Struct], parts: dict[str, Any]) -> dict[str, Any]:
    keys = keys_of(kind)
    needed = [name for name, key in keys.items() if key.needed]
    properties = {}
    for name, key in keys.items():
        properties[name] = value_schema(key.type, parts)
        if key.description:
            properties[name]["description"] = key.description
        default = list(key.default) if isinstance(key.default, tuple) else key.default
        if not key.needed and isinstance(default, str | int | float | bool | list | None):
            properties[name]["default"] = default
    return {
        "type": "object",
        "description": kind.__doc__ or "",
        "additionalProperties": False,
        "properties": properties,
        **({"required": needed} if needed else {}),
    }


def value_schema(annotation: Any, parts: dict[str, Any]) -> dict[str, Any]:
    """Return the schema of a value; the schemas of its Structs go to `parts`."""
    plain, marks = unwrapped(annotation)
    for mark in reversed(marks):
        if isinstance(mark, Schema):
            return dict(mark.body)
        if isinstance(mark, Pattern):
            return dict(mark.schema)
    limits = {
        word: getattr(mark, name)
        for mark in marks
        if isinstance(mark, msgspec.Meta | Range)
        for name, word in _LIMITS.items()
        if getattr(mark, name, None) is not None
    }
    least = next((mark.min_length for mark in marks if isinstance(mark, msgspec.Meta)), None)
    if least is not None:
        limits[_LENGTHS[get_origin(plain) or plain]] = least
    members = branches(plain)
    if len(members) > 1:
        return {"anyOf": [value_schema(member, parts) for member in members]}
    return {**_shape(plain, parts), **limits}


def _shape(plain: Any, parts: dict[str, Any]) -> dict[str, Any]:
    origin, inside = get_origin(plain), get_args(plain)
    if is_body(plain):
        name = plain.__name__.lstrip("_")
        if name not in parts:
            parts[name] = {}
            parts[name] = _body(plain, parts)
        return {"$ref": f"#/$defs/{name}"}
    if plain is type(None):
        return {"type": "null"}
    if origin is Literal:
        return {"enum": list(inside)}
    if origin is list or inside[1:] == (...,):
        return {"type": "array", "items": value_schema(inside[0], parts)}
    if origin is dict:
        return {"type": "object", "additionalProperties": value_schema(inside[1], parts)}
    return {"type": _PLAIN[plain]} if plain in _PLAIN else {}
