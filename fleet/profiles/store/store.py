"""The store: queries, import of runs, raw files, tags and baselines."""

from __future__ import annotations

import hashlib
import json
import os
import secrets
import sqlite3
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from fleet.model.deadline import utc_text
from fleet.model.errors import InputError, ProfileStoreError, reason
from fleet.model.home import fleet_home, open_private, private_folder, runs_home
from fleet.model.metrics import MIDDLES, PRIMARY
from fleet.model.record import Record
from fleet.profiles import references
from fleet.profiles.runs import is_run, record_files
from fleet.profiles.store import database, rows
from fleet.profiles.store.database import writing
from fleet.profiles.store.rows import RecordRow, RunRow, insert
from fleet.profiles.store.select import Query, named
from fleet.profiles.store.select import folded as by_side

# Runs in fleet's folder are imported into the store, each once.
#
# RunStore updates the time of a run's folder when it has saved a record in it. A run is read
# again only if that time differs from the last two scans. Two scans, because a record may be
# saved within the same tick of the file system's clock as a scan. fleet's own clock is not used.

TURN = 500


@dataclass(frozen=True)
class UnreadableFile:
    """A file that cannot be read, and why."""

    path: str
    message: str


@dataclass(frozen=True)
class _Run:
    """The new files of a run's folder.

    `stamp` is negative if the folder was scanned with this time for the first time.
    """

    name: str
    stamp: int
    files: list[tuple[Path, tuple[Record, dict[str, object]] | str]]


def take(link: sqlite3.Connection, root: Path) -> list[UnreadableFile]:
    """Import the new records below `root`. Return all files that cannot be read now."""
    stamps = dict(link.execute("SELECT run, stamp FROM seen"))
    turn: list[_Run] = []
    for run, stamp in _runs(root):
        if stamps.get(run) != stamp:
            first = stamps.get(run) != -stamp
            turn.append(_look(link, root / run, -stamp if first else stamp))
        if sum(len(run.files) for run in turn) >= TURN:
            _put_runs(link, turn)
            turn = []
    _put_runs(link, turn)
    for (path,) in link.execute("SELECT path FROM bad").fetchall():
        _again(link, path)
    return [
        UnreadableFile(*row) for row in link.execute("SELECT path, message FROM bad ORDER BY path")
    ]


def _runs(root: Path) -> Iterator[tuple[str, int]]:
    try:
        with os.scandir(root) as entries:
            for entry in entries:
                if entry.is_dir() and is_run(entry.name):
                    yield entry.name, entry.stat().st_mtime_ns
    except FileNotFoundError:
        return


def _look(link: sqlite3.Connection, folder: Path, stamp: int) -> _Run:
    sql = "SELECT source FROM record WHERE run_id = ?"
    known = {source for (source,) in link.execute(sql, (folder.name,))}
    paths = [path for path in record_files(folder) if str(path) not in known]
    return _Run(folder.name, stamp, [(path, _read(path)) for path in paths])


def _put_runs(link: sqlite3.Connection, runs: list[_Run]) -> None:
    """Write the runs in one transaction, because each transaction costs a flush of the disk."""
    if not runs:
        return
    with writing(link):
        for run in runs:
            for path, read in run.files:
                _put(link, path, read)
            link.execute("REPLACE INTO seen VALUES (?, ?)", (run.name, run.stamp))


def _again(link: sqlite3.Connection, path: str) -> None:
    """Check a file again that could not be read: it is missing, repaired, or still unreadable."""
    file = Path(path)
    read = _read(file) if file.exists() else None
    known = link.execute("SELECT message FROM bad WHERE path = ?", (path,)).fetchone()
    if isinstance(read, str) and known == (read,):
        return
    with writing(link):
        link.execute("DELETE FROM bad WHERE path = ?", (path,))
        if read is not None:
            _put(link, file, read)


def _read(path: Path) -> tuple[Record, dict[str, object]] | str:
    try:
        data = json.loads(path.read_bytes())
        return Record.from_dict(data), data
    except OSError as error:
        return f"cannot be read: {reason(error)}"
    except InputError as error:
        return error.message
    except (ValueError, RecursionError) as error:
        return f"is damaged: {reason(error)}"


