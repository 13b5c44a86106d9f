"""The start of the device worker, which receives blobs and makes releases on devices with Python.

Nothing is installed: the program text precedes the data on standard input.
"""

from __future__ import annotations

from fleet.device.call import FSCK, LOADER, STAMP, WORKER, loaded
from fleet.model.command import Command
from fleet.model.facts import Facts

OLDEST_PYTHON = (3, 7)  # os.preadv


def runs_worker(facts: Facts) -> bool:
    """Return True if the device has a Python that can run the worker and a POSIX shell."""
    tools, version = facts.tools, facts.tools.python3_version
    young = version is None or tuple(map(int, version.split(".")[:2])) >= OLDEST_PYTHON
    return bool(tools.python3) and tools.python3_whole and young and facts.posix


def worker_command(facts: Facts, *args: str) -> Command:
    """Return the program with its arguments; its standard input begins with `worker()`."""
    return Command((facts.tools.python3 or "python3", "-ISc", LOADER, *args))


def worker() -> bytes:
    """Return the text of the worker, with a line that has the lengths of its modules."""
    return loaded(WORKER)


def stamp() -> bytes:
    """Return the text of the small program that only checks whether nothing has changed."""
    return loaded(STAMP)


def fsck() -> bytes:
    """Return the text of the program that checks the whole store."""
    return loaded(FSCK)
