"""The kinds of boards and phones: which of them can run on this computer, and their trees."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

from fleet.lab import arm64tree, kerneldisk
from fleet.lab.adbserver import adb_program
from fleet.lab.androidroot import android_root, python_layer
from fleet.lab.arm64 import can_run_arm64
from fleet.lab.baretree import bare_tree
from fleet.lab.folder import PHONES
from fleet.lab.host import has_board_programs
from fleet.lab.kernel import can_run_kernel
from fleet.lab.namespace import can_unshare
from fleet.lab.phoneprofiles import phone_profile as known_phone
from fleet.lab.rootfs import require, rootfs
from fleet.lab.tools import board_programs
from fleet.model.errors import InputError, LabError

KINDS = ("auto", "namespace", "user", "kernel", "arm64")
AS_ROOT = "sudo fleet lab up --kind namespace"
_HERE = "fleet lab up (boards of this machine's own kind)"
_OWN_GROUND: dict[
    str, tuple[Callable[[], str], dict[str, str], Callable[[], Path], Callable[[], str]]
] = {  # reason why they cannot run here, packages, ground, command to type instead
    "arm64": (can_run_arm64, arm64tree.NEEDS, arm64tree.arm64_tree, lambda: _HERE),
    "kernel": (
        can_run_kernel, kerneldisk.NEEDS, kerneldisk.kernel_disk,
        lambda: _HERE if os.geteuid() == 0 else "sudo fleet lab up --kernel",
    ),
}  # fmt: skip


def choose_phones(kind: str, profiles: str) -> str:
    """Return the kind of phones that can run here, and prepare its ground. Raises LabError."""
    if kind not in {"auto", *PHONES}:
        raise LabError(
            f"'{kind}' is not a kind of lab phone", hint="use one of: auto, " + ", ".join(PHONES)
        )
    adb_program()
    why = can_unshare() if kind != "phone-emulator" else "asked for"
    if kind == "phone" and why:
        raise LabError(
            f"lab phones with a real adbd cannot run on this computer: {why}",
            hint="fleet lab up --phone-kind phone-emulator",
        )
    if why:
        return "phone-emulator"
    android_root()
    if any(known_phone(name).python3 for name in profiles.split(",")):
        python_layer()
    return "phone"


def _own_ground(kind: str) -> None:
    """Build the ground of this kind of boards. Raises InputError if the kind cannot run here."""
    why_not, needs, ground, instead = _OWN_GROUND[kind]
    if why := why_not():
        raise InputError(
            f"lab boards of the kind {kind} cannot run on this computer: {why}", hint=instead()
        )
    try:
        require(needs)
    except LabError as error:
        raise InputError(
            f"lab boards of the kind {kind} cannot run on this computer: {error.message}",
            hint=error.hint,
        ) from error
    ground()


def choose_boards(kind: str) -> str:
    """Return the kind of boards that can run here, and prepare its ground.

    Raises LabError. Raises InputError for a kind that cannot run on this computer.
    """
    if kind in _OWN_GROUND:
        _own_ground(kind)
        return kind
    if kind not in {"auto", "namespace", "user"}:
        raise LabError(
            f"'{kind}' is not a kind of lab board", hint="use one of: " + ", ".join(KINDS)
        )
    why = can_unshare() if kind != "user" else ""
    if kind == "namespace" and why:
        raise LabError(
            f"lab boards of the kind namespace cannot run on this computer: {why}",
            hint="fleet lab up --kind user",
        )
    if kind == "namespace" or (kind == "auto" and not why):
        try:
            rootfs()
        except LabError:
            if kind == "namespace" or not has_board_programs():
                raise
            return "user"
        return "namespace"
    board_programs()
    return "user"


def ground(kind: str, *, bare: bool) -> Path:
    """Return the tree or disk that all boards of a kind share. Raises LabError."""
    if kind == "namespace":
        return bare_tree() if bare else rootfs()
    grounds = {"kernel": kerneldisk.kernel_disk, "arm64": arm64tree.arm64_tree}
    return grounds[kind]() if kind in grounds else Path()


def phone_ground(profile: str) -> Path:
    """Return the layers of a phone's root as overlayfs expects them, upper layer first."""
    root = android_root()
    python3 = known_phone(profile).python3
    return Path(f"{python_layer()}:{root}") if python3 else root
