"""Data that machines write: JSON → Structs, with errors that name the key, and values → JSON."""

from __future__ import annotations

import types
from base64 import b64encode
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from enum import Enum
from functools import cache
from inspect import isclass
from operator import attrgetter
from pathlib import Path
from typing import Annotated, Any, TypeVar, Union, get_args, get_origin, get_type_hints

import msgspec
from msgspec import Struct

from fleet.model.errors import InputError

_S = TypeVar("_S", bound=msgspec.Struct)
# An integer stays an integer; NaN and infinity are not allowed.
Number = (
    Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1)]
    | Annotated[float, msgspec.Meta(ge=-1e300, le=1e300)]
)
_WORDS = {str: "text", bool: "true or false", int: "a whole number"}


def read_plain(kind: type[_S], data: object, what: str, cure: str) -> _S:
    """Return plain data as a Struct. null is the same as a missing key.

    Unknown keys are ignored at every level, because a later version may add some. Raises InputError
    that names the first wrong key. `what` is the name of the whole (`record`), `cure` the hint.
    """
    try:
        return msgspec.convert(data, kind, dec_hook=_from_text)
    except (msgspec.ValidationError, UnicodeEncodeError):  # UnicodeEncodeError: a lone surrogate
        made: _S = _SlowReader(what, cure).value(kind, data, "")
        return made


def _from_text(kind: type, value: object) -> Any:  # noqa: ANN401
    """Return a value that JSON stores as text. Raises ValueError."""
    if not isinstance(value, str):
        raise ValueError("no text")  # noqa: TRY004 - msgspec maps it
    return kind.parse(value) if hasattr(kind, "parse") else kind(value)


@cache
def _fields(kind: type[msgspec.Struct]) -> tuple[tuple[msgspec.structs.FieldInfo, Any], ...]:
    hints = get_type_hints(kind, include_extras=True)
    return tuple((field, hints[field.name]) for field in msgspec.structs.fields(kind))


class _SlowReader:
    """A reader key by key that skips null, accepts 3.0 as an integer, and names the wrong key."""

    def __init__(self, what: str, cure: str) -> None:
        self._what, self._cure = what, cure

    def _wrong(self, where: str, wanted: str, value: object) -> InputError:
        name = f"`{where}` of the {self._what}" if where else f"the {self._what}"
        return InputError(f"{name} must be {wanted}, not {value!r:.60}", hint=self._cure)

    def value(self, kind: Any, value: Any, where: str) -> Any:  # noqa: ANN401
        """Return `value` converted to the type `kind`. Raises InputError that names `where`."""
        plain, limits = kind, kind
        if get_origin(plain) is Annotated:
            plain = get_args(plain)[0]
        if get_origin(plain) in {Union, types.UnionType}:
            first, *others = (member for member in get_args(plain) if member is not type(None))
            return self._number(value, where) if others else self.value(first, value, where)
        if isclass(plain) and issubclass(plain, msgspec.Struct):
            return self._struct(plain, value, where)
        origin = get_origin(plain)
        if origin in {Mapping, dict}:
            return self._mapping(get_args(plain)[1], value, where)
        if origin is tuple:
            if not isinstance(value, list | tuple):
                raise self._wrong(where, "a list", value)
            inner = get_args(plain)[0]
            return tuple(self.value(inner, item, f"{where}[{at}]") for at, item in enumerate(value))
        return self._leaf(plain, limits, value, where)

    def _struct(self, kind: type[msgspec.Struct], value: Any, where: str) -> Any:  # noqa: ANN401
        if not isinstance(value, dict):
            raise self._wrong(where, "a JSON object", value)
        made = {}
        for field, hint in _fields(kind):
            name = field.encode_name
            path = f"{where}.{name}" if where else name
            if value.get(name) is not None:
                made[field.name] = self.value(hint, value[name], path)
            elif field.required and where:
                raise self._wrong(path, _wanted(hint), None)
            elif field.required:
                raise InputError(f"the {self._what} has no `{name}`", hint=self._cure)
        return kind(**made)

    def _mapping(self, inner: Any, value: Any, where: str) -> dict[str, Any]:  # noqa: ANN401
        if not isinstance(value, dict):
            raise self._wrong(where, "an object", value)
        if inner is Any:
            return value
        known = {name: item for name, item in value.items() if item is not None}
        return {name: self.value(inner, item, f"{where}.{name}") for name, item in known.items()}

    def _number(self, value: Any, where: str) -> int | float:  # noqa: ANN401
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise self._wrong(where, "a number", value)
        if not -1e300 < value < 1e300:
            raise self._wrong(where, "a finite number below 1e300", value)
        return value

    def _leaf(self, plain: Any, limits: Any, value: Any, where: str) -> Any:  # noqa: ANN401
        if plain is Any or (plain is str and isinstance(value, str)):
            return value
        if plain is int and isinstance(value, float) and value.is_integer():
            value = int(value)
        try:
            return msgspec.convert(value, limits, dec_hook=_from_text)
        except msgspec.ValidationError as error:
            raise self._wrong(where, _wanted(plain), value) from error


