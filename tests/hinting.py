"""What any test provokes for a screen: hints can be typed, tables fit 80 columns.

Hints are taken where they are made: of each error that a module of fleet raises, and of each
command that is completed for a screen. After the test each is given to the real parser, and each
table is laid out.
"""

from __future__ import annotations

import functools
import re
import shlex
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from fleet.cli import hints, output
from fleet.cli.output import laid_out
from fleet.model import errors
from fleet.model.text import harmless

_provoked: dict[str, None] = {}
_parsed: dict[str, str] = {}
_tables: list[tuple[str, list[str], list[list[str]], list[str]]] = []
COLUMNS, ROWS = 80, 50


def listen() -> None:
    """From now on, in this process."""
    init, whole = errors.FleetError.__init__, hints._whole

    @functools.wraps(init)
    def made(self: errors.FleetError, *args: Any, **kwargs: Any) -> None:
        init(self, *args, **kwargs)
        frame = sys._getframe(1)
        while frame.f_back and frame.f_globals["__name__"] == errors.__name__:
            frame = frame.f_back
        if str(frame.f_globals["__name__"]).startswith("fleet.") and "fleet " in self.hint:
            _provoked[self.hint] = None

    def completed(match: re.Match[str]) -> str:
        text = whole(match)
        _provoked[text] = None
        return text

    table = output.table

    def shown(
        title: str,
        columns: Sequence[str],
        rows: Iterable[Sequence[object]],
        drops: Sequence[str] = (),
    ) -> None:
        kept = [list(row) for row in rows]
        texts = [["unknown" if c is None else harmless(str(c)) for c in row] for row in kept[:ROWS]]
        _tables.append((title, list(columns), texts, list(drops)))
        table(title, columns, kept, drops)

    output.table = shown
    errors.FleetError.__init__ = made  # type: ignore[method-assign]
    hints._whole = completed


def wrong() -> list[str]:
    """What was provoked since the last call and cannot be typed, with the parser's words."""
    texts = list(_provoked)
    found = [said for text in texts for said in refusals(text)]
    _provoked.clear()
    for title, columns, rows, drops in _tables:
        made = laid_out(title, columns, rows, room=COLUMNS, drops=drops)
        lines = (*made.title, *made.heads, *made.rows, *made.below)
        found += [f"wider than {COLUMNS}: {line}" for line in lines if len(line) > COLUMNS]
    _tables.clear()
    return found


def refusals(text: str) -> Iterator[str]:
    """What the parser says of commands in a text that it does not take."""
    if text not in _parsed:
        with _bare():
            said = []
            for command in hints.commands_in(hints.completed(text)):
                try:
                    parsed(command)
                except Exception as error:  # noqa: BLE001 - of the parser, of many kinds
                    said.append(f"{command}: {error!r}, in the hint '{text}'")
        _parsed[text] = "\n".join(said)
    yield from filter(None, [_parsed[text]])


@contextmanager
def _bare() -> Iterator[None]:
    """A command line that gave nothing."""
    given, sys.argv = sys.argv, ["fleet"]
    known, hints._known[:] = list(hints._known), []
    try:
        yield
    finally:
        sys.argv, hints._known[:] = given, known


@functools.cache
def leaves() -> dict[str, Any]:
    """Every command by its words."""
    from tests.docs.tree import commands

    return dict(commands())


def parsed(command: str) -> dict[str, object]:
    """The parameters, as the real parser takes them. Raises where it refuses."""
    words = shlex.split(re.sub(r"<[^>]*>", "PLACE", command))[1:]
    name = next(" ".join(words[:n]) for n in (3, 2, 1) if " ".join(words[:n]) in leaves())
    words = words[len(name.split()) :]
    if words == ["-h"]:
        return {}
    leaf = leaves()[name]
    context = leaf.make_context(name, words)
    return {
        param.name: _plain(context.params[param.name])
        for param in leaf.params
        if context.get_parameter_source(param.name).name == "COMMANDLINE"
    }


def _plain(value: object) -> object:
    """Typer gives several values as a tuple and a path as text; from 0.29 on a list, a path."""
    if isinstance(value, tuple):
        return list(value)
    return str(value) if isinstance(value, Path) else value
