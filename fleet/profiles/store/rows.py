"""The rows of records: the columns that can be searched, and the plain data next to them."""

from __future__ import annotations

import hashlib
import json
import re
import sqlite3
import statistics
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import partial
from typing import Any, ClassVar

from fleet.model.deadline import utc_text
from fleet.model.errors import ProfileStoreError, reason
from fleet.model.metrics import FIELDS, LATENCY, MIDDLES, NETWORK, PRIMARY
from fleet.model.record import Record

_UNSAID = ("tags", "artifacts", "counts")  # not measured, therefore not part of the identity
_COLUMNS = (
    *("key", "run_id", "host", "name", "release", "runner", "repeat", "warmup", "counts"),
    *("emulated", "started", "at", "identity", "chip", "runtime", "finish", "problems"),
    *("seconds", "source", *FIELDS),
)
_INSERT = (
    f"INSERT OR IGNORE INTO record ({', '.join(_COLUMNS)}) "  # noqa: S608 - our own names
    f"VALUES ({', '.join('?' * len(_COLUMNS))})"
)
_dumps = partial(json.dumps, ensure_ascii=False, separators=(",", ":"))
_BUILD = re.compile(r"\d+(?:\.\d+)+")


@dataclass(frozen=True)
class RecordRow:
    """The row of a record in a list. Times are in ms, rates in tok/s.

    `at` is `started`, or the time of the import if `started` is unknown.
    """

    id: int
    run_id: str
    host: str
    name: str
    runner: str
    repeat: int
    warmup: bool
    counts: bool
    emulated: bool | None
    started: str
    at: str
    chip: str
    runtime: str
    problems: str
    metrics: Mapping[str, float | None]
    tags: tuple[str, ...] = ()
    PLAIN: ClassVar[str] = "* **metrics -metrics"


@dataclass(frozen=True)
class RunRow:
    """The row of a run, with the number of its records. `emulated` is yes, no, unknown or mixed.

    `median` and `values` are of the records that count, ordered by device and time. They are in the
    primary metric: the rate of generation, else the latency of a network (`latency_ms`). `median`
    is None if neither was measured.
    """

    run: str
    name: str
    devices: int
    records: int
    counted: int
    emulated: str
    started: str
    metric: str = ""
    median: float | None = None
    values: tuple[float, ...] = ()


_NAMES = [column.name for column in fields(RecordRow) if column.name not in {"metrics", "tags"}]
COLUMNS_OF_ROW = ", ".join(f"r.{name}" for name in (*_NAMES, *FIELDS))


def row(cells: tuple[Any, ...]) -> RecordRow:
    """Return the row for the selected COLUMNS_OF_ROW and the tags (one per line)."""
    *values, tags = cells
    numbers = dict(zip(FIELDS, values[len(_NAMES) :], strict=True))
    made = RecordRow(**dict(zip(_NAMES, values, strict=False)), metrics=numbers)
    return replace(
        made,
        warmup=bool(made.warmup),
        counts=bool(made.counts),
        emulated=None if made.emulated is None else bool(made.emulated),
        tags=tags_of(tags),
    )


def tags_of(text: str | None) -> tuple[str, ...]:
    """Return the tags of a text with one tag per line."""
    return tuple(sorted((text or "").splitlines()))


def run_row(cells: tuple[Any, ...]) -> RunRow:
    """Return the row of a run from its cells.

    The cells are: id, names, devices, records, counted, emulated, not emulated, time.
    """
    run, names, devices, records, counted, emulated, real, started = cells
    word = "yes" if emulated == records else "no" if real == records else "mixed"
    if not emulated and not real:
        word = "unknown"
    name = ", ".join(sorted(names.split(",")))
    return RunRow(run, name, devices, records, counted, word, started)


