"""The SQLite file: opening it, its tables, its version.

The journal is SQLite's rollback journal (delete), not WAL. The user's folder may be on NFS, where
WAL does not work (sqlite.org/wal.html: all processes must be on one host). Writers wait for each
other for up to BUSY_SECONDS.
"""

from __future__ import annotations

import shlex
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from fleet.model.errors import InputError, ProfileStoreError, reason
from fleet.model.home import open_private, private_folder
from fleet.model.metrics import FIELDS

VERSION = 1
MARK = 0x464C5052  # application_id: FLPR
BUSY_SECONDS = 60.0
_TABLES = f"""
CREATE TABLE record (
  id INTEGER PRIMARY KEY, key TEXT NOT NULL UNIQUE, run_id TEXT NOT NULL, host TEXT NOT NULL,
  name TEXT NOT NULL, release TEXT NOT NULL, runner TEXT NOT NULL, repeat INTEGER NOT NULL,
  warmup INTEGER NOT NULL, counts INTEGER NOT NULL, emulated INTEGER, started TEXT NOT NULL,
  at TEXT NOT NULL, identity TEXT NOT NULL, chip TEXT NOT NULL, runtime TEXT NOT NULL,
  finish TEXT NOT NULL, problems TEXT NOT NULL, seconds REAL, source TEXT NOT NULL,
  {", ".join(f"{name} REAL" for name in FIELDS)});
CREATE INDEX record_at ON record (at);
CREATE INDEX record_run ON record (run_id, at);
CREATE INDEX record_host ON record (host, at);
CREATE INDEX record_name ON record (name, at);
CREATE TABLE body (record INTEGER PRIMARY KEY, data BLOB NOT NULL);
CREATE TABLE value (record INTEGER NOT NULL, metric TEXT NOT NULL, value REAL NOT NULL,
  unit TEXT NOT NULL, PRIMARY KEY (record, metric)) WITHOUT ROWID;
CREATE TABLE raw (record INTEGER NOT NULL, name TEXT NOT NULL, sha256 TEXT NOT NULL,
  size INTEGER NOT NULL, PRIMARY KEY (record, name)) WITHOUT ROWID;
CREATE TABLE tag (name TEXT NOT NULL, record INTEGER NOT NULL,
  PRIMARY KEY (name, record)) WITHOUT ROWID;
CREATE INDEX tag_record ON tag (record);
CREATE TABLE baseline (name TEXT PRIMARY KEY, selection TEXT NOT NULL, made TEXT NOT NULL);
CREATE TABLE baseline_record (baseline TEXT NOT NULL, record INTEGER NOT NULL,
  PRIMARY KEY (baseline, record)) WITHOUT ROWID;
CREATE TABLE seen (run TEXT PRIMARY KEY, stamp INTEGER NOT NULL);
CREATE TABLE bad (path TEXT PRIMARY KEY, message TEXT NOT NULL);
PRAGMA user_version = {VERSION};
PRAGMA application_id = {MARK};
"""


def connect(path: Path) -> sqlite3.Connection:
    """Open the database; create the file and its tables if they do not exist.

    Raises ProfileStoreError if the file is not a database, was written by a newer fleet, or is not
    writable. Raises InputError if it belongs to another program.
    """
    with mapped_errors(path):
        private_folder(path.parent)
        open_private(
            path, "ab"
        ).close()  # sets the permissions; SQLite uses the same ones for its other files
        link = sqlite3.connect(path, timeout=BUSY_SECONDS, isolation_level=None)
    try:
        with mapped_errors(path):
            prepare(link, path)
    except BaseException:
        link.close()
        raise
    return link


@contextmanager
def mapped_errors(path: Path) -> Iterator[None]:
    """Map errors of SQLite and of the file to ProfileStoreError with a hint."""
    try:
        yield
    except sqlite3.DatabaseError as error:
        text = str(error)
        if "malformed" in text or "not a database" in text:
            quoted = shlex.quote(str(path))
            raise ProfileStoreError(
                f"the database {path} is damaged: {text}",
                hint=f"mv {quoted} {quoted}.broken && fleet profiles list (imports the runs again)",
            ) from error
        locked = "locked" in text
        hint = (
            ("wait until the other fleet process ends, then run the command again")
            if locked
            else f"ls -l {path.parent}"
        )
        raise ProfileStoreError(
            f"fleet cannot use the database {path}: {text}", hint=hint
        ) from error
    except OSError as error:
        raise ProfileStoreError(
            f"cannot open or create the database {path}: {error.filename or path}: {reason(error)}",
            hint="name a file in a folder that you can write to: --store FOLDER/FILE.db",
        ) from error


@contextmanager
def writing(link: sqlite3.Connection) -> Iterator[None]:
    """Run the body as one transaction. Other writers wait from its beginning."""
    link.execute("BEGIN IMMEDIATE")
    try:
        yield
    except BaseException:
        link.execute("ROLLBACK")
        raise
    link.execute("COMMIT")


def prepare(link: sqlite3.Connection, path: Path) -> None:
    """Create the tables if there are none. Raises InputError, ProfileStoreError, as `connect`."""
    version = _pragma(link, "user_version")
    if version == 0:
        with writing(link):
            if _pragma(link, "user_version") == 0:  # no other process created them in the meantime
                if link.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]:
                    raise _foreign(path)
                for statement in filter(str.strip, _TABLES.split(";")):
                    link.execute(statement)
    elif _pragma(link, "application_id") != MARK:
        raise _foreign(path)
    elif version > VERSION:
        raise ProfileStoreError(
            f"a newer version of fleet wrote {path} (database version {version}, but this fleet "
            f"reads {VERSION})",
            hint="pip install --upgrade npu-fleet, or name another file: --store FILE.db",
        )
    else:
        _add_columns(link)
    link.execute("PRAGMA synchronous = FULL")
    link.execute("PRAGMA temp_store = MEMORY")


def _add_columns(link: sqlite3.Connection) -> None:
    """Add a column for each metric that was introduced after this file was created."""

    def missing() -> list[str]:
        return [name for name in FIELDS if name not in columns_of(link)]

    if missing():
        with writing(link):
            for name in missing():  # those that no other process added in the meantime
                link.execute(f"ALTER TABLE record ADD COLUMN {name} REAL")


def columns_of(link: sqlite3.Connection) -> set[str]:
    """Return the names of the columns of the table of records."""
    return {name for _, name, *_ in link.execute("PRAGMA table_info(record)")}


def _foreign(path: Path) -> InputError:
    return InputError(
        f"{path} is the database of another program", hint="name another file: --store FILE.db"
    )


def _pragma(link: sqlite3.Connection, name: str) -> int:
    return int(link.execute(f"PRAGMA {name}").fetchone()[0])
