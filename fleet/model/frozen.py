"""The standard library's `dataclass(frozen=True)`, made in a quarter of the time.

That one compiles six methods for each class, 0.3 to 1 ms; a short command imports a hundred
classes, which was a quarter of its start. Here `__init__` alone is compiled for a class, and the
others are shared. tests/model/test_frozen.py holds each class to what the standard library makes
of it. Type checkers see the standard library's own.
"""

from __future__ import annotations

import dataclasses
import reprlib
from dataclasses import MISSING, Field
from functools import cache
from operator import attrgetter
from typing import TYPE_CHECKING, Any

__all__ = ["dataclass"]

_FIELDS, _PARAMS = "__dataclass_fields__", "__dataclass_params__"
_standard = dataclasses.dataclass


@_standard(frozen=True)
class _Pattern:
    """Whose parameters all have."""


if TYPE_CHECKING:
    from dataclasses import dataclass
else:

    def dataclass(cls: type | None = None, /, *, frozen: bool = False) -> Any:  # noqa: ANN401
        """As that of dataclasses; one that is not frozen is made there."""
        make = _frozen if frozen else _standard
        return make if cls is None else make(cls)


def _frozen(cls: type) -> type:
    own = _own_fields(cls)
    for name, field in own.items():
        if field.default is not MISSING:
            setattr(cls, name, field.default)
        elif name in vars(cls):  # a field() without a default
            delattr(cls, name)
    found: dict[str, Field[Any]] = {}
    for base in cls.__mro__[-1:0:-1]:
        found |= vars(base).get(_FIELDS, {})
    setattr(cls, _FIELDS, found | own)
    setattr(cls, _PARAMS, getattr(_Pattern, _PARAMS))
    fields = dataclasses.fields(cls)
    shared = {"__init__": _initializer(cls, fields), "__repr__": _shown, "__eq__": _equal,
              "__match_args__": tuple(field.name for field in fields if field.init)}  # fmt: skip
    if vars(cls).get("__hash__") is None:
        shared["__hash__"] = _hashed
    for name, value in shared.items():
        if name == "__hash__" or name not in vars(cls):
            setattr(cls, name, value)
    cls.__setattr__, cls.__delattr__ = _fixed, _kept  # type: ignore[method-assign,assignment]
    return cls


def _own_fields(cls: type) -> dict[str, Field[Any]]:
    """The fields of the class itself, found by the standard library."""
    names = vars(cls).get("__annotations__", {})
    space = {name: vars(cls)[name] for name in names if name in vars(cls)}
    space |= {"__annotations__": names, "__module__": cls.__module__, "__doc__": "fields"}
    bare: type = _standard(init=False, repr=False, eq=False)(type(cls.__name__, (), space))
    found: dict[str, Field[Any]] = getattr(bare, _FIELDS)
    return found


def _initializer(cls: type, fields: tuple[Field[Any], ...]) -> Any:  # noqa: ANN401
    head, body = ["self"], []
    space: dict[str, Any] = {"_set": object.__setattr__, "_MISSING": MISSING}
    for field in fields:
        name, made = field.name, field.default_factory is not MISSING
        space[f"_of_{name}"] = field.default_factory if made else field.default
        value = name
        if made:
            value = (
                f"_of_{name}() if {name} is _MISSING else {name}" if field.init else f"_of_{name}()"
            )
        if field.init:
            default = "=_MISSING" if made else "" if field.default is MISSING else f"=_of_{name}"
            head.append(name + default)
        if field.init or made:
            body.append(f" _set(self, {name!r}, {value})")
    if hasattr(cls, "__post_init__"):
        body.append(" self.__post_init__()")
    exec(f"def __init__({', '.join(head)}):\n" + "\n".join(body or [" pass"]), space)  # noqa: S102
    init = space["__init__"]
    init.__qualname__, init.__module__ = f"{cls.__qualname__}.__init__", cls.__module__
    init.__annotations__ = {f.name: f.type for f in fields if f.init} | {"return": None}
    return init


@reprlib.recursive_repr()
def _shown(self: Any) -> str:  # noqa: ANN401 - of any of the classes
    fields = (field for field in dataclasses.fields(self) if field.repr)
    told = ", ".join(f"{field.name}={getattr(self, field.name)!r}" for field in fields)
    return f"{type(self).__qualname__}({told})"


def _kind(self: Any) -> Any:  # noqa: ANN401
    return type(self)


@cache
def _values(cls: type, *, hashing: bool) -> attrgetter[Any] | None:
    names = [
        field.name
        for field in dataclasses.fields(cls)
        if (field.hash if hashing and field.hash is not None else field.compare)
    ]
    return attrgetter(*names) if names else None


def _equal(self: Any, other: Any) -> bool:  # noqa: ANN401
    if type(other) is not type(self):
        return NotImplemented  # type: ignore[no-any-return]
    values = _values(_kind(self), hashing=False)
    return values is None or bool(values(self) == values(other))


def _hashed(self: Any) -> int:  # noqa: ANN401
    values = _values(_kind(self), hashing=True)
    return hash(values(self) if values else ())


def _fixed(self: Any, name: str, value: object) -> None:  # noqa: ANN401
    if _FIELDS in vars(type(self)) or name in getattr(self, _FIELDS):
        raise dataclasses.FrozenInstanceError(f"cannot assign to field {name!r}")
    object.__setattr__(self, name, value)


def _kept(self: Any, name: str) -> None:  # noqa: ANN401
    if _FIELDS in vars(type(self)) or name in getattr(self, _FIELDS):
        raise dataclasses.FrozenInstanceError(f"cannot delete field {name!r}")
    object.__delattr__(self, name)
