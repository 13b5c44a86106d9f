"""The store: what is asked of it, what is put into it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from fleet.model.errors import InputError
from fleet.model.home import fleet_home
from fleet.model.record import Record
from fleet.profiles import references
from fleet.profiles.store import database, marking, rows, taking
from fleet.profiles.store.query import Query
from fleet.profiles.store.raw import RawFiles
from fleet.profiles.store.rows import Row, RunRow

FILE = "profiles.db"
SUFFIXES = (".db", ".sqlite", ".sqlite3")
_TAGS = "(SELECT group_concat(t.name, char(10)) FROM tag t WHERE t.record = r.id)"


class ProfileStore:
    """Records in one SQLite file.

    `path` None: `profiles.db` in fleet's home, with the runs of its folder `runs`. A folder:
    the records that `fleet run --output` put there, the file `profiles.db` in it. A file
    (.db): what was imported into it, no folder of runs. Raises ProfileStoreError.
    """

    def __init__(self, path: Path | None = None) -> None:
        if path is not None and path.suffix in SUFFIXES and not path.is_dir():
            self.path, self.runs = path, None
        elif path is None:
            self.path, self.runs = fleet_home() / FILE, fleet_home() / "runs"
        else:
            self.path, self.runs = path / FILE, path
        self.link = database.connect(self.path)
        self.raw = RawFiles(self.path)

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
        """Whole records, oldest first; `limit` takes the newest.

        Raises InputError for a baseline or reference that is not there; no record is [].
        """
        return [Record.from_dict(data) for data in self.plain(query, limit)]

    def plain(self, query: Query, limit: int | None = None) -> list[dict[str, Any]]:
        """The plain data as it was taken in, with the tags of now, oldest first."""
        if query.reference:
            return [references.plain(query.reference)]
        where, values = self._where(query)
        sql = (
            f"SELECT b.data, {_TAGS} FROM record r JOIN body b ON b.record = r.id {where} "  # noqa: S608
            "ORDER BY r.at DESC, r.id DESC LIMIT ?"
        )
        with database.told(self.path):
            found = self.link.execute(sql, [*values, -1 if limit is None else limit])
            made = [{**rows.unpacked(data), "tags": rows.tags_of(tags)} for data, tags in found]
        return made[::-1]

    def each(self, query: Query) -> Iterator[dict[str, Any]]:
        """As `plain`, one after the other: for more than fits into memory."""
        if query.reference:
            yield references.plain(query.reference)
            return
        where, values = self._where(query)
        sql = (
            f"SELECT b.data, {_TAGS} FROM record r JOIN body b ON b.record = r.id {where} "  # noqa: S608
            "ORDER BY r.at, r.id"
        )
        with database.told(self.path):
            for data, tags in self.link.execute(sql, values):
                yield {**rows.unpacked(data), "tags": rows.tags_of(tags)}

    def other_metrics(self, query: Query) -> list[tuple[str, str]]:
        """(name, unit) of all other metrics that the records have."""
        if query.reference:
            return []
        where, values = self._where(query)
        sql = (
            "SELECT DISTINCT v.metric, v.unit FROM record r "  # noqa: S608
            f"JOIN value v ON v.record = r.id {where} ORDER BY 1, 2"
        )
        with database.told(self.path):
            return self.link.execute(sql, values).fetchall()

    def find(self, query: Query, limit: int | None = None) -> list[Row]:
        """Rows of records, newest first."""
        if query.reference:
            return [rows.row_of(Record.from_dict(references.plain(query.reference)))]
        where, values = self._where(query)
        sql = (
            f"SELECT {rows.COLUMNS_OF_ROW}, {_TAGS} FROM record r {where} "  # noqa: S608
            "ORDER BY r.at DESC, r.id DESC LIMIT ?"
        )
        with database.told(self.path):
            found = self.link.execute(sql, [*values, -1 if limit is None else limit])
            return [rows.row(one) for one in found]

    def list_runs(self, query: Query, limit: int | None = None) -> list[RunRow]:
        """Runs that have records of the query, newest first; only those records are counted."""
        if query.reference:
            return [rows.run_of(Record.from_dict(references.plain(query.reference)))]
        where, values = self._where(query)
        sql = (
            "SELECT r.run_id, group_concat(DISTINCT r.name), count(DISTINCT r.host), count(*), "  # noqa: S608
            "sum(r.counts), sum(r.emulated IS 1), sum(r.emulated IS 0), max(r.started) "
            f"FROM record r {where} GROUP BY r.run_id ORDER BY max(r.at) DESC, r.run_id LIMIT ?"
        )
        with database.told(self.path):
            found = self.link.execute(sql, [*values, -1 if limit is None else limit])
            return [rows.run_row(one) for one in found]

    def values(self, query: Query, metric: str) -> list[float]:
        """The metric of all records of the query that count, oldest first: for large groups.

        Raises InputError where records give it in several units.
        """
        if query.reference:
            found = Record.from_dict(references.plain(query.reference)).metrics
            return rows.numbers_of(found, metric)
        where, values = self._where(replace(query, counted="yes"))
        if metric in database.NUMBERS:
            sql = f"SELECT r.{metric}, '' FROM record r {where} AND r.{metric} IS NOT NULL"  # noqa: S608
        else:
            sql = (
                "SELECT v.value, v.unit FROM record r "  # noqa: S608
                f"JOIN value v ON v.record = r.id AND v.metric = ? {where}"
            )
            values = [metric, *values]
        with database.told(self.path):
            pairs = self.link.execute(f"{sql} ORDER BY r.at, r.id", values).fetchall()
        units = {unit for _, unit in pairs}
        if len(units) > 1:
            raise InputError(f"{metric} has several units: {', '.join(sorted(units))}")
        return [value for value, _ in pairs]

    def count(self, query: Query) -> int:
        """How many records the query finds."""
        if query.reference:
            return 1
        where, values = self._where(query)
        with database.told(self.path):
            found = self.link.execute(f"SELECT count(*) FROM record r {where}", values)  # noqa: S608
            return int(found.fetchone()[0])

    def raw_of(self, record_id: int) -> dict[str, str]:
        """name → sha256 of the raw files that were taken in with a record (`Row.id`)."""
        with database.told(self.path):
            sql = "SELECT name, sha256 FROM raw WHERE record = ? ORDER BY name"
            return dict(self.link.execute(sql, (record_id,)).fetchall())

    def tag(self, query: Query, name: str, *, away: bool = False) -> int:
        """Put a tag on records, or take it away; how many changed. Raises InputError."""
        self._changing(query)
        with database.told(self.path):
            return (marking.untag if away else marking.tag)(self.link, query, name)

    def save_baseline(self, name: str, query: Query, *, replace: bool = False) -> int:
        """Keep what the query finds now under a name; how many records. Raises InputError."""
        self._changing(query)
        with database.told(self.path):
            return marking.save(self.link, name, query, replace=replace)

    def remove_baseline(self, name: str) -> None:
        """Forget the name. Raises InputError where it is not known."""
        with database.told(self.path):
            marking.remove(self.link, name)

    def baselines(self) -> list[marking.Baseline]:
        """All saved ones."""
        with database.told(self.path):
            return marking.baselines(self.link)

    def _changing(self, query: Query) -> None:
        if query.reference:
            raise InputError(
                "a reference is shipped with fleet and stays as it is",
                hint="fleet profiles tag last NAME",
            )
        self._where(query)

    def _where(self, query: Query) -> tuple[str, list[object]]:
        for name in query.baselines:
            with database.told(self.path):
                marking.known(self.link, name)
        return query.sql()
