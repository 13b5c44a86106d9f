"""Tags and baselines: names that the user gives to records."""

from __future__ import annotations

import sqlite3
import time
from dataclasses import asdict, dataclass
from typing import Any

from fleet.model.errors import InputError
from fleet.profiles.store.database import writing
from fleet.profiles.store.select import Query, named


@dataclass(frozen=True)
class Baseline:
    """Records that stay the same whatever is measured later. `made` is UTC."""

    name: str
    selection: str
    made: str
    records: int

    def as_dict(self) -> dict[str, Any]:
        """For --json."""
        return asdict(self)


def tag(link: sqlite3.Connection, query: Query, name: str, *, away: bool = False) -> int:
    """Put the tag on the records, or take it away; how many changed. Raises InputError."""
    where, values = query.sql()
    if away:
        sql = f"DELETE FROM tag WHERE name = ? AND record IN (SELECT r.id FROM record r {where})"  # noqa: S608
    else:
        named(name, "tag")
        sql = f"INSERT OR IGNORE INTO tag SELECT ?, r.id FROM record r {where}"  # noqa: S608
    with writing(link):
        return link.execute(sql, [name, *values]).rowcount


def save(link: sqlite3.Connection, name: str, query: Query, *, replace: bool) -> int:
    """Keep the records of a selection as a baseline; how many. Raises InputError."""
    named(name, "baseline")
    where, values = query.sql()
    made = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    with writing(link):
        chosen = link.execute(f"SELECT r.id FROM record r {where}", values).fetchall()  # noqa: S608
        if not chosen:
            raise InputError(f"no stored result matches '{query.text}'", hint="fleet profiles list")
        known = link.execute("SELECT 1 FROM baseline WHERE name = ?", (name,)).fetchone()
        if known and not replace:
            raise InputError(
                f"a baseline named '{name}' already exists",
                hint=f"fleet profiles baseline save {name} {query.text} --replace",
            )
        _forget(link, name)
        link.execute("INSERT INTO baseline VALUES (?, ?, ?)", (name, query.text, made))
        pairs = [(name, number) for (number,) in chosen]
        link.executemany("INSERT INTO baseline_record VALUES (?, ?)", pairs)
    return len(chosen)


def remove(link: sqlite3.Connection, name: str) -> None:
    """Forget a baseline; its records stay. Raises InputError where there is none."""
    known(link, name)
    with writing(link):
        _forget(link, name)


def known(link: sqlite3.Connection, name: str) -> None:
    """Raises InputError for a baseline that is not there."""
    if not link.execute("SELECT 1 FROM baseline WHERE name = ?", (name,)).fetchone():
        raise InputError(
            f"no baseline is named '{name}'",
            hint=f"fleet profiles baseline list, or: fleet profiles baseline save {name} last",
        )


def baselines(link: sqlite3.Connection) -> list[Baseline]:
    """All of them by name."""
    found = link.execute(
        "SELECT b.name, b.selection, b.made, count(r.record) FROM baseline b "
        "LEFT JOIN baseline_record r ON r.baseline = b.name GROUP BY b.name ORDER BY b.name"
    )
    return [Baseline(*row) for row in found]


def _forget(link: sqlite3.Connection, name: str) -> None:
    link.execute("DELETE FROM baseline WHERE name = ?", (name,))
    link.execute("DELETE FROM baseline_record WHERE baseline = ?", (name,))
