"""The device worker, which takes blobs and makes releases where Python is: how it is started.

Nothing is installed: its text goes ahead of the data, on standard input.
"""

from __future__ import annotations

from fleet.device.call import FSCK, LOADER, STAMP, WORKER, loaded
from fleet.model.command import Command
from fleet.model.facts import Facts

OLDEST_PYTHON = (3, 7)  # os.preadv


def runs_worker(facts: Facts) -> bool:
    """Whether the device has a Python that can run it, and a POSIX shell that starts it."""
    tools, version = facts.tools, facts.tools.python3_version
    young = version is None or tuple(map(int, version.split(".")[:2])) >= OLDEST_PYTHON
    return bool(tools.python3) and tools.python3_whole and young and facts.windows is None


def worker_command(facts: Facts, *args: str) -> Command:
    """The program with its arguments; its standard input begins with `worker()`."""
    return Command((facts.tools.python3 or "python3", "-ISc", LOADER, *args))


def worker() -> bytes:
    """The text of the program, and a line that says how long its modules are."""
    return loaded(WORKER)


def stamp() -> bytes:
    """The same for the small program that only looks whether nothing has changed."""
    return loaded(STAMP)


def fsck() -> bytes:
    """The same for the one that checks all that is there."""
    return loaded(FSCK)