def _wanted(kind: Any) -> str:  # noqa: ANN401
    plain = get_args(kind)[0] if get_origin(kind) is Annotated else kind
    return _WORDS.get(plain, "a number")


# Data for machines: values → JSON.

_ATOMS = frozenset({str, int, float, bool, type(None)})


def to_plain(value: object) -> Any:  # noqa: ANN401 - JSON
    """Return a value as plain data for JSON. A Struct or dataclass is a mapping of its fields.

    A class that shows something else lists fields and properties in `PLAIN`, in this order. `*` is
    every field, `-name` leaves one out, `name?` leaves it out if it is empty, and `name:3` rounds a
    number to 3 places. `key=name.member` is a member under another key. `**name` are the members of
    the value with that name. With an empty `PLAIN` the value is its text. Bytes are base64. Raises
    TypeError for other objects.
    """
    kind: Any = type(value)
    if kind in _ATOMS:
        return value
    if isinstance(value, Mapping):
        return {str(key): to_plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        items = [to_plain(item) for item in value]
        return items if isinstance(value, list | tuple) else sorted(items)
    if isinstance(value, bytes | Enum):
        return b64encode(value).decode() if isinstance(value, bytes) else value.value
    members = members_of(kind)
    if members:
        return _tag(kind) | _shown(value, members)
    if members is not None or isinstance(value, Path | str):
        return str(value)
    raise TypeError(f"{kind.__name__} has no JSON form")


class Member(Struct, frozen=True):
    """A member of a value in JSON. The key `**` means the members of the member itself."""

    key: str
    path: str
    places: int | None = None
    omit_empty: bool = False

    def of(self, value: object) -> Any:  # noqa: ANN401 - of any type
        """Return the member's value."""
        return attrgetter(self.path)(value)


def field_names(kind: Any) -> tuple[str, ...]:  # noqa: ANN401 - a class
    """Return the field names of a Struct or a dataclass, () for other classes."""
    if is_dataclass(kind):
        return tuple(field.name for field in fields(kind))
    return tuple(getattr(kind, "__struct_fields__", ()))


@cache
def members_of(kind: type) -> tuple[Member, ...] | None:
    """Return the members of a class in JSON, from its `PLAIN`; None for a class without fields."""
    names = field_names(kind)
    keys = dict(zip(getattr(kind, "__struct_encode_fields__", names), names, strict=True))
    words: str | None = getattr(kind, "PLAIN", "*" if keys else None)
    if words is None:
        return None
    members: dict[str, Member] = {}
    for word in words.split():
        if word == "*":
            members |= {key: Member(key, name) for key, name in keys.items()}
        elif word.startswith("-"):
            del members[word[1:]]
        elif word.startswith("**"):
            members[word] = Member("**", word[2:])
        else:
            name, _, places = word.rstrip("?").partition(":")
            key, _, path = name.partition("=")
            rounded = int(places) if places else None
            members[key] = Member(key, path or key, rounded, word.endswith("?"))
    return tuple(members.values())


def _shown(value: object, members: tuple[Member, ...]) -> dict[str, Any]:
    made: dict[str, Any] = {}
    for member in members:
        item = member.of(value)
        if member.key == "**":
            made |= to_plain(item) or {}
        elif item or not member.omit_empty:
            rounded = None not in (item, member.places)
            made[member.key] = round(item, member.places) if rounded else to_plain(item)
    return made


def _tag(kind: type) -> dict[str, Any]:
    config = getattr(kind, "__struct_config__", None)
    return {config.tag_field: config.tag} if config and config.tag_field else {}
