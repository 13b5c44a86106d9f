"""How results and errors look: tables on a terminal, plain lines in pipes and files, JSON for
programs, one error at the end.
"""

from __future__ import annotations

import itertools
import json
import os
import re
import sys
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from threading import Thread
from typing import TYPE_CHECKING, TextIO

import typer

from fleet.cli.columns import TableLines, laid_out
from fleet.cli.hints import command_spans, completed, completed_all
from fleet.cli.markup import escape, plain
from fleet.model.errors import FleetError
from fleet.model.masking import masked_data, revealed
from fleet.model.secret import Secret
from fleet.model.text import harmless, harmless_json

if TYPE_CHECKING:
    from rich.console import Console
    from rich.text import Text

    console: Console
    errors: Console

_MOST_HANG = 24
_HANGS = re.compile(r" *(?:\S )?(?:[\w-]+ {2,})*")  # what stands before the words of a line
_COPIED = re.compile(
    r"`[^`]*`|(?<!\S)(?:sudo|ssh|adb|apt|pip|python3|uvx?|journalctl|cat|sed) [^;`(]*"
)
advising = True  # off where a command of several steps says at its end what to do next
shape = ""  # of what is shown, as `-o` wants it
_screens = sys.modules[__name__]  # where `console` and `errors` are made when they are looked up


def __getattr__(name: str) -> Console:
    """`console` and `errors` with the first words for people: rich takes 25 ms to start."""
    if name not in {"console", "errors"}:
        raise AttributeError(name)
    from rich.console import Console  # noqa: PLC0415

    people = name == "errors"
    made = Console(stderr=people, highlight=False, emoji=False, soft_wrap=people)
    kept: Console = globals().setdefault(name, made)
    return kept


def on_terminal() -> bool:
    """Whether words for people go to a terminal; rich is asked only where that may be."""
    return not _plain(sys.stderr) and _screens.errors.is_terminal


def _plain(stream: TextIO | None) -> bool:
    """Whether this is surely no terminal: then nothing is drawn, and rich is not needed. None
    for a stream that was closed before we began.
    """
    forced = os.environ.get("FORCE_COLOR") or os.environ.get("TTY_COMPATIBLE")
    return stream is None or (not forced and not stream.isatty())


def ready() -> None:
    """Load what shows tables and colours while devices are waited for."""
    Thread(target=load, daemon=True, name="fleet-rich").start()


def load() -> None:
    """What shows tables and colours, where they will be shown."""
    if _plain(sys.stdout):
        return
    import rich.console  # noqa: F401, PLC0415


def width() -> int | None:
    """Columns that a table gets: those of COLUMNS, else of the terminal; None for `-o wide`, and
    where tables go to a file or a pipe, which have no end.
    """
    asked = os.environ.get("COLUMNS", "")
    if shape == "wide":
        return None
    if asked.isdecimal() and int(asked):
        return int(asked)
    return None if _plain(sys.stdout) else _screens.console.width


def _as_json(value: object) -> object:
    if isinstance(value, Path | Secret):
        return str(value)
    raise TypeError(f"{type(value).__name__} has no JSON form")


def emit_json(value: object, *, shows_secret: bool = False) -> None:
    """One JSON document on standard output; `shows_secret` where to show one is its purpose."""
    _echo(value, indent=2, plain=shows_secret)


def answer(value: object, text: str, *, as_json: bool) -> None:
    """The result of a command: a JSON document, or one line for people."""
    if as_json:
        emit_json(value)
    else:
        say(text)


def emit_line(value: object) -> None:
    """One JSON document on one line, for streams of events."""
    _echo(value)


def _echo(value: object, indent: int | None = None, *, plain: bool = False) -> None:
    value = completed_all(value)
    text = json.dumps(value, indent=indent, default=_as_json, ensure_ascii=False)
    if revealed() and not plain:
        text = json.dumps(masked_data(json.loads(text)), indent=indent, ensure_ascii=False)
    if shape == "yaml":
        from fleet.config.scaffold.texts import as_yaml  # noqa: PLC0415 - for `-o yaml` only

        text = "---\n" * (indent is None) + as_yaml(json.loads(text))
    else:
        text = harmless_json(text)
    typer.echo(text)


def table(
    title: str,
    columns: Sequence[str],
    rows: Iterable[Sequence[object]],
    drops: Sequence[str] = (),
) -> None:
    """A table; None is shown as `unknown`. Without a terminal and COLUMNS: columns with `|` between
    them.

    `drops`: columns that make room on a narrow terminal, the first one first.
    """
    texts = [["unknown" if cell is None else harmless(str(cell)) for cell in row] for row in rows]
    if "" in columns and texts:  # without a name and without a word it would be a hole
        full = [bool(head) or any(row[n] for row in texts) for n, head in enumerate(columns)]
        columns, *texts = [list(itertools.compress(row, full)) for row in (columns, *texts)]
    if shape == "name":
        literal("\n".join(dict.fromkeys(row[0] for row in texts)))
    elif _plain(sys.stdout) and width() is None:
        literal("\n".join((title, *_lines([list(columns), *texts]))))
    else:
        _draw(laid_out(title, columns, texts, room=width(), drops=drops, rule=drawn("─", "-")))


