"""Errors of files that people write: in plain words, each with its position and cure."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Sequence
from pathlib import Path

import yaml

from fleet.model.errors import InputError, Position, reason

_INI_SECTION = re.compile(r"^\s*\[[^\]\s]+\]\s*$", re.MULTILINE)

# A part of PyYAML's problem or context, its meaning, and the cure.
_WORDS: tuple[tuple[str, str, str], ...] = (
    (
        "mapping values are not allowed",
        "a line contains a second `: `, or is indented too far",
        "put text that contains `: ` in quotes, and indent keys of one level equally",
    ),
    (
        "while scanning a quoted scalar",
        "a quote is opened but not closed",
        "close the quote, or put the whole text in the other kind of quotes",
    ),
    (
        "found unknown escape character",
        "a backslash in double quotes begins an unknown escape",
        "use single quotes, where a backslash is an ordinary character",
    ),
    ("while parsing a flow", "a { or [ is opened but not closed", "add the } or ]"),
    (
        "expected <block end>",
        "the indentation does not match the lines above, or text follows a closing quote",
        "indent keys of one level equally; quote the whole text",
    ),
    (
        "could not find expected ':'",
        "a key has no colon, or a text continues on the next line",
        "write `key: value`; quote long text or use `|`",
    ),
    (
        "that cannot start any token",
        "a value cannot start with this character",
        "put the value in quotes",
    ),
    (
        "special characters are not allowed",
        "the text contains a control character",
        "remove the control character",
    ),
    ("could not determine a constructor", "an unknown tag", "remove the tag"),
)


_LONGEST = 400  # a longer message would show a value, not a problem


def printable(text: str) -> str:
    """Return text for a terminal: escape control characters, and cut a very long text."""
    shown = "".join(
        each if each.isprintable() else each.encode("unicode_escape").decode() for each in text
    )
    return shown if len(shown) <= _LONGEST else f"{shown[:_LONGEST]}..."


def plain_words(
    cause: yaml.YAMLError, text: str, path: Path, error: type[InputError]
) -> InputError:
    """Return the error for a syntax problem. It does not quote lines, because they may contain
    secrets.
    """
    if isinstance(cause, yaml.reader.ReaderError):
        line, column = _place(text, int(cause.position))
        problem = str(cause.reason)
    else:
        problem = f"{getattr(cause, 'context', None) or ''} {getattr(cause, 'problem', '')}"
        mark = getattr(cause, "problem_mark", None) or getattr(cause, "context_mark", None)
        if "quoted scalar" in problem and "escape" not in problem:
            mark = getattr(cause, "context_mark", None) or mark
        line, column = (mark.line + 1, mark.column + 1) if mark else (0, 0)
    tab = _tab(text, line)
    if tab:
        return error(
            "a tab is used for indentation; YAML allows only spaces",
            position=Position(path, *tab),
            hint=f"replace tabs by spaces: expand -t 2 {path}",
        )
    if _INI_SECTION.search(text):
        return error(
            "the file is not YAML, but looks like an INI inventory",
            position=Position(path, line, column),
            hint="convert it: ansible-inventory -i FILE --list --yaml",
        )
    for piece, meaning, cure in _WORDS:
        if piece in problem:
            return error(
                f"not valid YAML: {meaning}", position=Position(path, line, column), hint=cure
            )
    return error(
        f"not valid YAML: {problem.strip()}",
        position=Position(path, line, column),
        hint="check quotes, colons and indentation of this line and the one above",
    )


def _place(text: str, offset: int) -> tuple[int, int]:
    before = text[:offset]
    return before.count("\n") + 1, offset - before.rfind("\n")


def _tab(text: str, line: int) -> tuple[int, int] | None:
    """Return line and column of a tab in the indentation of `line` or of a line next to it, or
    None.
    """
    lines = text.split("\n")
    for number in (line, line - 1, line + 1):
        if 1 <= number <= len(lines):
            content = lines[number - 1]
            indent = content[: len(content) - len(content.lstrip())]
            if "\t" in indent and content.strip():
                return number, indent.index("\t") + 1
    return None


def missing_file(path: Path, cause: OSError, error: type[InputError]) -> InputError:
    """Return the error for a file that cannot be read, with a similar name if there is one."""
    if isinstance(cause, FileNotFoundError):
        near = near_names(path)
        hint = f"did you mean {near[0]}?" if near else f"correct the path; ls {path.parent}"
        return error(f"the file {path} does not exist", hint=hint)
    if isinstance(cause, IsADirectoryError):
        return error(f"{path} is a folder, not a file", hint=f"name a file: ls {path}")
    return error(
        f"cannot read the file {path}: {reason(cause)}",
        hint=f"check the path and its permissions: ls -l {path}",
    )


def near_hint(path: Path) -> str:
    """Return the cure for a missing file: a similar name, else the command to list its folder."""
    if path.is_dir():
        return f"name a file of this folder: ls {path}"
    near = near_names(path)
    return f"did you mean {near[0].name}?" if near else f"correct the path; ls {path.parent}"


def near_names(path: Path) -> list[Path]:
    """Return the paths in the same folder with similar names, the most similar first."""
    try:
        names = [item.name for item in path.parent.iterdir()]
    except OSError:
        return []
    return [path.parent / name for name in difflib.get_close_matches(path.name, names, n=3)]


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
        return tuple(sorted(self._errors, key=_order))

    def raise_first(self, all_by: str = "") -> None:
        """Raise the first error with the others as `others`; do nothing without errors.

        With `all_by`, a command that lists all errors, only their number is raised.
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
        text = f"{first.message} ({more})"
        error = type(first)(text, position=first.position, hint=first.hint)
        error.others = () if all_by else others
        raise error


def _order(error: InputError) -> tuple[int, int]:
    return (error.position.line, error.position.column) if error.position else (0, 0)


def suggestion(name: str, known: Iterable[str], *, cutoff: float = 0.6) -> str:
    """Return `did you mean 'port'?`, or "" if no name is similar."""
    names = {each.lower(): each for each in known}
    near = difflib.get_close_matches(name.lower(), names, n=1, cutoff=cutoff)
    return f"did you mean '{names[near[0]]}'?" if near else ""


def suggest_or_list(name: str, known: Sequence[str]) -> str:
    """Return a hint with the similar name, or with the list of known names."""
    return suggestion(name, known) or f"use one of: {', '.join(list(known)[:_LISTED])}"
