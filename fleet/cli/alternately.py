"""The `fleet ab` that measures two groups of runs anew, in turns: of what is known of them."""

from __future__ import annotations

import shlex
from pathlib import Path

from fleet.cli import project
from fleet.config.playbook import load_playbook
from fleet.engine.rollout.claim import NAME
from fleet.engine.rollout.journal import Journal
from fleet.model.errors import FleetError
from fleet.model.text import from_here
from fleet.profiles.compare.comparing import Comparison
from fleet.profiles.compare.groups import RecordGroup
from fleet.profiles.runs import RunStore

UNKNOWN = "fleet ab -h (shows how to compare two playbooks, bundles or releases)"
_MOST = 3  # devices that are named one by one


def command(found: Comparison) -> str:
    """What can be pasted: with the playbooks of both sides, else with their releases, else the
    help of the command.
    """
    sides = found.a, found.b
    books, inventories = zip(*map(_files, sides), strict=True)
    releases = [{record.release for record in side.records} for side in sides]
    inventory = project.supplied("inventory") or next(filter(None, inventories[::-1]), None)
    if inventory is None:
        return UNKNOWN
    if all(books) and books[0] != books[1]:
        words = [from_here(str(book)) for book in books]
    else:
        book = books[1] or _of_project(found.b)
        apart = releases[0] != releases[1] and all(len(ids) == 1 and all(ids) for ids in releases)
        if book is None or not apart:
            return UNKNOWN
        words = [*(ids.pop() for ids in releases), "--playbook", from_here(str(book))]
    if project.supplied("inventory") is None:
        words += ["-i", from_here(str(inventory))]
    hosts = sorted({r.host for r in found.a.records} & {r.host for r in found.b.records})
    words += [word for host in hosts for word in ("-l", host)] if len(hosts) <= _MOST else []
    return f"fleet ab {shlex.join(words)} (runs A and B alternately)"


def _files(side: RecordGroup) -> tuple[Path | None, Path | None]:
    """Playbook and inventory of a side whose runs are deploys of one playbook, as they are now."""
    found = set()
    for run_id in {record.run_id for record in side.records}:
        try:
            inputs = Journal.read(RunStore().root / run_id / NAME).header["inputs"]
        except (FleetError, OSError, KeyError, TypeError):
            return None, None
        found.add((Path(inputs["playbook"]), Path(inputs["inventory"])))
    book, inventory = found.pop() if len(found) == 1 else (None, None)
    return (book, inventory) if book and book.is_file() else (None, None)


def _of_project(side: RecordGroup) -> Path | None:
    """The project's playbook, where it is that of the runs."""
    path = project.supplied("playbook")
    try:
        named = path is not None and load_playbook(path).name == side.records[0].name
    except FleetError:
        return None
    return path if named else None
