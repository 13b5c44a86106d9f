"""Where fleet keeps its own things on the workstation: for its user alone.

Journals, records, logs and caches hold what devices said. Folders below `fleet_home()` are 0700
and files 0600, whatever the umask; elsewhere, where a user wants them, the umask decides.
"""

from __future__ import annotations

import contextlib
import errno
import os
import shlex
import stat
from collections.abc import Callable, Iterator
from io import BufferedWriter
from pathlib import Path
from typing import Literal

from fleet.model.errors import WorkstationError, reason

_FULL = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EROFS})  # of a disk; no link says these


def fleet_home() -> Path:
    """`$FLEET_HOME`, else `$XDG_DATA_HOME/fleet`, else `~/.local/share/fleet`."""
    own = os.environ.get("FLEET_HOME")
    if own:
        return Path(own).expanduser()
    data = os.environ.get("XDG_DATA_HOME")
    return (Path(data) if data else Path("~/.local/share").expanduser()) / "fleet"


_projects: list[Callable[[], Path | None]] = []


def ask_for_runs(project: Callable[[], Path | None]) -> None:
    """Who knows where the project keeps its runs; asked when that is needed."""
    _projects[:] = [project]


def runs_home() -> Path:
    """The folder of runs: the project's, else `runs` in fleet's home."""
    return next(filter(None, (ask() for ask in _projects)), fleet_home() / "runs")


def private_folder(path: Path) -> None:
    """Make a folder with those above it; below the home those that are wide are tightened.

    Raises OSError as `mkdir` does. One that another user owns, or that is sticky as /tmp is, stays
    as it is.
    """
    home = fleet_home()
    inside = path.is_relative_to(home)
    try:
        path.mkdir(0o700 if inside else 0o777)
    except FileNotFoundError:
        private_folder(path.parent)
        with contextlib.suppress(FileExistsError):
            path.mkdir(0o700 if inside else 0o777)
    except FileExistsError:
        if not path.is_dir():
            raise
    while inside and path != home.parent:
        _tighten(path)
        path = path.parent


def _tighten(folder: Path) -> None:
    with contextlib.suppress(OSError):
        about = folder.lstat()
        shared = about.st_mode & stat.S_ISVTX or about.st_uid != os.geteuid()
        if stat.S_ISDIR(about.st_mode) and about.st_mode & 0o077 and not shared:
            folder.chmod(about.st_mode & 0o700)


def open_private(path: str | Path, mode: Literal["wb", "xb", "ab"] = "wb") -> BufferedWriter:
    """`open` for a file of fleet's own."""
    return open(path, mode, opener=_opener)


def _opener(path: str, flags: int) -> int:
    inside = str(path).startswith(f"{fleet_home()}/")
    return os.open(path, flags, 0o600 if inside else 0o666)


def write_private(path: Path, data: str | bytes) -> None:
    """`write_bytes`, or `write_text` in UTF-8, for a file of fleet's own."""
    with open_private(path) as stream:
        stream.write(data.encode() if isinstance(data, str) else data)


@contextlib.contextmanager
def kept(path: Path) -> Iterator[None]:
    """Around the writing of a file of ours: every OSError is a WorkstationError with its path."""
    try:
        yield
    except OSError as error:
        raise unwritable(path, error) from error


def unwritable(path: Path, error: OSError) -> WorkstationError:
    """Path, cause and cure; `path` need not be there."""
    above = (path.parent, *path.parents)
    there = next(folder for folder in above if os.path.exists(folder))  # noqa: PTH110 - EACCES
    look = "free disk space: df -h" if error.errno in _FULL else "check the permissions: ls -ld"
    ours = path.is_relative_to(fleet_home())
    other = "set FLEET_HOME to a folder on another disk" if ours else "choose another folder"
    return WorkstationError(
        f"cannot write {path} on this workstation: {reason(error)}",
        hint=f"{look} {shlex.quote(str(there))}; or {other}",
    )


def disk_full(error: Exception) -> WorkstationError | None:
    """That error, where the words of the system are those of a disk of ours that is full."""
    if not isinstance(error, OSError) or error.errno not in _FULL:
        return None
    return unwritable(Path(os.fsdecode(error.filename)) if error.filename else fleet_home(), error)
