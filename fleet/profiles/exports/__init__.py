"""Records for other programs: JSON Lines, CSV, Parquet, Chrome trace. Whole or not at all."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from fleet.model.errors import InputError
from fleet.profiles.exports import flat, parquet, trace
from fleet.profiles.files import written_whole
from fleet.profiles.store import ProfileStore, Query

Writer = Callable[[ProfileStore, Query, Path, float | None], int]
WRITERS: dict[str, Writer] = {
    "jsonl": flat.write_lines,
    "csv": flat.write_csv,
    "parquet": parquet.write,
    "trace": trace.write,
}
SUFFIXES = {".jsonl": "jsonl", ".ndjson": "jsonl", ".csv": "csv", ".parquet": "parquet"}
SUFFIXES |= {".trace": "trace", ".json": "trace"}


def export(
    store: ProfileStore, query: Query, target: Path, kind: str = "", clock_hz: float | None = None
) -> int:
    """Write the records; how many. `kind` "" is told by the suffix. `clock_hz` is for traces.

    Raises InputError: no such kind, no record, pyarrow is not there; ProfileStoreError.
    """
    kind = kind or SUFFIXES.get(target.suffix.lower(), "")
    if kind not in WRITERS:
        formats = f"choose a format with -o: {', '.join(WRITERS)}"
        raise InputError(
            f"the file name {target.name} does not say which format to write", hint=formats
        )
    if not store.count(query):
        raise InputError(f"no stored result matches '{query.text}'", hint="fleet profiles list")
    with written_whole(target) as part:
        return WRITERS[kind](store, query, part, clock_hz)
