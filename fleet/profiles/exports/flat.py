"""One row a record, flat columns with the unit in their names; CSV."""

from __future__ import annotations

import csv
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from fleet.model.record import Record
from fleet.profiles.formats.base import slug
from fleet.profiles.store import ProfileStore, Query
from fleet.profiles.store.rows import chip_of, runtime_of

# Column → its type, as Parquet has it too.
COLUMNS: dict[str, str] = {
    **dict.fromkeys(("run_id", "host", "name", "release", "runner"), "string"),
    "repeat": "int64",
    **dict.fromkeys(("warmup", "counts", "emulated"), "bool"),
    "started_utc": "string",
    "seconds": "double",
    "exit_status": "int64",
    "init_ms": "double",
    "prompt_tokens": "int64",
    "prompt_tokens_per_second": "double",
    "ttft_ms": "double",
    "generated_tokens": "int64",
    "decode_tokens_per_second": "double",
    "decode_ms": "double",
    **dict.fromkeys(("finish", "problems", "marks", "tags", "chip", "runtime_build"), "string"),
    **dict.fromkeys(("board_identity", "prompt_sha256", "fleet_version"), "string"),
    "hottest_before_celsius": "double",
    "hottest_after_celsius": "double",
}


def columns(store: ProfileStore, query: Query) -> dict[str, str]:
    """All columns of these records: those above, then a column for each other metric."""
    return COLUMNS | {
        other_column(metric, unit): "double" for metric, unit in store.other_metrics(query)
    }


def other_column(metric: str, unit: str) -> str:
    """`load_us`, `peak_MB`: the unit stands in the name where the name does not say it."""
    said = not unit or metric.endswith(f"_{slug(unit)}")
    return f"other_{metric}" if said else f"other_{metric}_{slug(unit)}"


def rows(store: ProfileStore, query: Query) -> Iterator[dict[str, Any]]:
    """A row a record; None where a value is not known."""
    for data in store.each(query):
        yield row(Record.from_dict(data))


def row(record: Record) -> dict[str, Any]:
    """One row, without the columns of other metrics that this record has not."""
    metrics, around = record.metrics, record.conditions
    made = {
        "run_id": record.run_id,
        "host": record.host or None,
        "name": record.name or None,
        "release": record.release or None,
        "runner": record.runner or None,
        "repeat": record.repeat,
        "warmup": record.warmup,
        "counts": record.counts,
        "emulated": record.emulated,
        "started_utc": record.started or None,
        "seconds": record.seconds,
        "exit_status": record.status,
        "init_ms": metrics.init_ms,
        "prompt_tokens": metrics.prompt_tokens,
        "prompt_tokens_per_second": metrics.prompt_tps,
        "ttft_ms": metrics.ttft_ms,
        "generated_tokens": metrics.generated_tokens,
        "decode_tokens_per_second": metrics.decode_tps,
        "decode_ms": metrics.decode_ms,
        "finish": record.finish,
        "problems": "; ".join(record.problems),
        "marks": "; ".join(record.marks),
        "tags": " ".join(record.tags),
        "chip": chip_of(record) or None,
        "runtime_build": runtime_of(record) or None,
        "board_identity": record.identity or None,
        "prompt_sha256": record.prompt_sha256 or None,
        "fleet_version": record.fleet or None,
        "hottest_before_celsius": around.before.hottest if around.before else None,
        "hottest_after_celsius": around.after.hottest if around.after else None,
    }
    return made | {other_column(name, one.unit): one.value for name, one in metrics.others.items()}


def write(store: ProfileStore, query: Query, target: Path, clock_hz: float | None) -> int:
    """CSV with a head; numbers with a point, empty where unknown. How many records."""
    del clock_hz
    count = 0
    with target.open("w", encoding="utf-8", errors="replace", newline="") as stream:
        writer = csv.DictWriter(stream, list(columns(store, query)))
        writer.writeheader()
        for one in rows(store, query):
            writer.writerow(one)
            count += 1
    return count
