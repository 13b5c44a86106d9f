"""Faults of boards and phones, from faults.yaml. Real tools complain about the changed state."""

from __future__ import annotations

import base64
from dataclasses import dataclass
from importlib.resources import files
from typing import Any

import yaml

from fleet.lab.elf import fastrpc_library
from fleet.lab.phoneuser import MANNERS

_NPU_FILE = {
    "heal": "put_back",
    "needs": 'test -d "$home/npu/lib"',
    "lacks": "the folder ~/npu on the board is empty",
    "cure": "fleet lab stock NAME (copies a runtime and a bundle to ~/npu)",
}


@dataclass(frozen=True)
class BoardFault:
    """A change of a board or phone and its undo, as POSIX shell that runs as root of the board.

    The fault is impossible on a board on which `needs` fails. `lacks` is then the reason and `cure`
    the command to type ("" if only another kind of board helps). `bare` limits the fault to bare
    boards.
    """

    about: str
    make: str
    heal: str
    needs: str = ""
    lacks: str = ""
    cure: str = ""
    bare: bool = False


def _fault(row: dict[str, Any]) -> BoardFault:
    pattern = row.pop("npu_file", None)
    if pattern is not None:
        row |= _NPU_FILE | {"make": f"keep_npu '{pattern}' && {row['make']}"}
    return BoardFault(**row)


def _text(name: str) -> str:
    return (files("fleet.lab") / name).read_text("utf-8")


_LOADER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_TABLE = {
    kind: {name: _fault(row) for name, row in rows.items()}
    for kind, rows in yaml.load(_text("faults.yaml"), Loader=_LOADER).items()  # noqa: S506 - safe
}
SET_UP_FAULTS: dict[str, BoardFault] = _TABLE["set-up"]
FAULTS: dict[str, BoardFault] = _TABLE["board"] | SET_UP_FAULTS
PHONE_FAULTS: dict[str, BoardFault] = _TABLE["phone"]
PHONE_FAULT_NAMES = tuple(dict.fromkeys((*PHONE_FAULTS, "offline", *MANNERS)))
# Signals that cause the same faults on an emulated phone, whose daemon is a single process.
SIGNALS = {"cut": "KILL", "blackhole": "STOP"}


def fault_argv(name: str, user: str, home: str, script: str, *, phone: bool) -> tuple[str, ...]:
    """Return the command that runs a script of a fault as root of its board."""
    shared = _text("phonefaults.sh" if phone else "faults.sh")
    libraries = (fastrpc_library("libcdsprpc.so.1", old=old) for old in (False, True))
    coded = (base64.b64encode(library).decode() for library in libraries)
    return ("sh", "-c", shared + script, name, user, home, *coded)
