"""The store: what is asked of it, what is put into it."""

from __future__ import annotations

from dataclasses import fields, replace
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from fleet.model.home import fleet_home
from fleet.model.record import Record
from fleet.profiles.store import database, rows, taking
from fleet.profiles.store.query import Query
from fleet.profiles.store.rows import Row

FILE = "profiles.db"
SUFFIXES = (".db", ".sqlite", ".sqlite3")
_ROW = ", ".join(f"r.{one.name}" for one in fields(Row) if one.name != "tags")
_TAGS = "(SELECT group_concat(t.name, char(10)) FROM tag t WHERE t.record = r.id)"


class ProfileStore:
    """Records in one SQLite file.

    `path` None: `profiles.db` in fleet's home, with the runs of its folder `runs`. A folder:
    the records that `fleet run --output` put there, the file `profiles.db` in it. A file
    (.db): what was imported into it, no folder of runs. Raises StoreError.
    """

    def __init__(self, path: Path | None = None) -> None:
        if path is not None and path.suffix in SUFFIXES and not path.is_dir():
            self.path, self.runs = path, None
        elif path is None:
            self.path, self.runs = fleet_home() / FILE, fleet_home() / "runs"
        else:
            self.path, self.runs = path / FILE, path
        self.link = database.connect(self.path)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Let go of the file."""
        self.link.close()

    def look(self) -> list[taking.Bad]:
        """Take in the runs that fleet left since the last look; files that cannot be read."""
        if self.runs is None:
            return []
        with database.told(self.path):
            return taking.take(self.link, self.runs)

    def records(self, query: Query, limit: int | None = None) -> list[Record]:
        """Whole records, oldest first. Raises InputError for names that are not known."""
        return [_record(data, tags) for data, tags in self.plain(query, limit)]

    def plain(self, query: Query, limit: int | None = None) -> list[tuple[dict[str, Any], str]]:
        """(plain data as it was taken in, tags by lines) of the records, oldest first."""
        self._known(query)
        where, values = query.sql()
        sql = (
            f"SELECT b.data, {_TAGS} FROM record r JOIN body b ON b.record = r.id {where} "  # noqa: S608
            "ORDER BY r.at, r.id LIMIT ?"
        )
        with database.told(self.path):
            found = self.link.execute(sql, [*values, -1 if limit is None else limit])
            return [(rows.unpacked(data), tags or "") for data, tags in found]

    def find(self, query: Query, limit: int | None = None) -> list[Row]:
        """Rows of records, newest first."""
        self._known(query)
        where, values = query.sql()
        sql = (
            f"SELECT {_ROW}, {_TAGS} FROM record r {where} "  # noqa: S608
            "ORDER BY r.at DESC, r.id DESC LIMIT ?"
        )
        with database.told(self.path):
            found = self.link.execute(sql, [*values, -1 if limit is None else limit])
            return [_row(one) for one in found]

    def _known(self, query: Query) -> None:
        """Names of baselines and references that are not there are no empty result."""
        del query


def _row(found: tuple[Any, ...]) -> Row:
    *values, tags = found
    row = Row(*values)
    return replace(
        row,
        warmup=bool(row.warmup),
        counts=bool(row.counts),
        emulated=None if row.emulated is None else bool(row.emulated),
        tags=tuple(sorted((tags or "").splitlines())),
    )


def _record(data: dict[str, Any], tags: str) -> Record:
    return replace(Record.from_dict(data), tags=tuple(sorted(tags.splitlines())))
