"""Exports of records: JSON Lines, CSV, Parquet and Chrome traces, each written atomically.

A Chrome trace is for Perfetto (ui.perfetto.dev) and chrome://tracing. A profile has the duration of
an operation but not its start time. The trace therefore shows the operations one after the other,
and the file says so. Without a clock frequency a cycle is drawn as 1 us, and the file says that
too.
"""

from __future__ import annotations

import importlib
import json
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any

from fleet.model.errors import InputError, ProfileStoreError
from fleet.model.extras import install_extra
from fleet.model.files import written_whole
from fleet.model.record import Op, Record
from fleet.profiles.exports import flat
from fleet.profiles.store import ProfileStore, Query

ROWS = 5000  # of a row group


def write_parquet(store: ProfileStore, query: Query, target: Path, _clock_hz: float | None) -> int:
    """Write the records as Parquet and return their number. Raises InputError without pyarrow."""
    arrow, files = _library("pyarrow"), _library("pyarrow.parquet")
    wanted = flat.columns(store, query)
    types = {"string": arrow.string(), "bool": arrow.bool_()}
    types |= {"int64": arrow.int64(), "double": arrow.float64()}
    schema = arrow.schema([(name, types[kind]) for name, kind in wanted.items()])
    count = 0
    with files.ParquetWriter(str(target), schema) as writer:
        rows = flat.rows(store, query)
        while some := list(islice(rows, ROWS)):
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
    "jsonl": flat.write_lines,
    "csv": flat.write_csv,
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
