"""Tables that fit the terminal: a column that has no room is said below it instead."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from fleet.cli import output


@dataclass(frozen=True)
class Column:
    """A column of a table; a cell of None is unknown. `spare`: 1 is the first to make room, 2 the
    next; 0 always stays. The first column names the rows.
    """

    head: str
    cells: Sequence[str | None]
    spare: int = 0


def show(title: str, columns: Sequence[Column]) -> None:
    """The table. Heads are folded and columns left out only where the terminal is too narrow, so
    that no word is broken.
    """
    room, kept, left = output.width(), list(columns), list[Column]()
    spare = sorted((column for column in columns if column.spare), key=lambda column: column.spare)
    while room is not None and spare and _width(kept, folded=True) > room:
        left.append(spare.pop(0))
        kept.remove(left[-1])
    folded = room is not None and _width(kept, folded=False) > room
    heads = [column.head.replace(" ", "\n") if folded else column.head for column in kept]
    output.table(title, heads, zip(*(column.cells for column in kept), strict=True))
    _below(columns[0].cells, left)


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
