"""All that is wrong with a file, each with its place and cure."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Sequence
from typing import NoReturn

from fleet.config.yaml_words import printable
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

    def take(self, error: InputError, position: Position) -> None:
        """Remember an error of another file; `position` is for one that has no place."""
        error.position = error.position or position
        self._found.append(error)

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
            more = f"and {len(others)} more; to list all: {all_by}"
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
    return suggestion(name, known) or f"use one of: {', '.join(list(known)[:_LISTED])}"
