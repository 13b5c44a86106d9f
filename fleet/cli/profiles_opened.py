"""The store of records as commands open it."""

from __future__ import annotations

from pathlib import Path

from fleet.cli import output
from fleet.profiles.store import ProfileStore


def opened(path: Path | None, *, look: bool = True) -> ProfileStore:
    """The store with the runs of now in it, unless `look` is off; unreadable files are named."""
    store = ProfileStore(path)
    for bad in store.look() if look else ():
        output.note(f"warning: {bad.path}: {bad.message}")
    return store
