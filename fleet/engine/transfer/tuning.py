"""How bulk data is sent, as words: `carrier=ssh`, `relay`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from fleet.engine.transfer.context import CARRIERS, TransferOptions
from fleet.engine.transfer.limits import parse_rate
from fleet.model.errors import InputError

COMPRESS = ("auto", "always", "never")


def _count(text: str) -> int:
    if not text.isascii() or not text.isdigit() or int(text) < 1:
        raise InputError(
            f"'{text}' is not a whole number of at least 1", hint="write --tune per-hub=2"
        )
    return int(text)


def _of(words: tuple[str, ...]) -> Callable[[str], str]:
    def read(text: str) -> str:
        if text not in words:
            raise InputError(
                f"'{text}' is not a known value", hint=f"use one of: {', '.join(words)}"
            )
        return text

    return read


def _yes(text: str) -> bool:
    return text != "no"


_READ: Mapping[str, Callable[[str], Any]] = {
    "carrier": _of(CARRIERS),
    "bandwidth": parse_rate,
    "per-hub": _count,
    "compress": _of(COMPRESS),
    "whole": _yes,
    "relay": _yes,
}


def options_of(words: Iterable[str]) -> TransferOptions:
    """The options as one, the last word of a name wins. Raises InputError."""
    found = {}
    for text in words:
        name, _, value = text.partition("=")
        if name not in _READ:
            raise InputError(
                f"--tune has no setting '{name}'", hint=f"use one of: {', '.join(_READ)}"
            )
        try:
            found[name.replace("-", "_")] = _READ[name](value)
        except InputError as error:
            raise InputError(f"--tune {name}: {error.message}", hint=error.hint) from error
    return TransferOptions(**found)
