"""Single values of files that people write: marks and types for the Structs that `shape` reads, and
messages and cures for wrong values.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any

from fleet.config.problems import SECRET_KEYS, suggestion
from fleet.config.yamlpos import Vault, describe
from fleet.model.deadline import parse_duration
from fleet.model.errors import InputError

LONGEST_SECONDS = 7 * 24 * 3600.0  # a longer duration misses its unit or is infinite
_LIKE = "write it like 90s, 5m or 1h"

DURATION_SCHEMA = {
    "anyOf": [
        {"type": "number", "exclusiveMinimum": 0, "maximum": LONGEST_SECONDS},
        {"type": "string", "pattern": r"^\s*\d+(\.\d+)?\s*(ms|s|m|h)?\s*$"},
    ]
}


class Doc(str):
    """The description of a key, for its JSON Schema."""

    __slots__ = ()


@dataclass(frozen=True)
class Before:
    """A function that converts the raw value and raises InputError. If `final`, no further check
    follows.
    """

    read: Callable[[Any], Any]
    final: bool = False


@dataclass(frozen=True)
class After:
    """A function that checks the converted value. It raises InputError."""

    check: Callable[[Any], Any]


@dataclass(frozen=True, eq=False)  # part of a type, so it needs a hash
class Schema:
    """The JSON Schema of a value, which replaces the schema of its type."""

    body: Mapping[str, Any]


def no_template(value: str) -> str:
    """Return the value. Raises InputError for a Jinja template."""
    if "{{" in value or "{%" in value:
        raise InputError(
            "the value contains a template ({{ ... }}), which fleet does not evaluate",
            hint="write the value without a template",
        )
    return value


@dataclass(frozen=True)
class Pattern:
    """A regular expression for a whole text that is no template; `shown` is False for secrets."""

    pattern: str
    what: str
    hint: str
    shown: bool = True

    @property
    def schema(self) -> dict[str, str]:
        """The JSON Schema of the pattern."""
        return {"type": "string", "pattern": f"^(?:{self.pattern})$"}

    def check(self, value: str) -> str:
        """Return the value. Raises InputError if it does not match."""
        no_template(value)
        if not re.fullmatch(self.pattern, value):
            shown = f"'{value}'" if self.shown else "the value"
            raise InputError(f"{shown} is not a valid {self.what}", hint=self.hint)
        return value


@dataclass(frozen=True)
class Range:
    """The minimum and maximum of a number, and the cure for a number outside them."""

    ge: int | float | None
    le: int | float | None
    hint: str = ""


FILE_PATH = Pattern(r"[^\x00-\x1f]+", "path", "write a path; ~ and relative paths are fine")
TARGET = Pattern(
    r"(aarch64|arm64x|x86_64|hexagon)-[a-z0-9][a-z0-9._-]*",
    "QAIRT target name",
    "write it like aarch64-oe-linux-gcc11.2, aarch64-android or x86_64-linux-clang",
)


def seconds_of(value: object) -> float:
    """Return the seconds of a duration that a person wrote. Raises InputError."""
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        raise InputError(f"the value must be a duration, not {describe(value)}", hint=_LIKE)
    try:
        seconds = parse_duration(value)
    except InputError as error:
        raise InputError(error.message, hint=error.hint or _LIKE) from error
    if not 0 < seconds <= LONGEST_SECONDS:
        raise InputError(f"the duration {value} is not between 0 and 7 days", hint=_LIKE)
    return seconds


_BOUNDS: Mapping[str, tuple[str, Callable[[Any, Any], bool]]] = {
    "ge": ("at least", operator.ge),
    "gt": ("more than", operator.gt),
    "le": ("at most", operator.le),
    "lt": ("less than", operator.lt),
}


def beyond(key: str, value: Any, limits: object) -> tuple[str, str] | None:  # noqa: ANN401
    """Return message and cure for a value outside the limits of `Range` or `msgspec.Meta`, else
    None.
    """
    least = getattr(limits, "min_length", None)
    if least is not None and len(value) < least:
        return f"'{key}' is empty", f"write at least {least} of them"
    for name, (sign, holds) in _BOUNDS.items():
        bound = getattr(limits, name, None)
        if bound is not None and not holds(value, bound):
            cure = getattr(limits, "hint", f"write a number that is {sign} {bound}")
            return f"'{key}' must be {sign} {bound}, not {value}", cure
    return None


def unlike(key: str, value: object, wanted: str, text: str) -> tuple[str, str]:
    """Return message and cure for a value of another kind than `wanted` (`text`, `a list`, ...).

    `text` is the value in the file. Message and cure never contain the value of a secret.
    """
    if isinstance(value, Vault):
        return (
            f"'{key}' is encrypted by ansible-vault, which fleet cannot decrypt",
            "export it as an environment variable and write env:NAME",
        )
    if value is None:
        return f"'{key}' has no value", "write a value, or remove the key"
    if wanted == "text" and isinstance(value, bool | int | float):
        shown = "..." if key in SECRET_KEYS else text or value
        return (
            f"'{key}' must be text, and YAML reads this as {describe(value)}",
            f'quote it: "{shown}"',
        )
    return f"'{key}' must be {wanted}, not {describe(value)}", _write(key, value, wanted)


def _write(key: str, value: object, wanted: str) -> str:
    if wanted == "a mapping":
        return f"write lines with a colon below `{key}:`"
    if wanted.startswith("a list"):
        single = isinstance(value, str | int | float) and not isinstance(value, bool)
        return f"write [{value}]" if single else "write one line with `- ` for each entry"
    if wanted == "text":
        return f"write a text after `{key}:`"
    if isinstance(value, str) and re.fullmatch(r"\s*([-+\d.]+|true|false)\s*", value):
        return "remove the quotes"
    return f"write {wanted}{_EXAMPLES.get(wanted, '')}"


_EXAMPLES = {"a whole number": ", like 3", "a number": ", like 0.5"}


def no_word(key: str, value: str, words: Sequence[str]) -> tuple[str, str]:
    """Return message and cure for a word that is not in `words`."""
    hint = suggestion(value, words) or f"use one of: {', '.join(words)}"
    return f"'{value}' is not a value of '{key}'", hint


Duration = Annotated[float, Before(seconds_of), Schema(DURATION_SCHEMA)]
FilePath = Annotated[str, FILE_PATH]
