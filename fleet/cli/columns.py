"""Tables that fit the terminal: no word is folded, and what has no room is said."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

GAP = "  "
PROSE = 24  # columns that a cell of several words gets before another column makes room for it
_LEAST = 4
_NAMED = 4  # rows of which what has no room is said one by one
_ID = re.compile(r"\b(?=[a-f]*\d)[0-9a-f]{16}\b")  # of a release


@dataclass
class Column:
    """A column. `drops`: 1 is the first to make room, 2 the next; 0 always stays."""

    head: str
    cells: list[str]
    drops: int
    width: int = 0

    @property
    def natural(self) -> int:
        """The width at which nothing is wrapped."""
        return max(len(line) for text in (self.head, *self.cells) for line in text.split("\n"))

    @property
    def least(self) -> int:
        """The width at which no word is shortened. Cells of several words are wrapped at blanks."""
        widest = max(map(len, self.cells), default=0)
        return min(self.natural, max(self.tight, min(PROSE, widest)))

    @property
    def tight(self) -> int:
        """The width of its longest word."""
        return max((len(word) for word in " ".join((self.head, *self.cells)).split()), default=0)

    def says(self, row: int) -> str:
        """`QAIRT 2.51.0`."""
        return f"{self.head} {self.cells[row]}".strip()


@dataclass(frozen=True)
class TableLines:
    """The lines of a table: what it is called, its heads, its rows, what had no room."""

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
    """The table in `room` columns; None has no end, and all of it is shown as it is.

    `drops`: heads of what makes room, the first one first; what is the same in every row goes to
    the title.
    """
    if room is not None:
        rows = [[_ID.sub(lambda found: found[0][:8], cell) for cell in row] for row in rows]
    order = {head: number for number, head in enumerate(drops, 1)}
    cells = [list(column) for column in zip(*rows, strict=True)] or [[] for _ in heads]
    columns = [
        Column(head, column, order.get(head, 0)) for head, column in zip(heads, cells, strict=True)
    ]
    same = [c for c in columns if room and len(rows) > 1 and c.drops and len(set(c.cells)) == 1]
    if said := ", ".join(column.says(0) for column in same if column.cells[0] not in {"", "-"}):
        title += f" ({said})"
    kept, left = _kept([column for column in columns if column not in same], room)
    _widen(kept, room)
    return TableLines(
        wrapped(title, room),
        [*_lines(kept, [column.head for column in kept]), GAP.join(rule * c.width for c in kept)],
        [line for row in range(len(rows)) for line in _lines(kept, [c.cells[row] for c in kept])],
        [line for text in _below(_names(columns), left) for line in wrapped(text, room)],
    )


def wrapped(text: str, room: int | None) -> list[str]:
    """The text in lines; a word that is longer than a line loses its middle."""
    if room is None or len(text) <= room:
        return [text]
    words = " ".join(middle(word, room) for word in text.split(" "))
    return textwrap.wrap(words, room, break_long_words=False, break_on_hyphens=False)


def middle(word: str, room: int) -> str:
    """`evk-iq9…ack-a-07`: names differ at their ends."""
    if len(word) <= room:
        return word
    tail = (room - 1) // 2
    return f"{word[: room - 1 - tail]}…{word[len(word) - tail :]}"


def _kept(columns: list[Column], room: int | None) -> tuple[list[Column], list[Column]]:
    """What has room, and what is left out."""
    kept, left = list(columns), list[Column]()
    drops = sorted((column for column in columns if column.drops), key=lambda c: c.drops)
    while room is not None and drops and _width([column.least for column in kept]) > room:
        left.append(drops.pop(0))
        kept.remove(left[-1])
    return kept, left


def _width(widths: Sequence[int]) -> int:
    return sum(widths) + len(GAP) * (len(widths) - 1)


def _widen(columns: Sequence[Column], room: int | None) -> None:
    """Give each column its width: the least, and what is left to the narrowest that want more."""
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


def _lines(columns: Sequence[Column], cells: Sequence[str]) -> Iterator[str]:
    """One row of the table: as many lines as its highest cell has."""
    parts = [
        [line for text in cell.split("\n") for line in wrapped(text, column.width)]
        for column, cell in zip(columns, cells, strict=True)
    ]
    for number in range(max(map(len, parts))):
        texts = [part[number] if number < len(part) else "" for part in parts]
        padded = map(str.ljust, texts, (column.width for column in columns))
        yield GAP.join(padded).rstrip()


def _names(columns: Sequence[Column]) -> list[str]:
    """What names a row: its first cell, its first two where that is not enough."""
    first = columns[0].cells
    if len(set(first)) == len(first):
        return first
    return [" ".join(cells) for cells in zip(*(c.cells for c in columns[:2]), strict=True)]


def _below(names: Sequence[str], left: Sequence[Column]) -> list[str]:
    """What had no room: the values of a few rows, else the heads."""
    rows = [", ".join(column.says(row) for column in left) for row in range(len(names))]
    if not any(rows):
        return []
    if len(set(rows)) == 1:
        return rows[:1]
    if len(rows) <= _NAMED:
        return [f"{name}: {text}" for name, text in zip(names, rows, strict=True)]
    return [f"no room for: {', '.join(column.head for column in left)} (-o wide shows them)"]
