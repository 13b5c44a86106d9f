"""The claim of a run: its folder with an empty journal, and the note of the newest run.

`fleet deploy` claims its run before it loads anything else. A deploy that is killed in its first
second leaves the claim, so that `fleet deploy --resume last` does not resume the previous run.
"""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from fleet.model.deadline import Deadline
from fleet.model.errors import FleetError, InputError
from fleet.model.home import private_folder, runs_home, write_private
from fleet.profiles.runs import new_run_id

NAME = "journal.jsonl"
LOCK_SECONDS = 0.3
_POINTER = ".last-run"  # the clock of a workstation may be wrong; the order of the runs is not


@dataclass
class Claim:
    """A run that this process has begun; `file` is its empty journal, open and locked."""

    run_id: str
    path: Path
    file: int


_early: list[Claim] = []


def claim(path: Path) -> int:
    """Create the empty journal of a run, and note the run as the newest. Raises OSError."""
    private_folder(path.parent)
    file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
    lock(file, path)
    _sync_folder(path.parent)
    root = path.parents[1]
    _note(root, path.parent.name, *_noted(root)[:1])
    return file


def forget(path: Path) -> None:
    """Remove a run that was refused before it began; the previous run is the newest again."""
    root = path.parents[1]
    path.unlink(missing_ok=True)
    with suppress(OSError):  # the folder may contain other files
        path.parent.rmdir()
        noted = _noted(root)
        if noted[:1] == [path.parent.name]:
            _note(root, *noted[1:])


def _note(root: Path, *run_ids: str) -> None:
    """Note the newest run and the previous one; without arguments delete the note."""
    if not run_ids:
        (root / _POINTER).unlink()
        return
    part = root / f"{_POINTER}.{os.getpid()}"
    write_private(part, "\n".join(run_ids))
    part.replace(root / _POINTER)


def _noted(root: Path) -> list[str]:
    with suppress(OSError, UnicodeDecodeError):
        return (root / _POINTER).read_text("utf-8").split("\n")
    return []


def newest(root: Path, run_ids: Iterable[str]) -> str:
    """Return the run that was begun last, out of at least one.

    A run without the note is of an earlier fleet: its name contains the time. A time in the future
    means a wrong clock and is ignored.
    """
    known = sorted(run_ids)
    noted = next((run_id for run_id in _noted(root)[:1] if run_id in known), "")
    now = time.strftime("%Y%m%d-%H%M%S-~", time.gmtime())
    later = [run_id for run_id in known if noted < run_id <= now]
    return later[-1] if later else noted or known[-1]


def claim_early() -> None:
    """Claim a run for this process. If that fails, the deploy itself reports it."""
    run_id = new_run_id()
    with suppress(OSError, FleetError):
        path = runs_home() / run_id / NAME
        _early.append(Claim(run_id, path, claim(path)))


def claimed() -> str:
    """Return the id of the run that was claimed early, "" if there is none."""
    return _early[0].run_id if _early else ""


def adopt(path: Path) -> int | None:
    """Return the open journal of the early claim if it has this path."""
    if _early and _early[0].path == path:
        return _early.pop().file
    return None


def drop_early() -> None:
    """Remove a claim that no deploy adopted, because the command was refused before it began."""
    while _early:
        early = _early.pop()
        os.close(early.file)
        with suppress(OSError):
            forget(early.path)


def lock(file: int, path: Path) -> None:
    """Lock the run. Raises InputError if another process works on it.

    Retries for LOCK_SECONDS, because `busy` in another process holds the lock briefly.
    """
    deadline = Deadline(LOCK_SECONDS)
    while True:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            if deadline.expired:
                raise InputError(
                    f"another fleet process is working on run {path.parent.name}",
                    hint="wait until that process ends, or end it yourself; fleet deploy --runs "
                    "(shows the progress)",
                ) from error
            time.sleep(LOCK_SECONDS / 10)
        else:
            return


def _sync_folder(folder: Path) -> None:
    """Sync the folder entries of the file and of its folder."""
    for path in (folder, folder.parent):
        file = os.open(path, os.O_RDONLY)
        try:
            os.fsync(file)
        finally:
            os.close(file)