def _put(
    link: sqlite3.Connection, path: Path, read: tuple[Record, dict[str, object]] | str
) -> None:
    if isinstance(read, str):
        link.execute("REPLACE INTO bad VALUES (?, ?)", (str(path), read))
    else:
        insert(link, read[0], read[1], str(path))


# Raw files by content: `profiles.raw/ab/ab12…`, each content once, written atomically.

MOST_WAITING = 64 << 20


class RawFiles:
    """The folder of raw files next to the database.

    Raises ProfileStoreError if it cannot be written.
    """

    def __init__(self, database: Path) -> None:
        self.root = database.with_suffix(".raw")
        self._root = str(self.root)
        self._own = secrets.token_hex(4)
        self._made: set[str] = set()
        self._waiting: dict[str, bytes] = {}
        self._bytes = 0
        self._fresh = False

    def keep(self, data: bytes) -> str:
        """Accept a content and return its sha256. `settle` writes it to the disk."""
        sha256 = hashlib.sha256(data).hexdigest()
        self._waiting[sha256] = data
        self._bytes += len(data)
        if self._bytes > MOST_WAITING:
            self._write_all()
        return sha256

    def settle(self) -> None:
        """Write the accepted contents, so that they survive a power cut, with one flush for all."""
        self._write_all()
        if self._fresh and hasattr(os, "sync"):
            os.sync()
        self._fresh = False

    def _write_all(self) -> None:
        waiting, self._waiting, self._bytes = self._waiting, {}, 0
        for sha256, data in waiting.items():
            self._fresh |= self._write(sha256, data)

    def _write(self, sha256: str, data: bytes) -> bool:
        """Write a content. Return False if it is already on the disk."""
        folder = f"{self._root}/{sha256[:2]}"
        target = f"{folder}/{sha256}"
        try:
            if _size(target) == len(data):
                return False
            if folder not in self._made:
                private_folder(Path(folder))
                self._made.add(folder)
            part = f"{target}.{self._own}.part"
            with open_private(part) as stream:
                stream.write(data)
            os.replace(part, target)  # noqa: PTH105
        except OSError as error:
            raise ProfileStoreError(
                f"{target} cannot be written: {reason(error)}",
                hint=f"free disk space, if the disk is full: df -h {self.root.parent}",
            ) from error
        return True


def _size(path: str) -> int:
    """Return the size of a file in bytes; -1 if it does not exist."""
    try:
        return os.stat(path).st_size  # noqa: PTH116 - many small files
    except FileNotFoundError:
        return -1


# Tags and baselines are names that the user gives to records.