def _draw(layout: TableLines) -> None:
    styled = [
        (layout.title, "bold"),
        (layout.heads, "bold"),
        (layout.rows, ""),
        (layout.below, "dim"),
    ]
    for lines, style in styled:
        for line in lines:
            text = drawn(line, line.replace("…", "~"))
            if _plain(sys.stdout):
                literal(text)
                continue
            _screens.console.print(text, markup=False, emoji=False, soft_wrap=True, style=style)


def drawn(text: str, plain: str) -> str:
    """The text, or the plain one where the terminal cannot show it."""
    if os.environ.get("LC_ALL") in {"C", "POSIX"}:
        return plain
    try:
        text.encode(getattr(sys.stdout, "encoding", None) or "utf-8")
    except UnicodeEncodeError:
        return plain
    return text


def _lines(rows: Sequence[Sequence[str]]) -> Iterator[str]:
    rows = [[cell.replace("\n", " ") for cell in row] for row in rows]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for number, row in enumerate(rows):
        yield " | ".join(map(str.ljust, row, widths)).rstrip()
        if number == 0:
            yield "-+-".join("-" * width for width in widths)


def shown(value: object) -> str:
    """A value as markup that only shows it: much of what is printed comes from devices."""
    return escape(harmless(str(value)))


def say(text: str, style: str = "") -> None:
    """A line of the result, never wrapped, never read as markup, without escape sequences; nothing
    beside names that were asked for.
    """
    if shape == "name":
        return
    if _plain(sys.stdout):
        literal(harmless(text))
        return
    _screens.console.print(harmless(text), markup=False, soft_wrap=True, style=style)


def marked(text: str) -> None:
    """A line with tags of rich, never wrapped."""
    if _plain(sys.stdout):
        literal(plain(text))
        return
    _screens.console.print(text, markup=True, emoji=False, soft_wrap=True)


def prose(text: str, style: str = "", *, markup: bool = False) -> None:
    """As `say`, for words alone: on a terminal folded between them, further lines hang."""
    if shape == "name" or _plain(sys.stdout):
        if markup:
            marked(text)
        else:
            say(text)
        return
    from rich.text import Text  # noqa: PLC0415 - see above

    made = Text.from_markup(text, emoji=False) if markup else Text(harmless(text), style)
    folded(_screens.console, made)


def folded(screen: Console, text: Text) -> None:
    """No word and no command is broken; one that is longer than a line stands alone, so that what
    is copied from it has no line ends of ours in it.
    """
    found = _HANGS.match(text.plain)
    hang = min(len(found[0]) if found else 0, _MOST_HANG)
    room, begin, breaks = max(screen.width - hang, 20), 0, []
    for start, end in _units(text.plain[hang:]):
        if end - begin > room and start > begin:
            begin = start
            breaks.append(begin)
    for number, line in enumerate(text[hang:].divide(breaks)):
        line.rstrip()
        screen.print(" " * hang if number else text[:hang], line, sep="", soft_wrap=True)


def _units(text: str) -> list[tuple[int, int]]:
    """Where the words begin and end; a command is one word, with the mark behind it."""
    whole = [*command_spans(text), *(found.span() for found in _COPIED.finditer(text))]
    units: list[tuple[int, int]] = []
    for word in re.finditer(r"\S+", text):
        if any(start < word.start() < end for start, end in whole):
            units[-1] = units[-1][0], word.end()
        else:
            units.append(word.span())
    return units


def literal(text: str) -> None:
    """Every character as it is, tabs too: what a person copies, of our own making."""
    typer.echo(text)


def note(text: str) -> None:
    """A remark for people, on standard error so that pipes stay clean."""
    _remark("", "", text)


def advise(text: str) -> None:
    """A remark that names commands to type: with the options that were given."""
    if advising:
        note(completed(text))


def show_error(error: FleetError) -> None:
    """`error:` with position and cause, `try:` with the cure."""
    _remark("error:", "bold red", str(error))
    if error.hint or error.cure:
        _remark("  try:", "bold", completed(error.hint or error.cure))


def _remark(word: str, style: str, text: str) -> None:
    if _plain(sys.stderr):
        typer.echo(f"{word} {harmless(text)}" if word else harmless(text), err=True)
        return
    from rich.text import Text  # noqa: PLC0415 - see above

    folded(_screens.errors, Text.assemble((word, style), " " if word else "", harmless(text)))
