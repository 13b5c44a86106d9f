"""The store of records: one SQLite file, raw files by content next to it, selections, baselines."""

from __future__ import annotations

from fleet.profiles.store.rows import RecordRow, RunRow
from fleet.profiles.store.select import Query
from fleet.profiles.store.store import ProfileStore

__all__ = ["ProfileStore", "Query", "RecordRow", "RunRow"]
