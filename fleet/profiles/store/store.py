"""The store: what is asked of it, what is put into it."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Any, Self

from fleet.model.errors import InputError
from fleet.model.home import fleet_home, runs_home
from fleet.model.metrics import PRIMARY
from fleet.model.record import Record
from fleet.profiles import references
from fleet.profiles.latency import MIDDLES
from fleet.profiles.store import database, marking, rows, taking
from fleet.profiles.store.raw import RawFiles
from fleet.profiles.store.rows import RecordRow, RunRow
from fleet.profiles.store.select import Query
from fleet.profiles.store.select import folded as by_side

FILE = "profiles.db"
SUFFIXES = (".db", ".sqlite", ".sqlite3")
_TAGS = "(SELECT group_concat(t.name, char(10)) FROM tag t WHERE t.record = r.id)"

_LATENCIES = ", ".join(map(repr, MIDDLES))
_NUMBERS = (
    f"SELECT run, s.{PRIMARY.name}, v.metric, v.value FROM "  # noqa: S608 - our own
    "(SELECT r.* FROM record r {where}) s "
    "JOIN json_each(?) j ON j.value = s.run_id LEFT JOIN value v ON v.record = s.id "
    f"AND v.metric IN ({_LATENCIES}) WHERE s.counts ORDER BY s.host, s.at, s.id"
)
_BODIES = f"SELECT b.data, {_TAGS} FROM record r JOIN body b ON b.record = r.id {{where}}"  # noqa: S608


_HOST, _NAME, _RELEASE = (f"json_extract(p.value, '$[{n}]')" for n in range(3))
_NEWEST = (
    f"SELECT {_HOST}, {_NAME}, {_RELEASE}, b.data, {_TAGS} FROM json_each(?) p "  # noqa: S608
    f"JOIN record r ON r.id IN (SELECT id FROM record WHERE host = {_HOST} AND name = {_NAME} "
    f"AND release = {_RELEASE} AND counts = 1 ORDER BY at DESC, id DESC LIMIT ?) "
    "JOIN body b ON b.record = r.id ORDER BY r.at DESC, r.id DESC"
)


class ProfileStore:
    """Records in one SQLite file.

    `path` None: `profiles.db` in fleet's home, with the runs of its folder `runs`; in a project
    the folder of its runs. A folder:
    the records that `fleet run --output` put there, the file `profiles.db` in it. A file
    (.db): what was imported into it, no folder of runs. Raises ProfileStoreError.
    """

    def __init__(self, path: Path | None = None) -> None:
        if path is None and (own := runs_home()) != fleet_home() / "runs":
            path = own
        if path is not None and path.suffix in SUFFIXES and not path.is_dir():
            self.path, self.runs = path, None
        elif path is None:
            self.path, self.runs = fleet_home() / FILE, fleet_home() / "runs"
        else:
            self.path, self.runs = path / FILE, path
        self.link = database.connect(self.path)
        self.raw = RawFiles(self.path)
        self._references: dict[str, sqlite3.Connection] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Let go of the file."""
        for link in (self.link, *self._references.values()):
            link.close()

    def look(self) -> list[taking.UnreadableFile]:
        """Take in the runs that fleet left since the last look; files that cannot be read."""
        if self.runs is None:
            return []
        with database.mapped_errors(self.path):
            return taking.take(self.link, self.runs)

    def records(self, query: Query, limit: int | None = None) -> list[Record]:
        """Whole records, oldest first; `limit` takes the newest.

        Raises InputError for a baseline or reference that is not there; no record is [].
        """
        return [Record.from_dict(data) for data in self.plain(query, limit)]

    def plain(self, query: Query, limit: int | None = None) -> list[dict[str, Any]]:
        """The plain data as it was taken in, with the tags of now, oldest first."""
        sql = f"{_BODIES} ORDER BY r.at DESC, r.id DESC LIMIT ?"
        return list(map(_plain, self._all(query, sql, _limit(limit))))[::-1]

    def newest(
        self, places: Collection[tuple[str, str, str]], limit: int
    ) -> dict[tuple[str, str, str], list[dict[str, Any]]]:
        """Return the newest records that count of each (host, name, release), newest first.

        One statement for all places; a place without such a record is not in the result.
        """
        found: dict[tuple[str, str, str], list[dict[str, Any]]] = {}
        with database.mapped_errors(self.path):
            for *place, data, tags in self.link.execute(_NEWEST, (json.dumps([*places]), limit)):
                found.setdefault((place[0], place[1], place[2]), []).append(_plain((data, tags)))
        return found

    def each(self, query: Query) -> Iterator[dict[str, Any]]:
        """Same as `plain`, one after the other: for more than fits into memory."""
        return map(_plain, self._all(query, f"{_BODIES} ORDER BY r.at, r.id"))

    def other_metrics(self, query: Query) -> list[tuple[str, str]]:
        """(name, unit) of all metrics of the records that have no column of their own."""
        sql = (
            "SELECT DISTINCT v.metric, v.unit FROM record r "
            "JOIN value v ON v.record = r.id {where} ORDER BY 1, 2"
        )
        return [(metric, unit) for metric, unit in self._all(query, sql)]

    def find(self, query: Query, limit: int | None = None) -> list[RecordRow]:
        """Rows of records, newest first."""
        sql = (
            f"SELECT {rows.COLUMNS_OF_ROW}, {_TAGS} FROM record r {{where}} "  # noqa: S608
            "ORDER BY r.at DESC, r.id DESC LIMIT ?"
        )
        return list(map(rows.row, self._all(query, sql, _limit(limit))))

    def list_runs(
        self, query: Query, limit: int | None = None, *, folded: bool = True
    ) -> list[RunRow]:
        """Runs that have records of the query, newest first; only those records are counted.

        `folded`: the runs of each side of one `fleet ab` are one row, named by their tag.
        """
        run, of_values = (by_side("r"), by_side("s")) if folded else ("run_id", "run_id")
        sql = (
            f"SELECT {run}, group_concat(DISTINCT r.name), count(DISTINCT r.host), count(*), "  # noqa: S608 - our own names
            "sum(r.counts), sum(r.emulated IS 1), sum(r.emulated IS 0), max(r.started), "
            f"json_group_array(DISTINCT r.run_id) FROM record r {{where}} GROUP BY 1 "
            "ORDER BY max(r.at) DESC, 1 LIMIT ?"
        )
        found = list(self._all(query, sql, _limit(limit)))
        numbers: dict[str, list[tuple[float | None, str | None, float]]] = {}
        ids = json.dumps([run_id for *_, run_ids in found for run_id in json.loads(run_ids)])
        for name, *measured in self._all(query, _NUMBERS.replace("run", of_values, 1), ids):
            numbers.setdefault(name, []).append((*measured,))
        return [rows.measured(rows.run_row(cells[:-1]), numbers.get(cells[0], []))
                for cells in found]  # fmt: skip

    def count(self, query: Query) -> int:
        """How many records the query finds."""
        ((count,),) = self._all(query, "SELECT count(*) FROM record r {where}")
        return int(count)

    def tag(self, query: Query, name: str, *, away: bool = False) -> int:
        """Put a tag on records, or take it away; how many changed. Raises InputError."""
        self._changing(query)
        with database.mapped_errors(self.path):
            return marking.tag(self.link, query, name, away=away)

    def save_baseline(self, name: str, query: Query, *, replace: bool = False) -> int:
        """Keep what the query finds now under a name; how many records. Raises InputError."""
        self._changing(query)
        with database.mapped_errors(self.path):
            return marking.save(self.link, name, query, replace=replace)

    def remove_baseline(self, name: str) -> None:
        """Forget the name. Raises InputError where it is not known."""
        with database.mapped_errors(self.path):
            marking.remove(self.link, name)

    def baselines(self) -> list[marking.Baseline]:
        """All saved ones."""
        with database.mapped_errors(self.path):
            return marking.baselines(self.link)

    def _changing(self, query: Query) -> None:
        if query.reference:
            raise InputError(
                "you cannot tag or change reference results, because they come with fleet",
                hint="choose results of your own: fleet profiles tag last NAME",
            )
        self._where(query)

    def _where(self, query: Query) -> tuple[str, list[object]]:
        for name in query.baselines:
            with database.mapped_errors(self.path):
                marking.known(self.link, name)
        return query.sql()

    def _all(self, query: Query, sql: str, *values: object) -> Iterator[tuple[Any, ...]]:
        """The rows of a statement; a shipped reference is a database in memory of its own.

        `{where}` in it becomes what selects the records; `values` stand behind those of that.
        """
        where, wanted = self._where(query)
        with database.mapped_errors(self.path):
            link = self._reference(query.reference) if query.reference else self.link
            yield from link.execute(sql.format(where=where), [*wanted, *values])

    def _reference(self, name: str) -> sqlite3.Connection:
        if name not in self._references:
            data = references.plain(name)
            link = self._references[name] = sqlite3.connect(":memory:", isolation_level=None)
            database.prepare(link, self.path)
            rows.insert(link, Record.from_dict(data), data, "")
        return self._references[name]


def _limit(limit: int | None) -> int:
    return -1 if limit is None else limit


def _plain(cells: tuple[Any, ...]) -> dict[str, Any]:
    data, tags = cells
    return {**rows.unpacked(data), "tags": rows.tags_of(tags)}
