"""Runs that fleet left in its folder are taken into the store, each once.

RunStore touches the folder of a run when it has saved a record in it: a run is looked into
again only where that time is another one than at the last two looks. Two, because a record may
be saved within the tick of the file system's clock in which we looked; no clock of ours is asked.
"""

from __future__ import annotations

import json
import os
import sqlite3
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from fleet.model.errors import InputError, reason
from fleet.model.record import Record
from fleet.profiles.runs import is_run, record_files
from fleet.profiles.store.database import writing
from fleet.profiles.store.rows import insert

TURN = 500


@dataclass(frozen=True)
class UnreadableFile:
    """A file that cannot be read, and why."""

    path: str
    message: str


@dataclass(frozen=True)
class _Run:
    """What a run's folder has that is new. `stamp` is below 0 where it was seen so for the
    first time.
    """

    name: str
    stamp: int
    found: list[tuple[Path, tuple[Record, dict[str, object]] | str]]


def take(link: sqlite3.Connection, root: Path) -> list[UnreadableFile]:
    """Take in what is new below `root`; all files that cannot be read now."""
    seen = dict(link.execute("SELECT run, stamp FROM seen"))
    turn: list[_Run] = []
    for run, stamp in _runs(root):
        if seen.get(run) != stamp:
            first = seen.get(run) != -stamp
            turn.append(_look(link, root / run, -stamp if first else stamp))
        if sum(len(run.found) for run in turn) >= TURN:
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
        with os.scandir(root) as found:
            for entry in found:
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
    """One transaction: each costs a flush of the disk."""
    if not runs:
        return
    with writing(link):
        for run in runs:
            for path, read in run.found:
                _put(link, path, read)
            link.execute("REPLACE INTO seen VALUES (?, ?)", (run.name, run.stamp))


def _again(link: sqlite3.Connection, path: str) -> None:
    """A file that was bad: gone, healed, or bad as before."""
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
