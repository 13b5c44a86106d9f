"""Records for other programs: JSON Lines, CSV, Parquet, Chrome trace. Whole or not at all."""

from __future__ import annotations

import secrets
from collections.abc import Callable
from pathlib import Path

from fleet.model.errors import InputError, ProfileStoreError
from fleet.profiles.exports import flat, lines, parquet, trace
from fleet.profiles.store import ProfileStore, Query

Writer = Callable[[ProfileStore, Query, Path, float | None], int]
WRITERS: dict[str, Writer] = {
    "jsonl": lines.write,
    "csv": flat.write,
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
        known = ", ".join(WRITERS)
        raise InputError(
            f"the name {target.name} does not say which format", hint=f"--format {known}"
        )
    if not store.count(query):
        raise InputError(f"'{query.text}' selects no records", hint="fleet profiles list")
    part = target.with_name(f"{target.name}.{secrets.token_hex(4)}.part")
    try:
        written = WRITERS[kind](store, query, part, clock_hz)
        part.replace(target)
    except OSError as error:
        raise ProfileStoreError(
            f"{target} cannot be written: {error.strerror}", hint=f"ls -ld {target.parent}"
        ) from error
    finally:
        part.unlink(missing_ok=True)
    return written
