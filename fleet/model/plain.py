"""The one reader of data that machines write: JSON → Structs; an error names its key."""

from __future__ import annotations

import types
from collections.abc import Mapping
from functools import cache
from inspect import isclass
from typing import Annotated, Any, TypeVar, Union, get_args, get_origin, get_type_hints

import msgspec

from fleet.model.errors import InputError

_S = TypeVar("_S", bound=msgspec.Struct)
# A whole number stays one, and neither is NaN or infinite.
Number = (
    Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1)]
    | Annotated[float, msgspec.Meta(ge=-1e300, le=1e300)]
)
_WORDS = {str: "text", bool: "true or false", int: "a whole number"}


def read_plain(kind: type[_S], data: object, what: str, cure: str) -> _S:
    """Return plain data as a Struct. null is the same as a key that is not there.

    Unknown keys are ignored at every level: a later version may add some. Raises InputError that
    names the first wrong key; `what` is the name of the whole (`record`), `cure` the hint.
    """
    try:
        return msgspec.convert(data, kind)
    except (msgspec.ValidationError, UnicodeEncodeError):  # the latter of a lone surrogate
        made: _S = _SlowReader(what, cure).value(kind, data, "")
        return made


@cache
def _fields(kind: type[msgspec.Struct]) -> tuple[tuple[msgspec.structs.FieldInfo, Any], ...]:
    hints = get_type_hints(kind, include_extras=True)
    return tuple((field, hints[field.name]) for field in msgspec.structs.fields(kind))


class _SlowReader:
    """Reads key by key: skips null, accepts 3.0 as a whole number, and names what is wrong."""

    def __init__(self, what: str, cure: str) -> None:
        self._what, self._cure = what, cure

    def _wrong(self, where: str, wanted: str, value: object) -> InputError:
        name = f"`{where}` of the {self._what}" if where else f"the {self._what}"
        return InputError(f"{name} must be {wanted}, not {value!r:.60}", hint=self._cure)

    def value(self, kind: Any, value: Any, where: str) -> Any:  # noqa: ANN401
        """Return the converted value. Raises InputError."""
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
            return msgspec.convert(value, limits)
        except msgspec.ValidationError as error:
            raise self._wrong(where, _wanted(plain), value) from error


def _wanted(kind: Any) -> str:  # noqa: ANN401
    plain = get_args(kind)[0] if get_origin(kind) is Annotated else kind
    return _WORDS.get(plain, "a number")
