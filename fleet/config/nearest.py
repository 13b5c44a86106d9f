"""The search for the fleet.yaml of a folder, without reading it."""

from __future__ import annotations

import os
import stat
from pathlib import Path

FILE = "fleet.yaml"


def find(folder: Path) -> Path | None:
    """Return the nearest fleet.yaml, upwards to the root of the file system, or None.

    One of another user in a folder that everybody may write to (/tmp) is passed over: it could
    stop the work of everybody below. Whether the one that is found is trusted: `trusted.require`.
    """
    for above in (folder, *folder.parents):
        path = above / FILE
        if path.is_file() and not _planted(path):
            return path
    return None


def _planted(path: Path) -> bool:
    """Return whether it stands in a folder for everybody and is not of this user or root."""
    shared = path.parent.stat().st_mode & stat.S_IWOTH
    return bool(shared) and _owner(path) not in {os.geteuid(), 0}


def _owner(path: Path) -> int:
    return path.lstat().st_uid
