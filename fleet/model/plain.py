"""Plain data (JSON) read key by key; what is wrong is said with the path of its key."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import fields
from typing import Any

from fleet.model.errors import InputError

_CURE = "fleet config schema record (prints the format)"


class Plain:
    """A JSON object. Each method raises InputError naming the key for a value of another kind.

    null is the same as a key that is not there. Keys that nobody asks for are passed over.
    """

    def __init__(self, data: object, where: str = "") -> None:
        if not isinstance(data, dict):
            what = f"`{where}` of the record" if where else "the record"
            raise InputError(f"{what} must be a JSON object, not {data!r:.60}", hint=_CURE)
        self.data: Mapping[str, Any] = data
        self._where = where

    def path(self, key: str) -> str:
        """`metrics.source.x`: the key with all that holds it."""
        return f"{self._where}.{key}" if self._where else key

    def wrong(self, key: str, needs: str) -> InputError:
        """The error for a value of another kind."""
        return InputError(
            f"`{self.path(key)}` of the record must be {needs}, not {self.data.get(key)!r:.60}",
            hint=_CURE,
        )

    def text(self, key: str) -> str:
        """A text; "" where there is none."""
        value = self.data.get(key)
        if value is None:
            return ""
        if not isinstance(value, str):
            raise self.wrong(key, "text")
        return value

    def flag(self, key: str) -> bool | None:
        """True, False, or None where there is none."""
        value = self.data.get(key)
        if value is not None and not isinstance(value, bool):
            raise self.wrong(key, "true or false")
        return value

    def number(self, key: str) -> float | None:
        """A finite number as it is written (an int stays one), None where there is none."""
        value = self.data.get(key)
        if value is None:
            return None
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise self.wrong(key, "a number")
        if not -1e300 < value < 1e300:  # false for NaN too
            raise self.wrong(key, "a finite number below 1e300")
        return value

    def count(self, key: str) -> int | None:
        """A whole number."""
        value = self.number(key)
        if value is not None and value != int(value):
            raise self.wrong(key, "a whole number")
        return None if value is None else int(value)

    def mapping(self, key: str) -> dict[str, Any]:
        """An object, as it is."""
        value = self.data.get(key)
        if value is None:
            return {}
        if not isinstance(value, dict):
            raise self.wrong(key, "an object")
        return value

    def texts(self, key: str) -> tuple[str, ...]:
        """A list of texts."""
        found = self._list(key)
        if not all(isinstance(text, str) for text in found):
            raise self.wrong(key, "a list of strings")
        return tuple(found)

    def words(self, key: str) -> dict[str, str]:
        """An object of texts."""
        found = self.mapping(key)
        if not all(isinstance(text, str) for text in found.values()):
            raise self.wrong(key, "an object with strings")
        return dict(found)

    def numbers(self, key: str) -> dict[str, float]:
        """An object of finite numbers."""
        found = self.mapping(key)
        if not found:
            return {}
        inner = Plain(found, self.path(key))
        made = {name: inner.number(name) for name in found}
        return {name: value for name, value in made.items() if value is not None}

    def inner(self, key: str) -> Plain | None:
        """An object to read on in, None where there is none."""
        value = self.data.get(key)
        return None if value is None else Plain(value, self.path(key))

    def each(self, key: str) -> Iterator[Plain]:
        """A list of objects to read on in."""
        for number, item in enumerate(self._list(key)):
            yield Plain(item, f"{self.path(key)}[{number}]")

    def members(self, key: str) -> Iterator[tuple[str, Plain]]:
        """An object of objects to read on in."""
        for name, member in self.mapping(key).items():
            yield name, Plain(member, f"{self.path(key)}.{name}")

    def fields_of(self, kind: type[Any]) -> dict[str, Any]:
        """What a dataclass takes as it is: its texts, numbers, flags, and mappings of those."""
        if kind not in _KNOWN:
            _KNOWN[kind] = {
                field.name: _READERS[str(field.type)]
                for field in fields(kind)
                if str(field.type) in _READERS
            }
        return {name: read(self, name) for name, read in _KNOWN[kind].items()}

    def _list(self, key: str) -> list[Any]:
        value = self.data.get(key)
        if value is None:
            return []
        if not isinstance(value, list | tuple):
            raise self.wrong(key, "a list")
        return list(value)


# By the annotation as the dataclass writes it; modules of fleet keep annotations as text.
_READERS: dict[str, Callable[[Plain, str], Any]] = {
    "str": Plain.text,
    "bool | None": Plain.flag,
    "float | None": Plain.number,
    "int | None": Plain.count,
    "tuple[str, ...]": Plain.texts,
    "Mapping[str, str]": Plain.words,
    "Mapping[str, float]": Plain.numbers,
    "Mapping[str, Any]": Plain.mapping,
}
_KNOWN: dict[type[Any], dict[str, Callable[[Plain, str], Any]]] = {}  # readers of each class