def measured(made: RunRow, numbers: Sequence[tuple[float | None, str | None, float]]) -> RunRow:
    """Return the run with its numbers.

    For each record there is its rate, and the name and the value of a latency.
    """
    metric, values = PRIMARY.name, [rate for rate, _, _ in numbers if rate is not None]
    if not values:
        names = {name for _, name, _ in numbers}
        name = next((name for name in MIDDLES if name in names), "")
        metric = NETWORK[LATENCY].name
        values = [value * MIDDLES[name] for _, mine, value in numbers if mine == name]
    if not values:
        return made
    return replace(made, metric=metric, median=statistics.median(values), values=tuple(values))


def packed(data: Mapping[str, Any]) -> tuple[str, bytes]:
    """Return the identity of plain data, and its bytes in the database.

    The identity is the sha256 of the measured data, without tags and paths. For a record of an
    imported file it is the sha256 of that file, with the number of the record if the file has
    several. Data that is not part of the identity is on the second line of the bytes.
    """
    measured = {name: value for name, value in data.items() if name not in _UNSAID}
    rest = {name: data[name] for name in _UNSAID if name in data}
    first = _dumps(measured, sort_keys=True).encode("utf-8", "surrogatepass")
    second = _dumps(rest).encode("utf-8", "surrogatepass")
    origin = data.get("origin")
    if isinstance(origin, dict) and "imported" in origin and "sha256" in origin:
        key = f"raw:{origin['sha256']}"
        key += f":{origin['row']}" if origin.get("row") else ""
    else:
        key = hashlib.sha256(first).hexdigest()
    return key, zlib.compress(first + b"\n" + second, 1)


def unpacked(data: bytes) -> dict[str, Any]:
    """Return the plain data of `packed` bytes. Raises ProfileStoreError if they are damaged."""
    try:
        first, _, second = zlib.decompress(data).partition(b"\n")
        return {**json.loads(first), **json.loads(second)}
    except (zlib.error, ValueError) as error:
        raise ProfileStoreError(
            f"a result in the database of results is damaged: {reason(error)}",
            hint="rename profiles.db in the folder of results (FLEET_HOME/runs); then fleet "
            "profiles list (builds the database again from the runs)",
        ) from error


def chip_of(record: Record) -> str:
    """Return the chip, such as `QCS9075`; "" if it is unknown."""
    soc = record.facts.get("soc")
    chip = soc.get("chip") if isinstance(soc, dict) else None
    return chip if isinstance(chip, str) else ""


def runtime_of(record: Record) -> str:
    """Return the build id of the runtime, such as `2.51.0.260929181845`; "" if it is unknown."""
    match = _BUILD.search(str(record.origin.get("build_id") or ""))
    return match[0] if match else ""


def insert(link: sqlite3.Connection, record: Record, data: Mapping[str, Any], source: str) -> int:
    """Insert a record and return its new id; 0 if the same record already exists.

    `data` is the plain data from which the record was read.
    """
    key, body = packed(data)
    now = utc_text()
    emulated = None if record.emulated is None else int(record.emulated)
    metrics = record.metrics
    values = (
        *(key, record.run_id, record.host, record.name, record.release, record.runner),
        *(record.repeat, int(record.warmup), int(record.counts), emulated, record.started),
        *(record.started or now, record.identity, chip_of(record), runtime_of(record)),
        *(record.finish or "", "\n".join(record.problems), record.seconds, source),
        *(getattr(metrics, name) for name in FIELDS),
    )
    done = link.execute(_INSERT, values)
    if not done.rowcount:
        return 0
    number = int(done.lastrowid or 0)
    link.execute("INSERT INTO body VALUES (?, ?)", (number, body))
    if metrics.others:
        link.executemany(
            "INSERT INTO value VALUES (?, ?, ?, ?)",
            [(number, name, other.value, other.unit) for name, other in metrics.others.items()],
        )
    if record.tags:
        tags = [(tag, number) for tag in dict.fromkeys(record.tags)]
        link.executemany("INSERT OR IGNORE INTO tag VALUES (?, ?)", tags)
    return number
