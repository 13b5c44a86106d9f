"""Cache files that many processes write atomically; the oldest are removed."""

from __future__ import annotations

import contextlib
import os
import threading
from pathlib import Path

from fleet.model.home import private_folder, write_private


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
