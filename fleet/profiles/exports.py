"""Exports of records: JSON Lines, CSV, Parquet and Chrome traces, each written atomically.

A Chrome trace is for Perfetto (ui.perfetto.dev) and chrome://tracing. A profile has the duration of
an operation but not its start time. The trace therefore shows the operations one after the other,
and the file says so. Without a clock frequency a cycle is drawn as 1 us, and the file says that
too.
"""

from __future__ import annotations

import csv
import importlib
import json
from collections.abc import Callable, Iterator
from itertools import islice
from operator import attrgetter
from pathlib import Path
from typing import Any

from fleet.model.conditions import Sample
from fleet.model.errors import InputError, ProfileStoreError
from fleet.model.extras import install_extra
from fleet.model.files import written_whole
from fleet.model.metrics import FIELDS
from fleet.model.record import Metrics, Op, Record
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


ROWS = 5000  # of a row group


def write_parquet(store: ProfileStore, query: Query, target: Path, _clock_hz: float | None) -> int:
    """Write the records as Parquet and return their number. Raises InputError without pyarrow."""
    arrow, files = _library("pyarrow"), _library("pyarrow.parquet")
    wanted = columns(store, query)
    types = {"string": arrow.string(), "bool": arrow.bool_()}
    types |= {"int64": arrow.int64(), "double": arrow.float64()}
    schema = arrow.schema([(name, types[kind]) for name, kind in wanted.items()])
    count = 0
    with files.ParquetWriter(str(target), schema) as writer:
        every = rows(store, query)
        while some := list(islice(every, ROWS)):
            table = {name: [row.get(name) for row in some] for name in wanted}
            writer.write_table(arrow.table(table, schema=schema))
            count += len(some)
    return count


def _library(name: str) -> Any:  # noqa: ANN401 - a module without types
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise InputError(
            "fleet needs the Python package pyarrow to write Parquet, but pyarrow is not installed",
            hint=f"{install_extra('parquet')}; or --format csv",
        ) from error


LAID = "the profile contains no start times, so the trace shows the operations one after the other"
CYCLES = (
    "the profile counts cycles instead of time, so the trace shows each cycle as 1 us; to "
    "convert cycles to time: --clock-mhz"
)
_TO_US = {"us": 1.0, "ms": 1000.0, "ns": 0.001, "s": 1e6}


def write_trace(store: ProfileStore, query: Query, target: Path, clock_hz: float | None) -> int:
    """Write a Chrome trace and return the number of records that have operations.

    Raises InputError if no record has operations.
    """
    events: list[dict[str, Any]] = []
    notes = {LAID}
    count = 0
    for data in store.each(query):
        record = Record.from_dict(data)
        if not record.ops:
            continue
        count += 1
        events += _events(record, count, clock_hz, notes)
    if not count:
        raise InputError(
            f"no result that matches '{query.text}' contains operations",
            hint="run with `profiling: detailed`, or import a detailed CSV of qnn-profile-viewer",
        )
    made = {"traceEvents": events, "displayTimeUnit": "ms", "otherData": {"notes": sorted(notes)}}
    target.write_text(json.dumps(made, ensure_ascii=False), "utf-8", "surrogatepass")
    return count


def _events(
    record: Record, number: int, clock_hz: float | None, notes: set[str]
) -> Iterator[dict[str, Any]]:
    title = f"{record.run_id} {record.host or 'unknown host'} run {record.repeat + 1}"
    title += {True: " (emulated)", False: "", None: " (emulated: unknown)"}[record.emulated]
    yield _named("process_name", number, 0, title)
    graphs = list(dict.fromkeys(op.graph for op in record.ops))
    begins = dict.fromkeys(graphs, 0.0)
    for turn, graph in enumerate(graphs, 1):
        yield _named("thread_name", number, turn, f"graph {graph}" if graph else "graph")
    for op in record.ops:
        took, note = _microseconds(op, clock_hz)
        notes.add(note)
        yield {
            "name": op.name,
            "cat": op.kind or "op",
            "ph": "X",
            "pid": number,
            "tid": graphs.index(op.graph) + 1,
            "ts": begins[op.graph],
            "dur": took,
            "args": {
                "value": op.value,
                "unit": op.unit,
                "shape": op.shape or "unknown",
                "ran on": op.ran_on or "unknown",
                "note": note,
            },
        }
        begins[op.graph] += took


def _microseconds(op: Op, clock_hz: float | None) -> tuple[float, str]:
    if op.unit in _TO_US:
        return op.value * _TO_US[op.unit], LAID
    if op.unit == "cycles" and clock_hz:
        return (
            op.value / clock_hz * 1e6,
            f"time computed from cycles at {clock_hz / 1e6:g} MHz",
        )
    if op.unit == "cycles":
        return op.value, CYCLES
    return op.value, (
        f"{op.unit or 'a number without a unit'} is not a time, so the trace shows each as 1 us"
    )


def _named(what: str, pid: int, tid: int, name: str) -> dict[str, Any]:
    return {"name": what, "ph": "M", "pid": pid, "tid": tid, "args": {"name": name}}


Writer = Callable[[ProfileStore, Query, Path, float | None], int]
WRITERS: dict[str, Writer] = {
    "jsonl": write_lines,
    "csv": write_csv,
    "parquet": write_parquet,
    "trace": write_trace,
}
SUFFIXES = {".jsonl": "jsonl", ".ndjson": "jsonl", ".csv": "csv", ".parquet": "parquet"}
SUFFIXES |= {".trace": "trace", ".json": "trace"}


def export(
    store: ProfileStore, query: Query, target: Path, kind: str = "", clock_hz: float | None = None
) -> int:
    """Write the records and return their number.

    If `kind` is "", the suffix of `target` selects the format. `clock_hz` is for traces. Raises
    InputError for an unknown format, if no record matches, or if pyarrow is missing. Raises
    ProfileStoreError if the file cannot be written.
    """
    kind = kind or SUFFIXES.get(target.suffix.lower(), "")
    if kind not in WRITERS:
        formats = f"choose a format with -o: {', '.join(WRITERS)}"
        raise InputError(
            f"the file name {target.name} does not say which format to write", hint=formats
        )
    if not store.count(query):
        raise InputError(f"no stored result matches '{query.text}'", hint="fleet profiles list")
    with written_whole(target, ProfileStoreError) as part:
        return WRITERS[kind](store, query, part, clock_hz)
