"""A lock with which one process at a time changes the store."""

from __future__ import annotations

import fcntl
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from fleet.model.deadline import Deadline
from fleet.model.errors import RuntimeStoreError
from fleet.model.home import private_folder

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
