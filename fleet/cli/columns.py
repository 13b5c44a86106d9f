"""Tables that fit the terminal: a column that has no room is said below it instead."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from fleet.cli import output


@dataclass(frozen=True)
class Column:
    """A column of a table; a cell of None is unknown. `yields`: 1 is the first to make room, 2 the
    next; 0 always stays. The first column names the rows.
    """

    head: str
    cells: Sequence[str | None]
    yields: int = 0


def show(title: str, columns: Sequence[Column]) -> None:
    """The table. Heads are folded and columns left out only where the terminal is too narrow, so
    that no word is broken.
    """
    room = output.width()
    kept, left = _kept(columns, room, lambda some: _width(some, folded=True))
    folded = room is not None and _width(kept, folded=False) > room
    heads = [column.head.replace(" ", "\n") if folded else column.head for column in kept]
    output.table(title, heads, zip(*(column.cells for column in kept), strict=True))
    _below(columns[0].cells, left)


def show_text(title: str, columns: Sequence[Column], names: Sequence[str]) -> None:
    """As `show`, where cells are of several words and may be wrapped. `names`: of the rows, for
    what is said below the table.
    """
    room = output.width()
    kept, left = _kept(columns, room, _wrapped)
    fits = room is not None and _wrapped(kept) <= room
    heads = [column.head for column in kept]
    rows = zip(*(column.cells for column in kept), strict=True)
    whole = [column.head for column in kept if fits and _whole(column)]
    output.table(title, heads, rows, whole)
    _below(names, left)


def _kept(
    columns: Sequence[Column], room: int | None, width: Callable[[Sequence[Column]], int]
) -> tuple[list[Column], list[Column]]:
    """What has room, and what is left out, in the order of `yields`."""
    kept, left = list(columns), list[Column]()
    yielding = sorted(
        (column for column in columns if column.yields), key=lambda column: column.yields
    )
    while room is not None and yielding and width(kept) > room:
        left.append(yielding.pop(0))
        kept.remove(left[-1])
    return kept, left


def _wrapped(columns: Sequence[Column]) -> int:
    """The least width at which rich breaks no word: it narrows the widest columns first, all of
    them to one width, but for those that must stay whole.
    """
    wide = [max(map(len, _texts(column))) for column in columns]
    words = [text.split() for column in columns if not _whole(column) for text in _texts(column)]
    longest = max((len(word) for text in words for word in text), default=0)
    narrowed = [
        width if _whole(column) else min(longest, width)
        for column, width in zip(columns, wide, strict=True)
    ]
    return sum(narrowed) + 3 * len(columns) + 1


def _whole(column: Column) -> bool:
    """Nowhere a blank to wrap it at."""
    return not any(" " in text for text in _texts(column))


def _texts(column: Column) -> list[str]:
    return [column.head, *(cell or "unknown" for cell in column.cells)]


def _width(columns: Sequence[Column], *, folded: bool) -> int:
    """As rich draws it: a bar before, between and after, and a blank on both sides of a cell."""
    widest = 0
    for column in columns:
        heads = column.head.split(" ") if folded else [column.head]
        widest += max(map(len, (*heads, *(cell or "unknown" for cell in column.cells))))
    return widest + 3 * len(columns) + 1


def _below(names: Sequence[str | None], left: Sequence[Column]) -> None:
    if not left:
        return
    rows = [
        ", ".join(f"{column.head} {column.cells[row] or 'unknown'}" for column in left)
        for row in range(len(names))
    ]
    if len(set(rows)) == 1:
        output.note(rows[0])
        return
    for name, text in zip(names, rows, strict=True):
        output.note(f"{name or 'unknown'}: {text}")
