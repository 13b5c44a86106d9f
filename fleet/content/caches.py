"""Files that only save time: written whole or not at all, by many processes; the oldest go."""

from __future__ import annotations

import contextlib
import os
import threading
from pathlib import Path

from fleet.model.home import private_folder, write_private


def write_whole(path: Path, data: bytes) -> bool:
    """Put `data` there in one rename. False where that cannot be: a home may be read-only."""
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
    """Remove all but so many files; what others remove meanwhile is no matter."""
    with contextlib.suppress(OSError):
        kept = sorted(folder.iterdir(), key=lambda one: one.stat().st_mtime)
        for old in kept[:-count]:
            old.unlink(missing_ok=True)
