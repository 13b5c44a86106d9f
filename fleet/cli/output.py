"""The format of results and errors: tables on a terminal, plain lines in pipes and files, JSON for
programs, and one error at the end.
"""

from __future__ import annotations

import itertools
import json
import os
import re
import sys
import textwrap
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from threading import Thread
from typing import TYPE_CHECKING, TextIO

import typer

from fleet.cli.hints import command_spans, completed, completed_all
from fleet.model.errors import FleetError
from fleet.model.masking import masked_data, revealed
from fleet.model.plain import to_plain
from fleet.model.text import harmless, harmless_json

_TAG = re.compile(r"(\\*)(\[[a-z#/@][^\[]*?\])")


def escape(text: str) -> str:
    """Return the text with all tags escaped; a backslash at its end does not escape a following
    tag.
    """
    quoted = _TAG.sub(lambda match: f"{match[1] * 2}\\{match[2]}", text)
    ends = len(quoted) - len(quoted.rstrip("\\"))
    return quoted + "\\" if ends == 1 else quoted


def plain(text: str) -> str:
    """Return the text without its tags, as rich shows it."""
    parts, end = [], 0
    for match in _TAG.finditer(text):
        half, quoted = divmod(len(match[1]), 2)
        parts += [_words(text[end : match.start()]), "\\" * half, match[2] if quoted else ""]
        end = match.end()
    return "".join([*parts, _words(text[end:])])


def _words(text: str) -> str:
    return text.replace("\\[", "[")


# Tables that fit the terminal: words are not split, and dropped columns are listed.

GAP = "  "
PROSE = 24  # width of a cell with several words before another column is dropped for it
_LEAST = 4
_NAMED = 4  # up to so many rows, the values of dropped columns are listed
_ID = re.compile(r"\b(?=[a-f]*\d)[0-9a-f]{16}\b")  # the id of a release


@dataclass
class Column:
    """A column of a table. Columns with `drops` 1 are dropped first, then 2; 0 always stays."""

    head: str
    cells: list[str]
    drops: int
    width: int = 0

    @property
    def natural(self) -> int:
        """The width at which no line is wrapped."""
        return max(len(line) for text in (self.head, *self.cells) for line in text.split("\n"))

    @property
    def least(self) -> int:
        """The width at which no word is shortened. Cells of several words are wrapped at blanks."""
        widest = max(map(len, self.cells), default=0)
        return min(self.natural, max(self.tight, min(PROSE, widest)))

    @property
    def tight(self) -> int:
        """The width of the longest word."""
        return max((len(word) for word in " ".join((self.head, *self.cells)).split()), default=0)

    def says(self, row: int) -> str:
        """Return `QAIRT 2.51.0`, the head with a value."""
        return f"{self.head} {self.cells[row]}".strip()


@dataclass(frozen=True)
class TableLines:
    """The lines of a table: title, heads, rows, and the content of dropped columns."""

    title: list[str]
    heads: list[str]
    rows: list[str]
    below: list[str]


def laid_out(
    title: str,
    heads: Sequence[str],
    rows: Sequence[Sequence[str]],
    *,
    room: int | None,
    drops: Sequence[str] = (),
    rule: str = "─",
) -> TableLines:
    """Return the table in `room` columns. None means unlimited, and everything is shown unchanged.

    `drops` are the heads of columns that may be dropped, the first one first. A value that is the
    same in every row moves to the title.
    """
    if room is not None:
        rows = [[_ID.sub(lambda match: match[0][:8], cell) for cell in row] for row in rows]
    order = {head: number for number, head in enumerate(drops, 1)}
    cells = [list(column) for column in zip(*rows, strict=True)] or [[] for _ in heads]
    columns = [
        Column(head, column, order.get(head, 0)) for head, column in zip(heads, cells, strict=True)
    ]
    same = [c for c in columns if room and len(rows) > 1 and c.drops and len(set(c.cells)) == 1]
    if shared := ", ".join(column.says(0) for column in same if column.cells[0] not in {"", "-"}):
        title += f" ({shared})"
    kept, left = _kept([column for column in columns if column not in same], room)
    _widen(kept, room)
    return TableLines(
        wrapped(title, room),
        [
            *_columns_lines(kept, [column.head for column in kept]),
            GAP.join(rule * c.width for c in kept),
        ],
        [
            line
            for row in range(len(rows))
            for line in _columns_lines(kept, [c.cells[row] for c in kept])
        ],
        [line for text in _below(_names(columns), left) for line in wrapped(text, room)],
    )


def wrapped(text: str, room: int | None) -> list[str]:
    """Return the text in lines; a word that is longer than a line loses its middle."""
    if room is None or len(text) <= room:
        return [text]
    words = " ".join(middle(word, room) for word in text.split(" "))
    return textwrap.wrap(words, room, break_long_words=False, break_on_hyphens=False)


def middle(word: str, room: int) -> str:
    """Return the word without its middle (`evk-iq9…ack-a-07`), because names differ at
    their ends.
    """
    if len(word) <= room:
        return word
    tail = (room - 1) // 2
    return f"{word[: room - 1 - tail]}…{word[len(word) - tail :]}"


