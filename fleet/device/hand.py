"""The program that takes blobs and makes releases on devices that have Python: how it is started.

Nothing is installed: its text goes ahead of the data, on standard input.
"""

from __future__ import annotations

from fleet.device.call import LOADER, loaded
from fleet.model.command import Command
from fleet.model.facts import Facts

OLDEST_PYTHON = (3, 7)  # os.preadv
_SEAL = ("fleet_seal",)
_MODULES = (
    *_SEAL,
    "fleet_disk",
    "fleet_stream",
    "fleet_patch",
    "fleet_spare",
    "fleet_hand",
    "fleet_release",
)


def has_hand(facts: Facts) -> bool:
    """Whether the device can run it. On a Windows PC another program of ours receives."""
    tools, version = facts.tools, facts.tools.python3_version
    young = version is None or tuple(map(int, version.split(".")[:2])) >= OLDEST_PYTHON
    return bool(tools.python3) and tools.python3_whole and young and facts.windows is None


def hand_for(facts: Facts) -> bytes:
    """What goes ahead of the data, b"" where the device cannot run it."""
    return hand() if has_hand(facts) else b""


def hand_command(facts: Facts, *args: str) -> Command:
    """The program with its arguments; its standard input begins with `hand()`."""
    return Command((facts.tools.python3 or "python3", "-ISc", LOADER, *args))


def hand() -> bytes:
    """The text of the program, and a line that says how long its modules are."""
    return loaded("store", _MODULES)


def seal() -> bytes:
    """The same for the small program that only looks whether nothing has changed."""
    return loaded("store", _SEAL)
