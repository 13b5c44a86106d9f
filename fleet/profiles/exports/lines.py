"""JSON Lines: a record a line, as it was taken in; `fleet profiles import` reads it again."""

from __future__ import annotations

import json
from pathlib import Path

from fleet.profiles.store import ProfileStore, Query


def write(store: ProfileStore, query: Query, target: Path, clock_hz: float | None) -> int:
    """How many records were written."""
    del clock_hz
    count = 0
    with target.open("w", encoding="utf-8", errors="surrogatepass", newline="\n") as stream:
        for data in store.each(query):
            stream.write(json.dumps(data, ensure_ascii=False, separators=(",", ":")) + "\n")
            count += 1
    return count