def _kept(columns: list[Column], room: int | None) -> tuple[list[Column], list[Column]]:
    """Return the columns that have room, and the dropped ones."""
    kept, left = list(columns), list[Column]()
    drops = sorted((column for column in columns if column.drops), key=lambda c: c.drops)
    while room is not None and drops and _width([column.least for column in kept]) > room:
        left.append(drops.pop(0))
        kept.remove(left[-1])
    return kept, left


def _width(widths: Sequence[int]) -> int:
    return sum(widths) + len(GAP) * (len(widths) - 1)


def _widen(columns: Sequence[Column], room: int | None) -> None:
    """Set the width of each column.

    First each column gets its least width. The rest goes to the narrowest columns that need more.
    """
    for column in columns:
        column.width = column.natural if room is None else column.least
    while room is not None and _width([column.width for column in columns]) > room:
        loose = [column for column in columns if column.width > column.tight]
        widest = max(loose or columns, key=lambda column: column.width)
        if widest.width <= _LEAST:
            break
        widest.width -= 1
    free = (room or 0) - _width([column.width for column in columns])
    for _ in range(free):
        wanting = [column for column in columns if column.width < column.natural]
        if wanting:
            min(wanting, key=lambda column: column.width).width += 1


def _columns_lines(columns: Sequence[Column], cells: Sequence[str]) -> Iterator[str]:
    """Yield one row of the table, in as many lines as its highest cell has."""
    parts = [
        [line for text in cell.split("\n") for line in wrapped(text, column.width)]
        for column, cell in zip(columns, cells, strict=True)
    ]
    for number in range(max(map(len, parts))):
        texts = [part[number] if number < len(part) else "" for part in parts]
        padded = map(str.ljust, texts, (column.width for column in columns))
        yield GAP.join(padded).rstrip()


def _names(columns: Sequence[Column]) -> list[str]:
    """Return the names of the rows: the first cells, or the first two if the first are not
    unique.
    """
    first = columns[0].cells
    if len(set(first)) == len(first):
        return first
    return [" ".join(cells) for cells in zip(*(c.cells for c in columns[:2]), strict=True)]


def _below(names: Sequence[str], left: Sequence[Column]) -> list[str]:
    """Return the content of dropped columns: the values of a few rows, else the heads."""
    rows = [", ".join(column.says(row) for column in left) for row in range(len(names))]
    if not any(rows):
        return []
    if len(set(rows)) == 1:
        return rows[:1]
    if len(rows) <= _NAMED:
        return [f"{name}: {text}" for name, text in zip(names, rows, strict=True)]
    return [f"no room for: {', '.join(column.head for column in left)} (-o wide shows them)"]


if TYPE_CHECKING:
    from rich.console import Console
    from rich.text import Text

    console: Console
    errors: Console

_MOST_HANG = 24
_HANGS = re.compile(r" *(?:\S )?(?:[\w-]+ {2,})*")  # what precedes the words of a line
_COPIED = re.compile(
    r"`[^`]*`|(?<!\S)(?:sudo|ssh|adb|apt|pip|python3|uvx?|journalctl|cat|sed) [^;`(]*"
)
advising = True  # off where a command of several steps says at its end what to do next
shape = ""  # of what is shown, as `-o` wants it
_interrupted: list[Callable[[], str]] = []
_screens = sys.modules[__name__]  # where `console` and `errors` are made when they are looked up


def __getattr__(name: str) -> Console:
    """Create `console` or `errors` on first use, because rich takes 25 ms to start."""
    if name not in {"console", "errors"}:
        raise AttributeError(name)
    from rich.console import Console  # noqa: PLC0415

    people = name == "errors"
    made = Console(stderr=people, highlight=False, emoji=False, soft_wrap=people)
    kept: Console = globals().setdefault(name, made)
    return kept


def on_terminal() -> bool:
    """Return whether messages for people go to a terminal. Loads rich only if that is possible."""
    return not _plain(sys.stderr) and _screens.errors.is_terminal


def _plain(stream: TextIO | None) -> bool:
    """Return whether this is surely no terminal, so that rich is not needed.

    `stream` is None if it was closed before the start of fleet.
    """
    forced = os.environ.get("FORCE_COLOR") or os.environ.get("TTY_COMPATIBLE")
    return stream is None or (not forced and not stream.isatty())


def ready() -> None:
    """Load rich in a thread, while fleet waits for devices."""
    Thread(target=load, daemon=True, name="fleet-rich").start()


def load() -> None:
    """Load rich, unless standard output is no terminal."""
    if _plain(sys.stdout):
        return
    import rich.console  # noqa: F401, PLC0415


def width() -> int | None:
    """Return the columns for a table: COLUMNS, else the width of the terminal.

    None means no limit: for `-o wide`, and for a file or a pipe.
    """
    asked = os.environ.get("COLUMNS", "")
    if shape == "wide":
        return None
    if asked.isdecimal() and int(asked):
        return int(asked)
    return None if _plain(sys.stdout) else _screens.console.width


