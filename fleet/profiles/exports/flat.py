"""Exports with one record per line: CSV with units in the column names, and JSON Lines."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable, Iterator
from operator import attrgetter
from pathlib import Path
from typing import Any

from fleet.model.conditions import Sample
from fleet.model.metrics import FIELDS
from fleet.model.record import Metrics, Record
from fleet.profiles.formats.base import slug
from fleet.profiles.store import ProfileStore, Query
from fleet.profiles.store.rows import chip_of, runtime_of

Read = str | Callable[[Record], Any]
# The order is that of the first version.
_FIELDS = sorted(FIELDS, key=Metrics.__struct_fields__.index)
_METRICS = {
    name.replace("_tps", "_tokens_per_second"): (
        "int64" if name.endswith("_tokens") else "double",
        name,
    )
    for name in _FIELDS
}
# Column → its type in Parquet, and the attribute of the record or the function that reads it.
COLUMNS: dict[str, tuple[str, Read]] = {
    **{name: ("string", name) for name in ("run_id", "host", "name", "release", "runner")},
    "repeat": ("int64", "repeat"),
    **{name: ("bool", name) for name in ("warmup", "counts", "emulated")},
    "started_utc": ("string", "started"),
    "seconds": ("double", "seconds"),
    "exit_status": ("int64", "status"),
    **{column: (kind, f"metrics.{name}") for column, (kind, name) in _METRICS.items()},
    "finish": ("string", "finish"),
    "problems": ("string", lambda record: "; ".join(record.problems)),
    "marks": ("string", lambda record: "; ".join(record.marks)),
    "tags": ("string", lambda record: " ".join(record.tags)),
    "chip": ("string", lambda record: chip_of(record) or None),
    "runtime_build": ("string", lambda record: runtime_of(record) or None),
    "board_identity": ("string", "identity"),
    "prompt_sha256": ("string", "prompt_sha256"),
    "fleet_version": ("string", "fleet"),
    "hottest_before_celsius": ("double", lambda record: _hottest(record.conditions.before)),
    "hottest_after_celsius": ("double", lambda record: _hottest(record.conditions.after)),
}


def _hottest(sample: Sample | None) -> float | None:
    return sample.hottest if sample else None


def columns(store: ProfileStore, query: Query) -> dict[str, str]:
    """Return all columns of these records: COLUMNS, then a column for each other metric."""
    known = {name: kind for name, (kind, _) in COLUMNS.items()}
    return known | {other_column(*metric): "double" for metric in store.other_metrics(query)}


def other_column(metric: str, unit: str) -> str:
    """Return a name such as `load_us` or `peak_MB`; the unit is added if the metric has none."""
    has_unit = not unit or metric.endswith(f"_{slug(unit)}")
    return f"other_{metric}" if has_unit else f"other_{metric}_{slug(unit)}"


def rows(store: ProfileStore, query: Query) -> Iterator[dict[str, Any]]:
    """Yield a row for each record; None if a value is unknown."""
    for data in store.each(query):
        yield row(Record.from_dict(data))


def row(record: Record) -> dict[str, Any]:
    """Return one row, without columns for other metrics that this record does not have."""
    cells = {}
    for name, (_, read) in COLUMNS.items():
        value = attrgetter(read)(record) if isinstance(read, str) else read(record)
        cells[name] = None if isinstance(read, str) and value == "" else value
    others = record.metrics.others.items()
    return cells | {other_column(name, measure.unit): measure.value for name, measure in others}


def full_rows(store: ProfileStore, query: Query) -> Iterator[dict[str, Any]]:
    """Yield a row with every column for each record; None if a value is unknown."""
    empty = dict.fromkeys(columns(store, query))
    for cells in rows(store, query):
        yield empty | cells


def write_csv(store: ProfileStore, query: Query, target: Path, _clock_hz: float | None) -> int:
    """Write CSV with a header and return the number of records.

    Numbers have a decimal point; unknown values are empty.
    """
    count = 0
    with target.open("w", encoding="utf-8", errors="replace", newline="") as stream:
        writer = csv.DictWriter(stream, list(columns(store, query)))
        writer.writeheader()
        for count, cells in enumerate(rows(store, query), 1):  # noqa: B007
            writer.writerow(cells)
    return count


def write_lines(store: ProfileStore, query: Query, target: Path, _clock_hz: float | None) -> int:
    """Write JSON Lines and return the number of records.

    The records are written as they were imported; `fleet profiles import` can read them again.
    """
    count = 0
    with target.open("w", encoding="utf-8", errors="surrogatepass", newline="\n") as stream:
        for count, data in enumerate(store.each(query), 1):  # noqa: B007
            stream.write(json.dumps(data, ensure_ascii=False, separators=(",", ":")) + "\n")
    return count
