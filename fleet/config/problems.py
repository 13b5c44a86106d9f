"""Errors of one file, each with its position and cure."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Sequence
from typing import NoReturn

from fleet.config.yaml_words import printable
from fleet.model.errors import InputError, Position

SECRET_KEYS = frozenset({"password", "become_password", "key_passphrase"})
_LISTED = 40  # a longer list of names would only confuse


class Problems:
    """A collection of the errors of one file. `kind` is the exception class for raising them."""

    def __init__(self, kind: type[InputError]) -> None:
        self._kind = kind
        self._errors: list[InputError] = []

    def add(self, message: str, position: Position, hint: str = "") -> None:
        """Add an error. The same message at the same position is added once."""
        message, hint = printable(message), printable(hint)
        if not any(e.message == message and e.position == position for e in self._errors):
            self._errors.append(self._kind(message, position=position, hint=hint))

    def take(self, error: InputError, position: Position) -> None:
        """Add an error of another file; use `position` if the error has no position of its own."""
        error.position = error.position or position
        self._errors.append(error)

    @property
    def errors(self) -> tuple[InputError, ...]:
        """The errors, sorted by their position in the file."""
        return tuple(sorted(self._errors, key=_place))

    def raise_first(self, all_by: str = "") -> None:
        """Raise the first error with the number of the others; do nothing without errors.

        `all_by` is a command that lists all errors.
        """
        errors = self.errors
        if not errors:
            return
        first, others = errors[0], errors[1:]
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
    """Return `did you mean 'port'?`, or "" if no name is similar."""
    names = {each.lower(): each for each in known}
    near = difflib.get_close_matches(name.lower(), names, n=1, cutoff=cutoff)
    return f"did you mean '{names[near[0]]}'?" if near else ""


def suggest_or_list(name: str, known: Sequence[str]) -> str:
    """Return a hint with the similar name, or with the list of known names."""
    return suggestion(name, known) or f"use one of: {', '.join(list(known)[:_LISTED])}"
