"""The rows of tables and the cells of matrices: the same records give the same row."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from fleet.model.metrics import Metric
from fleet.model.record import Record
from fleet.profiles.compare import metrics as known
from fleet.profiles.compare.groups import by_board, chip, runs_of, values_of
from fleet.profiles.compare.turns import boot_is_unit
from fleet.profiles.compare.verdict import MetricRow
from fleet.profiles.stats.difference import against_level, difference


@dataclass(frozen=True)
class Side:
    """The records of one side of a pair, read once for all metrics.

    `seconds` is the typical duration of a run.
    """

    records: Sequence[Record]
    runs: list[list[Record | None]]
    boards: int
    chips: int
    emulated: bool
    seconds: float | None

    @property
    def published(self) -> bool:
        """True for a single published figure, about which nothing else is known."""
        return len(self.records) == 1 and "published" in self.records[0].tags

    def values(self, name: str) -> list[list[float]]:
        """Return the values by run for one board; for several boards one value for each board.

        The board is the unit if there are several.
        """
        return values_of(self.runs, name) if self.boards == 1 else by_board(self.runs, name)


def sides_of(a: Sequence[Record], b: Sequence[Record]) -> tuple[Side, Side]:
    """Return both sides of a comparison.

    Boots are the unit if every boot is known and no boot has runs of both sides.
    """
    counted = [[record for record in side if record.counts] for side in (a, b)]
    by_boot = boot_is_unit(counted[0], counted[1])
    return _side(a, by_boot=by_boot), _side(b, by_boot=by_boot)


def _side(records: Sequence[Record], *, by_boot: bool) -> Side:
    boards = {record.identity or record.host: record for record in records}
    # The boards of a run share its run id, so with several boards a run is not the unit.
    runs = [[record if record.counts else None for record in records]]
    if len(boards) == 1:
        runs = runs_of(records, by_boot=by_boot)
    emulated = any(record.emulated for record in records)
    chips = len(set(map(chip, boards.values())))
    return Side(records, runs, len(boards), chips, emulated, _seconds(runs))


def _seconds(runs: Sequence[Sequence[Record | None]]) -> float | None:
    """Return the median over the runs of the total duration of their repeats."""
    whole = [
        sum(record.seconds for record in run if record is not None and record.seconds)
        for run in runs
    ]
    known_ones = [seconds for seconds in whole if seconds]
    return statistics.median(known_ones) if known_ones else None


def row_of(label: str, a: Side, b: Side, metric: Metric, blocked: Sequence[str]) -> MetricRow:
    """Return the change of one metric, without a verdict.

    `blocked` are the conditions that forbid a verdict.
    """
    units = known.units(a.records, metric.name) | known.units(b.records, metric.name)
    why = f"differs: {', '.join(blocked)}" if blocked else ""
    if len(units) > 1:
        why = f"units differ: {', '.join(sorted(units))}"
    elif max(a.chips, b.chips) > 1:
        why = "the group contains results of several chips"
    values = a.values(metric.name), b.values(metric.name)
    change = difference(*values)
    if a.published and change.mid_a is not None and change.mid_a > 0:
        change = against_level(change.mid_a, values[1])
    both = [side.seconds for side in (a, b) if side.seconds]
    seconds = statistics.mean(both) if both else None
    emulated = a.emulated or b.emulated
    # With several boards, each board is a unit.
    runs = len(a.runs) * a.boards, len(b.runs) * b.boards
    return MetricRow(label, metric, change, why=why, emulated=emulated, seconds=seconds, runs=runs)
