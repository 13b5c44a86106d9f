"""The search for the fleet.yaml of a folder, without reading it."""

from __future__ import annotations

import os
import stat
from pathlib import Path

FILE = "fleet.yaml"


def find(folder: Path) -> Path | None:
    """Return the nearest fleet.yaml in the folder or a parent, or None.

    In a folder that everybody may write to (/tmp), a file of another user is skipped: it could
    block the work of everybody below. `trusted.require` decides if the file is trusted.
    """
    for above in (folder, *folder.parents):
        path = above / FILE
        if path.is_file() and not _planted(path):
            return path
    return None


def _planted(path: Path) -> bool:
    """Return True if the file is in a world-writable folder and belongs neither to this user nor to
    root.
    """
    shared = path.parent.stat().st_mode & stat.S_IWOTH
    return bool(shared) and _owner(path) not in {os.geteuid(), 0}


def _owner(path: Path) -> int:
    return path.lstat().st_uid
