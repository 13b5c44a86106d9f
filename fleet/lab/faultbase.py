"""What a fault of a lab board is."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Fault:
    """A change of a namespace board as POSIX shell run as its root, and the way back.

    $1 is the user who logs in, $2 the user's home. A board on which `needs` fails cannot have
    the fault; `lacks` says why. `bare`: only bare boards can have it.
    """

    about: str
    make: str
    heal: str
    needs: str = ""
    lacks: str = ""
    bare: bool = False
