"""A matrix of boards and versions for one metric; each cell is compared with the oldest version."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from fleet.model.errors import InputError
from fleet.model.metrics import Metric
from fleet.model.plain import to_plain
from fleet.model.record import Record
from fleet.profiles.compare import metrics as known
from fleet.profiles.compare.comparing import row_of, sides_of
from fleet.profiles.compare.conditions import Weight, check
from fleet.profiles.compare.groups import RecordGroup, build, by_run, chip
from fleet.profiles.compare.verdict import MEASURED, MetricRow, Verdict, judge
from fleet.profiles.stats.difference import difference
from fleet.profiles.stats.interval import Interval


def _release(record: Record) -> str:
    return record.release


COLUMNS = {"runtime": build, "release": _release}
SCHEMA = 1


@dataclass(frozen=True)
class MatrixCell:
    """A cell: a board with a version.

    `row` is the change since the first version of the board; it is None for the first version.
    """

    middle: float | None
    spread: Interval | None
    count: int
    row: MetricRow | None
    PLAIN: ClassVar[str] = "count middle interval change=row"

    @property
    def interval(self) -> tuple[float, float] | None:
        """The bounds of the spread, None if the spread is unknown."""
        return None if self.spread is None else (self.spread.low, self.spread.high)


@dataclass(frozen=True)
class Matrix:
    """The cells by (board, version). `versions` are oldest first; `chips` are by board."""

    metric: Metric
    boards: tuple[str, ...]
    versions: tuple[str, ...]
    cells: dict[tuple[str, str], MatrixCell]
    chips: dict[str, str]
    emulated: frozenset[str]
    notes: tuple[str, ...] = ()
    ABOUT: ClassVar = {"schema": SCHEMA, "correction": "holm"}
    PLAIN: ClassVar[str] = "**ABOUT metric=metric.name unit=metric.unit versions notes rows"

    @property
    def rows(self) -> list[dict[str, Any]]:
        """The cells of each board, in the order of the versions."""
        return [
            {
                "board": board,
                "chip": self.chips[board],
                "emulated": board in self.emulated,
                "cells": [
                    {"version": v, **(to_plain(self.cells.get((board, v))) or {"count": 0})}
                    for v in self.versions
                ],
            }
            for board in self.boards
        ]


def matrix(group: RecordGroup, name: str, columns: str = "runtime", margin: float = 0.01) -> Matrix:
    """Return the matrix of one metric. Its verdicts are corrected together, as in a comparison.

    Raises InputError if no run that counts has the metric.
    """
    metric = known.metric(name, group.records)
    read = COLUMNS[columns]
    parts: dict[tuple[str, str], list[Record]] = {}
    began: dict[str, str] = {}
    for label, records in _boards(group).items():
        for record in records:
            if record.counts and math.isfinite(known.value(record, name)):
                version = read(record) or "unknown"
                parts.setdefault((label, version), []).append(record)
                began[version] = min(began.get(version, record.started), record.started)
    if not parts:
        raise InputError(
            f"no valid run in '{group.label}' has the metric {name}",
            hint=f"set --metric to one of: {', '.join(known.present(group.records)) or 'none'}",
        )
    numbers = columns == "runtime"
    versions = sorted(began, key=lambda v: _number(v) if numbers else (began[v], v))
    boards = tuple(dict.fromkeys(board for board, _ in parts))
    rows, notes = _rows(metric, parts, boards, versions, margin)
    cells = {place: _cell(records, name, rows.get(place)) for place, records in parts.items()}
    firsts = {board: next(r for (b, _), r in parts.items() if b == board) for board in boards}
    return Matrix(
        metric, boards, tuple(versions), cells,
        {board: chip(records_of[0]) for board, records_of in firsts.items()},
        frozenset(b for (b, _), records_of in parts.items() if any(r.emulated for r in records_of)),
        tuple(notes),
    )  # fmt: skip


def _boards(group: RecordGroup) -> dict[str, list[Record]]:
    boards: dict[str, list[Record]] = {}
    for identity, records in group.boards.items():
        host = records[0].host
        boards[f"{host} ({identity[-8:]})" if host in boards else host] = records
    return boards


def _number(version: str) -> tuple[list[int], str]:
    return [int(digits) for digits in re.findall(r"\d+", version)], version


def _rows(
    metric: Metric, parts: dict[tuple[str, str], list[Record]], boards: Sequence[str],
    versions: Sequence[str], margin: float,
) -> tuple[dict[tuple[str, str], MetricRow], list[str]]:  # fmt: skip
    changes: dict[tuple[str, str], MetricRow] = {}
    notes: list[str] = []
    for board in boards:
        mine = [v for v in versions if (board, v) in parts]
        first = parts[board, mine[0]]
        for version in mine[1:]:
            other = parts[board, version]
            vary = ("runtime", "model", "options")  # a new version may change all of them
            findings = check(first, other, vary)
            blocks = [f.what for f in findings if f.weight is Weight.BLOCKS]
            warns = [f.what for f in findings if f.weight is Weight.WARNS]
            if warns:
                notes.append(f"{board}, {version}: these conditions differ too: {', '.join(warns)}")
            changes[board, version] = row_of(board, *sides_of(first, other), metric, blocks)
    judged = judge(list(changes.values()), margin)
    return dict(zip(changes, judged, strict=True)), notes


def _cell(records: Sequence[Record], name: str, row: MetricRow | None) -> MatrixCell:
    runs = by_run(records, name)
    sample = difference(runs, [])
    return MatrixCell(sample.mid_a, sample.a, sample.count_a, row)


def words(cell: MatrixCell | None) -> str:
    """Return the text of a cell: `10.03 ±1.2 %` and the change, such as `-5.0 % slower`."""
    if cell is None or cell.middle is None:
        return "-"
    spread = "" if cell.spread is None else f" ±{cell.spread.width * 50:.1f} %"
    text = f"{cell.middle:.4g}{spread} (n {cell.count})"
    row = cell.row
    if row is None:
        return text
    change = "?" if row.difference.mid is None else f"{row.difference.mid * 100:+.1f} %"
    if row.verdict in MEASURED - {Verdict.NONE, Verdict.SAME}:
        return f"{text}\n{change} {row.verdict}"
    return f"{text}\n{row.verdict_text}"
