"""The staging of files in a temporary folder of the store, with a scan of each, and the lock with
which one process at a time changes the store.
"""

from __future__ import annotations

import fcntl
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from fleet.model.deadline import Deadline
from fleet.model.errors import RuntimeStoreError, reason
from fleet.model.home import private_folder
from fleet.model.runtime import Library
from fleet.runtimes.layout import Layout, group_of
from fleet.runtimes.scan import scan_file
from fleet.runtimes.tree import FileTree, ZipTree

PREFIX = ".stage-"
_LEFTOVER_SECONDS = 24 * 3600.0  # the stage of a killed process; no add takes a day
_HEADROOM_BYTES = 50_000_000
# (activity, finished bytes, total bytes or None if unknown)
Progress = Callable[[str, int, int | None], None]


def silent(_doing: str, _done: int, _total: int | None) -> None:
    """Ignore the progress."""


@contextmanager
def stage_folder(root: Path) -> Iterator[Path]:
    """Yield a folder next to the runtimes, so that it can be renamed. It is removed at the end."""
    private_folder(root)
    _sweep(root)
    folder = Path(tempfile.mkdtemp(prefix=PREFIX, dir=root))
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _sweep(root: Path) -> None:
    for folder in root.glob(f"{PREFIX}*"):
        try:
            old = time.time() - folder.stat().st_mtime > _LEFTOVER_SECONDS
        except OSError:  # its own process has just removed it
            continue
        if old:
            shutil.rmtree(folder, ignore_errors=True)


def fill(tree: FileTree, layout: Layout, folder: Path, progress: Progress) -> list[Library]:
    """Place every file of `layout`, and return the scanned files of its targets.

    Licence files are placed, but neither scanned nor returned.
    Raises RuntimeStoreError for a damaged file or a full disk.
    """
    sizes = tree.sizes()
    total = sum(sizes[name] for name in layout.values())
    if isinstance(tree, ZipTree):
        _require_space(folder, total)
    done = 0
    libraries = []
    for path, name in sorted(layout.items()):
        progress("adding", done, total)
        place = folder / path
        place.parent.mkdir(parents=True, exist_ok=True)
        try:
            tree.place(name, place)
        except OSError as error:
            raise RuntimeStoreError(
                f"fleet cannot write {name} to the runtime store: {reason(error)}",
                hint=f"check the free space: df -h {folder.parent}",
            ) from error
        if group_of(path):
            libraries.append(scan_file(place, path))
        done += sizes[name]
    progress("adding", total, total)
    return libraries


def _require_space(folder: Path, need: int) -> None:
    free = shutil.disk_usage(folder).free
    if free < need + _HEADROOM_BYTES:
        raise RuntimeStoreError(
            f"not enough disk space in {folder.parent}: fleet needs {need / 1e6:.0f} MB for the "
            f"runtime and a reserve of {_HEADROOM_BYTES / 1e6:.0f} MB, but only "
            f"{free / 1e6:.0f} MB are free",
            hint="free some disk space, or set FLEET_HOME to a folder on a larger disk",
        )


_POLL_SECONDS = 0.05


@contextmanager
def file_lock(path: Path, seconds: float) -> Iterator[None]:
    """Hold an exclusive lock on `path`. It ends with the process, so it is never stale.

    Raises RuntimeStoreError if another process holds it for `seconds`.
    """
    private_folder(path.parent)
    deadline = Deadline(seconds)
    with path.open("a") as stream:
        while not _try(stream.fileno()):
            if deadline.expired:
                raise RuntimeStoreError(
                    f"fleet waited {seconds:g} s for the runtime store, but another fleet "
                    "process is using it",
                    hint="wait until the other process ends, then run the command again",
                )
            time.sleep(min(_POLL_SECONDS, deadline.remaining))
        yield


def _try(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
