"""Commands in hints, completed with the options of this command line.

A hint is written next to its error, which does not know the inventory file: `fleet trust evk-07`.
This module completes it to a command that works when it is pasted. Values that the project supplies
are left out. A command in a text ends with the text and at `;`, `(`, `|`, `&` and a backtick. It
also ends at a comma, colon or full stop before a blank.
"""

from __future__ import annotations

import re
import shlex
import sys
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from fleet.cli import project

_WORD = r"""(?:'[^']*'|"[^"]*"|(?<=\s)<[^>]*>|[^\s`;()'"<>|&,:.]|[,:](?=\S)|\.(?=\S)|(?<=\s)\.)+"""
_COMMAND = re.compile(rf"(?<![\w./-])fleet((?: {_WORD})+)")
_PLACE = re.compile(r"<[^>]*>")
# Options that the next command repeats, in addition to the ones that it requires.
_CARRIED = frozenset({"inventory", "limit", "store", "locked", "frozen", "lock_file", "folder"})
_SAYS = {  # parameters with the same meaning, or that exclude it
    "inventory": {"inventory", "file"},
    "limit": {"limit", "host"},
    "locked": {"locked", "frozen"},
    "frozen": {"locked", "frozen"},
}
_ALONE = {"resume", "runs"}  # the journal of the run has the other values
_TAKES_LOCK = {"locked", "frozen", "write_lock", "drift"}  # --lock-file needs one
_ONE_MEANING = frozenset({"inventory", "playbook"})  # option or argument
_PLACEHOLDER = " -i INVENTORY"  # as the texts of causes have it
_known: list[str] = []
_parsers: dict[str, Callable[[], Any]] = {}


def parse_with(parsers: Mapping[str, Callable[[], Any]]) -> None:
    """Register the commands by their first word, with the functions that build their parsers."""
    _parsers.update(parsers)


def know(*words: str) -> None:
    """Register the command that this one continues: `--resume` reads a deploy from the journal."""
    _known[:] = words


def completed(text: str) -> str:
    """Return the text with each of its fleet commands completed. Its options stay unchanged."""
    return _COMMAND.sub(_whole, text) if "fleet " in text else text


def commands_in(text: str) -> list[str]:
    """Return every fleet command in a text, in its typed form."""
    return [text[start:end] for start, end in command_spans(text)]


def command_spans(text: str) -> list[tuple[int, int]]:
    """Return where each fleet command in a text begins and ends."""
    return [m.span() for m in _COMMAND.finditer(text) if _leaf(_split(m[1])) is not None]


def completed_all(value: object) -> object:
    """Return JSON data with every `hint` completed."""
    if isinstance(value, dict):
        return {
            key: completed(item) if key == "hint" and isinstance(item, str) else completed_all(item)
            for key, item in value.items()
        }
    if isinstance(value, list | tuple):
        return [completed_all(item) for item in value]
    return value


def _whole(match: re.Match[str]) -> str:
    typed = _split(match[1].replace(_PLACEHOLDER, ""))
    leaf = _leaf(typed)
    if leaf is None or not {"-h", "--help"}.isdisjoint(typed):
        return match[0]
    command, rest = leaf
    has = {param.name for param, _ in _typed(command, rest)}
    asks = _PLACEHOLDER in match[0]
    given = list(_given())
    added: list[str] = []
    for param in command.params:
        needed = param.required or param.envvar
        if not (needed or param.name in _CARRIED) or _needless(param, command, has):
            continue
        values = next((values for other, values in given if _same(param, other)), [])
        if not values and (needed or (asks and param.name == "inventory")):
            values = project.to_paste(param.name)
        if values:
            has.add(param.name)
        flag = [min(param.opts, key=len)] if param.opts[0].startswith("-") else []
        if getattr(param, "is_flag", False):
            added += flag if values else []
        else:
            added += [word for value in values for word in (*flag, shlex.quote(value))]
    head, dashes, words = match[0].replace(_PLACEHOLDER, "").partition(" -- ")
    return " ".join([head, *added]) + dashes + words  # no options after the dashes


def _needless(param: Any, command: Any, has: set[str]) -> bool:  # noqa: ANN401
    """Return whether the command already has this value with these parameters, or would
    refuse it.
    """
    if not has.isdisjoint(_ALONE):
        return True
    every = {other.name for other in command.params}
    if param.name == "limit" and "file" in every:  # the command lists the names for a limit
        return True
    if param.name == "lock_file" and every & _TAKES_LOCK and not has & _TAKES_LOCK:
        return True
    return not has.isdisjoint(_SAYS.get(param.name, {param.name}))


def _same(param: Any, other: Any) -> bool:  # noqa: ANN401 - typer contains its own click
    return param.name == other.name and (param.opts == other.opts or param.name in _ONE_MEANING)


def _given() -> Iterator[tuple[Any, list[str]]]:
    for words in (sys.argv[1:], _known):
        leaf = _leaf(words)
        if leaf is not None:
            yield from _typed(*leaf)


def _split(text: str) -> list[str]:
    try:
        return shlex.split(_PLACE.sub("PLACE", text))
    except ValueError:
        return []


def _leaf(words: list[str]) -> tuple[Any, list[str]] | None:
    """Return the command at the start of the words, and the other words; None if it is not
    fleet's.
    """
    if not words or words[0] not in _parsers:
        return None
    command: Any = _parsers[words[0]]()
    while (children := getattr(command, "commands", None)) is not None:
        if not words or words[0] not in children:
            return None
        command, words = children[words[0]], words[1:]
    return command, words


def _typed(command: Any, words: list[str]) -> Iterator[tuple[Any, list[str]]]:  # noqa: ANN401
    """Yield the parameters in the words, with their values."""
    context = command.make_context(command.name, list(words), resilient_parsing=True)
    for param in command.params:
        source = context.get_parameter_source(param.name)
        if source is not None and source.name == "COMMANDLINE":
            value = context.params.get(param.name)
            every = value if isinstance(value, list | tuple) else [value]
            yield param, [str(item) for item in every if item is not None]