def emit_json(value: object, *, shows_secret: bool = False) -> None:
    """Print one JSON document on standard output. `shows_secret` is for commands that show a
    secret.
    """
    _echo(value, indent=2, plain=shows_secret)


def answer(value: object, text: str, *, as_json: bool) -> None:
    """Print the result of a command: a JSON document, or one line for people."""
    if as_json:
        emit_json(value)
    else:
        say(text)


def emit_line(value: object) -> None:
    """Print one JSON document on one line, for streams of events."""
    _echo(value)


def _echo(value: object, indent: int | None = None, *, plain: bool = False) -> None:
    value = completed_all(to_plain(value))
    text = json.dumps(value, indent=indent, ensure_ascii=False)
    if revealed() and not plain:
        text = json.dumps(masked_data(json.loads(text)), indent=indent, ensure_ascii=False)
    if shape == "yaml":
        from fleet.config.scaffold import as_yaml  # noqa: PLC0415 - only for `-o yaml`

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
    """Print a table; None is shown as `unknown`. Without a terminal and COLUMNS, `|` separates
    columns.

    `drops` are the columns that may be dropped on a narrow terminal, the first one first.
    """
    texts = [["unknown" if cell is None else harmless(str(cell)) for cell in row] for row in rows]
    if "" in columns and texts:  # drop columns without head and values
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
            text = drawn(line, line.replace("…", "~").replace("×", "x"))
            if _plain(sys.stdout):
                literal(text)
                continue
            _screens.console.print(text, markup=False, emoji=False, soft_wrap=True, style=style)


def drawn(text: str, plain: str) -> str:
    """Return the text, or the plain one if the terminal cannot show it."""
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
    """Return a value as markup without tags, because much of the output comes from devices."""
    return escape(harmless(str(value)))


def say(text: str, style: str = "") -> None:
    """Print a line of the result, never wrapped, without markup and escape sequences.

    Prints nothing with `-o name`.
    """
    if shape == "name":
        return
    if _plain(sys.stdout):
        literal(harmless(text))
        return
    _screens.console.print(harmless(text), markup=False, soft_wrap=True, style=style)


def marked(text: str) -> None:
    """Print a line with tags of rich, never wrapped."""
    if _plain(sys.stdout):
        literal(plain(text))
        return
    _screens.console.print(text, markup=True, emoji=False, soft_wrap=True)


def prose(text: str, style: str = "", *, markup: bool = False) -> None:
    """Print text, or `markup` of rich; on a terminal, wrap it with a hanging indent."""
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
    """Print text in lines that break neither words nor commands.

    A word or command that is longer than a line has a line of its own, so that copying it gives no
    line ends.
    """
    prefix = _HANGS.match(text.plain)
    hang = min(len(prefix[0]) if prefix else 0, _MOST_HANG)
    room, begin, breaks = max(screen.width - hang, 20), 0, []
    for start, end in _units(text.plain[hang:]):
        if end - begin > room and start > begin:
            begin = start
            breaks.append(begin)
    for number, line in enumerate(text[hang:].divide(breaks)):
        line.rstrip()
        screen.print(" " * hang if number else text[:hang], line, sep="", soft_wrap=True)


def _units(text: str) -> list[tuple[int, int]]:
    """Return the start and end of each word. A command is one word, with the mark after it."""
    whole = [*command_spans(text), *(match.span() for match in _COPIED.finditer(text))]
    units: list[tuple[int, int]] = []
    for word in re.finditer(r"\S+", text):
        if any(start < word.start() < end for start, end in whole):
            units[-1] = units[-1][0], word.end()
        else:
            units.append(word.span())
    return units


def literal(text: str) -> None:
    """Print text of fleet's own, unchanged and with tabs, for people to copy."""
    typer.echo(text)


def note(text: str) -> None:
    """Print a remark for people on standard error, so that pipes stay clean."""
    _remark("", "", text)


def advise(text: str) -> None:
    """Print a remark that names commands, completed with the given options."""
    if advising:
        note(completed(text))


@contextmanager
def interruptible(text: Callable[[], str]) -> Iterator[None]:
    """Remember `text()`: what Ctrl-C leaves and how to continue. `show_interrupted` prints it."""
    _interrupted.append(text)
    yield
    _interrupted.clear()  # not after an exception: `main` prints the text


def show_interrupted() -> None:
    """Print how to continue what Ctrl-C stopped, if that is known."""
    for text in _interrupted:
        advise(text())
    _interrupted.clear()


def show_error(error: FleetError) -> None:
    """Print `error:` with position and cause, and `try:` with the cure; then the other errors."""
    _remark("error:", "bold red", str(error))
    if error.hint or error.cure:
        _remark("  try:", "bold", completed(error.hint or error.cure))
    for other in error.others:
        show_error(other)


def _remark(word: str, style: str, text: str) -> None:
    if _plain(sys.stderr):
        typer.echo(f"{word} {harmless(text)}" if word else harmless(text), err=True)
        return
    from rich.text import Text  # noqa: PLC0415 - see above

    folded(_screens.errors, Text.assemble((word, style), " " if word else "", harmless(text)))
