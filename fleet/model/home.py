"""The folders of fleet's own files on the workstation, readable by their user only.

Journals, records, logs and caches contain the output of devices. Folders below `fleet_home()` have
mode 0700 and files 0600, whatever the umask. In other folders of the user the umask decides.
"""

from __future__ import annotations

import contextlib
import errno
import os
import shlex
import stat
import threading
from collections.abc import Callable, Iterator
from io import BufferedWriter
from pathlib import Path
from typing import Literal

from fleet.model.errors import WorkstationError, reason

# errors of a disk; a link never reports these
_FULL = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EROFS})


def fleet_home() -> Path:
    """Return `$FLEET_HOME`, else `$XDG_DATA_HOME/fleet`, else `~/.local/share/fleet`."""
    own = os.environ.get("FLEET_HOME")
    if own:
        return Path(own).expanduser()
    data = os.environ.get("XDG_DATA_HOME")
    return (Path(data) if data else Path("~/.local/share").expanduser()) / "fleet"


_projects: list[Callable[[], Path | None]] = []


def ask_for_runs(project: Callable[[], Path | None]) -> None:
    """Register the function that returns the project's folder of runs. It is called on demand."""
    _projects[:] = [project]


def runs_home() -> Path:
    """Return the folder of runs: the project's, else `runs` in fleet's home."""
    return next(filter(None, (ask() for ask in _projects)), fleet_home() / "runs")


def private_folder(path: Path) -> None:
    """Create a folder and its parents. Below fleet's home, tighten the mode of existing folders.

    Raises OSError like `mkdir`. A folder of another user, or a sticky one like /tmp, is not
    changed.
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
    """Open a file that only this user may read; `mode` as in `open`."""
    return open(path, mode, opener=_opener)


def _opener(path: str, flags: int) -> int:
    inside = str(path).startswith(f"{fleet_home()}/")
    return os.open(path, flags, 0o600 if inside else 0o666)


def write_private(path: Path, data: str | bytes) -> None:
    """Write bytes, or text in UTF-8, to one of fleet's own files."""
    with open_private(path) as stream:
        stream.write(data.encode() if isinstance(data, str) else data)


@contextlib.contextmanager
def kept(path: Path) -> Iterator[None]:
    """Turn every OSError of writing one of fleet's own files into a WorkstationError with
    its path.
    """
    try:
        yield
    except OSError as error:
        raise unwritable(path, error) from error


def unwritable(path: Path, error: OSError) -> WorkstationError:
    """Return an error with path, cause and cure. `path` may not exist."""
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
    """Return the WorkstationError for a full disk of this workstation, None for other errors."""
    if not isinstance(error, OSError) or error.errno not in _FULL:
        return None
    return unwritable(Path(os.fsdecode(error.filename)) if error.filename else fleet_home(), error)


def write_whole(path: Path, data: bytes) -> bool:
    """Write `data` to the file atomically. Return False if that fails: a home may be read-only."""
    part = path.with_name(f".{path.name}-{os.getpid()}-{threading.get_ident()}")
    try:
        private_folder(path.parent)
        write_private(part, data)
        part.replace(path)
    except OSError:
        with contextlib.suppress(OSError):
            part.unlink()
        return False
    return True


def keep_newest(folder: Path, count: int) -> None:
    """Remove all but the newest `count` files. Files that others remove meanwhile are ignored."""
    with contextlib.suppress(OSError):
        kept = sorted(folder.iterdir(), key=lambda file: file.stat().st_mtime)
        for old in kept[:-count]:
            old.unlink(missing_ok=True)