@dataclass(frozen=True)
class Baseline:
    """A fixed set of records, which later runs do not change. `made` is UTC."""

    name: str
    selection: str
    made: str
    records: int


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
    """A store of records in one SQLite file.

    If `path` is None, the store is `profiles.db` in fleet's home, with the runs of its folder
    `runs`; in a project it is the folder of the project's runs. If `path` is a folder, the store
    has the records that `fleet run --output` wrote there, and the file `profiles.db` is in that
    folder. If `path` is a file (.db), the store has only records that were imported into it. Raises
    ProfileStoreError.
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
        """Close the database connections."""
        for link in (self.link, *self._references.values()):
            link.close()

    def look(self) -> list[UnreadableFile]:
        """Import the runs that are new since the last scan. Return files that cannot be read."""
        if self.runs is None:
            return []
        with database.mapped_errors(self.path):
            return take(self.link, self.runs)

    def records(self, query: Query, limit: int | None = None) -> list[Record]:
        """Return complete records, oldest first; `limit` keeps only the newest.

        Raises InputError for an unknown baseline or reference. Returns [] if no record matches.
        """
        return [Record.from_dict(data) for data in self.plain(query, limit)]

    def plain(self, query: Query, limit: int | None = None) -> list[dict[str, Any]]:
        """Return the plain data as it was imported, with the current tags, oldest first."""
        sql = f"{_BODIES} ORDER BY r.at DESC, r.id DESC LIMIT ?"
        return list(map(_plain, self._all(query, sql, _limit(limit))))[::-1]

    def newest(
        self, places: Collection[tuple[str, str, str]], limit: int
    ) -> dict[tuple[str, str, str], list[dict[str, Any]]]:
        """Return the newest records that count of each (host, name, release), newest first.

        There is a single statement for all places. A place without such a record is not in the
        result.
        """
        records: dict[tuple[str, str, str], list[dict[str, Any]]] = {}
        with database.mapped_errors(self.path):
            for *place, data, tags in self.link.execute(_NEWEST, (json.dumps([*places]), limit)):
                records.setdefault((place[0], place[1], place[2]), []).append(_plain((data, tags)))
        return records

    def each(self, query: Query) -> Iterator[dict[str, Any]]:
        """Yield the same data as `plain`, record by record, for more than fits into memory."""
        return map(_plain, self._all(query, f"{_BODIES} ORDER BY r.at, r.id"))

    def other_metrics(self, query: Query) -> list[tuple[str, str]]:
        """Return (name, unit) of all metrics of the records that have no column of their own."""
        sql = (
            "SELECT DISTINCT v.metric, v.unit FROM record r "
            "JOIN value v ON v.record = r.id {where} ORDER BY 1, 2"
        )
        return [(metric, unit) for metric, unit in self._all(query, sql)]

    def find(self, query: Query, limit: int | None = None) -> list[RecordRow]:
        """Return the rows of records, newest first."""
        sql = (
            f"SELECT {rows.COLUMNS_OF_ROW}, {_TAGS} FROM record r {{where}} "  # noqa: S608
            "ORDER BY r.at DESC, r.id DESC LIMIT ?"
        )
        return list(map(rows.row, self._all(query, sql, _limit(limit))))

    def list_runs(
        self, query: Query, limit: int | None = None, *, folded: bool = True
    ) -> list[RunRow]:
        """Return the runs that have matching records, newest first; only those records are counted.

        If `folded`, the runs of each side of one `fleet ab` are one row, named by their tag.
        """
        run, of_values = (by_side("r"), by_side("s")) if folded else ("run_id", "run_id")
        sql = (
            f"SELECT {run}, group_concat(DISTINCT r.name), count(DISTINCT r.host), count(*), "  # noqa: S608 - our own names
            "sum(r.counts), sum(r.emulated IS 1), sum(r.emulated IS 0), max(r.started), "
            f"json_group_array(DISTINCT r.run_id) FROM record r {{where}} GROUP BY 1 "
            "ORDER BY max(r.at) DESC, 1 LIMIT ?"
        )
        listed = list(self._all(query, sql, _limit(limit)))
        numbers: dict[str, list[tuple[float | None, str | None, float]]] = {}
        ids = json.dumps([run_id for *_, run_ids in listed for run_id in json.loads(run_ids)])
        for name, *measured in self._all(query, _NUMBERS.replace("run", of_values, 1), ids):
            numbers.setdefault(name, []).append((*measured,))
        return [rows.measured(rows.run_row(cells[:-1]), numbers.get(cells[0], []))
                for cells in listed]  # fmt: skip

    def count(self, query: Query) -> int:
        """Return the number of matching records."""
        ((count,),) = self._all(query, "SELECT count(*) FROM record r {where}")
        return int(count)

    def tag(self, query: Query, name: str, *, away: bool = False) -> int:
        """Add a tag to records (`away`: remove it). Return the changes. Raises InputError."""
        where, values = self._changing(query)
        if away:
            sql = (
                f"DELETE FROM tag WHERE name = ? AND record IN (SELECT r.id FROM record r {where})"  # noqa: S608
            )
        else:
            named(name, "tag")
            sql = f"INSERT OR IGNORE INTO tag SELECT ?, r.id FROM record r {where}"  # noqa: S608
        with database.mapped_errors(self.path), writing(self.link):
            return self.link.execute(sql, [name, *values]).rowcount

    def save_baseline(self, name: str, query: Query, *, replace: bool = False) -> int:
        """Save the current matches of the query under a name. Return their number.

        Raises InputError for an invalid name, for a name that exists, and if no record matches.
        """
        where, values = self._changing(query)
        named(name, "baseline")
        link = self.link
        with database.mapped_errors(self.path), writing(link):
            chosen = link.execute(f"SELECT r.id FROM record r {where}", values).fetchall()  # noqa: S608
            if not chosen:
                raise InputError(
                    f"no stored result matches '{query.text}'", hint="fleet profiles list"
                )
            if self._has_baseline(name) and not replace:
                raise InputError(
                    f"a baseline named '{name}' already exists",
                    hint=f"fleet profiles baseline save {name} {query.text} --replace",
                )
            self._forget(name)
            link.execute("INSERT INTO baseline VALUES (?, ?, ?)", (name, query.text, utc_text()))
            pairs = [(name, number) for (number,) in chosen]
            link.executemany("INSERT INTO baseline_record VALUES (?, ?)", pairs)
        return len(chosen)

    def remove_baseline(self, name: str) -> None:
        """Remove the baseline; its records stay. Raises InputError if it does not exist."""
        self._require_baseline(name)
        with database.mapped_errors(self.path), writing(self.link):
            self._forget(name)

    def baselines(self) -> list[Baseline]:
        """Return all saved baselines, by name."""
        sql = (
            "SELECT b.name, b.selection, b.made, count(r.record) FROM baseline b "
            "LEFT JOIN baseline_record r ON r.baseline = b.name GROUP BY b.name ORDER BY b.name"
        )
        with database.mapped_errors(self.path):
            return [Baseline(*row) for row in self.link.execute(sql)]

    def _has_baseline(self, name: str) -> bool:
        sql = "SELECT 1 FROM baseline WHERE name = ?"
        return self.link.execute(sql, (name,)).fetchone() is not None

    def _require_baseline(self, name: str) -> None:
        with database.mapped_errors(self.path):
            if not self._has_baseline(name):
                raise InputError(
                    f"no baseline is named '{name}'",
                    hint="fleet profiles baseline list, or: fleet profiles baseline save "
                    f"{name} last",
                )

    def _forget(self, name: str) -> None:
        self.link.execute("DELETE FROM baseline WHERE name = ?", (name,))
        self.link.execute("DELETE FROM baseline_record WHERE baseline = ?", (name,))

    def _changing(self, query: Query) -> tuple[str, list[object]]:
        if query.reference:
            raise InputError(
                "you cannot tag or change reference results, because they come with fleet",
                hint="choose results of your own: fleet profiles tag last NAME",
            )
        return self._where(query)

    def _where(self, query: Query) -> tuple[str, list[object]]:
        for name in query.baselines:
            self._require_baseline(name)
        return query.sql()

    def _all(self, query: Query, sql: str, *values: object) -> Iterator[tuple[Any, ...]]:
        """Yield the rows of a statement.

        A shipped reference is a database of its own in memory. `{where}` in the statement is
        replaced by the condition of the query; `values` follow the values of that condition.
        """
        where, wanted = self._where(query)
        with database.mapped_errors(self.path):
            link = self._reference(query.reference) if query.reference else self.link
            yield from link.execute(sql.format(where=where), [*wanted, *values])

    def _reference(self, name: str) -> sqlite3.Connection:
        if name not in self._references:
            shipped = references.plain(name)
            link = self._references[name] = sqlite3.connect(":memory:", isolation_level=None)
            database.prepare(link, self.path)
            for data in shipped:
                rows.insert(link, Record.from_dict(data), data, "")
        return self._references[name]


def _limit(limit: int | None) -> int:
    return -1 if limit is None else limit


def _plain(cells: tuple[Any, ...]) -> dict[str, Any]:
    data, tags = cells
    return {**rows.unpacked(data), "tags": rows.tags_of(tags)}
