"""Where fleet keeps its own things on the workstation."""

from __future__ import annotations

import errno
import os
import shlex
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from fleet.model.errors import WorkstationError

_FULL = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EROFS})  # of a disk; no link says these


def fleet_home() -> Path:
    """`$FLEET_HOME`, else `$XDG_DATA_HOME/fleet`, else `~/.local/share/fleet`."""
    own = os.environ.get("FLEET_HOME")
    if own:
        return Path(own).expanduser()
    data = os.environ.get("XDG_DATA_HOME")
    return (Path(data) if data else Path("~/.local/share").expanduser()) / "fleet"


@contextmanager
def kept(path: Path) -> Iterator[None]:
    """Around the writing of a file of ours: every OSError is a WorkstationError with its path."""
    try:
        yield
    except OSError as error:
        raise unwritable(path, error) from error


def unwritable(path: Path, error: OSError) -> WorkstationError:
    """Path, cause and cure; `path` need not be there."""
    there = next(folder for folder in (path.parent, *path.parents) if folder.exists())
    look = "free space: df -h" if error.errno in _FULL else "look who may write: ls -ld"
    return WorkstationError(
        f"this workstation cannot write {path}: {error.strerror or error}",
        hint=f"{look} {shlex.quote(str(there))}; or set FLEET_HOME to a folder on another disk",
    )


def disk_full(error: Exception) -> WorkstationError | None:
    """That error, where the words of the system are those of a disk of ours that is full."""
    if not isinstance(error, OSError) or error.errno not in _FULL:
        return None
    return unwritable(Path(os.fsdecode(error.filename)) if error.filename else fleet_home(), error)
