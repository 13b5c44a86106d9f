"""The identity of a lab phone: properties, soc0, sensors, battery, libraries of the vendor."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any

import yaml

from fleet.lab.elf import fastrpc_library
from fleet.lab.profiles import CLOCKS, row_of, write_trees

PLAYS = "aarch64"
_NODES = ("fastrpc-cdsp", "fastrpc-cdsp-secure", "adsprpc-smd", "dma_heap/system")
_THERMAL = {"nsphvx-0": 34100, "nsphmx-0": 34500, "cpu-1-0": 36200, "skin": 31000}
# The format of `dumpsys battery`; the numbers are invented.
_BATTERY = """Current Battery Service state:
  AC powered: false
  USB powered: true
  Wireless powered: false
  Dock powered: false
  status: 2
  health: 2
  present: true
  level: 86
  scale: 100
  voltage: 4380
  temperature: 293
  technology: Li-ion
"""


@dataclass(frozen=True)
class PhoneProfile:
    """A phone type. `sys` maps paths below /sys to contents, `root` maps paths of factory files.

    `nodes` are names below /dev. `source` says where the properties were recorded. `python3` is
    True if the phone has a python3 in addition to what Android has.
    """

    name: str
    sys: Mapping[str, bytes]
    root: Mapping[str, bytes]
    nodes: tuple[str, ...]
    source: str
    python3: bool = False

    def write(self, folder: Path) -> None:
        """Write `sys/` and `root/` below a folder."""
        write_trees(folder, sys=self.sys, root=self.root)


@cache
def _table() -> dict[str, Any]:
    return dict(yaml.safe_load((files("fleet.lab") / "phones.yaml").read_text("utf-8")))


def phone_profiles() -> tuple[str, ...]:
    """Return the names of all phone types."""
    return tuple(_table())


def phone_profile(name: str, serialno: str = "") -> PhoneProfile:
    """Return the phone type of that name, for a phone with that serial number. Raises LabError."""
    row = row_of(name, _table(), "phone")
    machine = row.get("machine", PLAYS)
    properties = {
        "ro.product.cpu.abilist": "arm64-v8a" if machine else "x86_64",
        "ro.serialno": serialno,
        "ro.boot.serialno": serialno,
        "sys.boot_completed": "1",
        **row["properties"],
    }
    root = {
        "/system/build.prop": "".join(f"{k}={v}\n" for k, v in properties.items() if v).encode(),
        "/system/etc/lab-dumpsys-battery": _BATTERY.encode(),
        "/system/etc/lab-selinux": f"{row.get('selinux', 'Enforcing')}\n".encode(),
        "/vendor/lib64/libcdsprpc.so": fastrpc_library("libcdsprpc.so"),
    }
    if machine:
        root["/system/etc/lab-machine"] = f"{machine}\n".encode()
    if row.get("linker", True):
        # Only the name of this file matters: it distinguishes bionic from glibc.
        root["/system/bin/linker64"] = b""
    return PhoneProfile(name, _sys(row), root, _NODES, row["source"], row.get("python3", False))


def _sys(row: Mapping[str, Any]) -> dict[str, bytes]:
    tree = {
        f"devices/soc0/{key}": f"{value}\n".encode() for key, value in row.get("soc0", {}).items()
    }
    for number, (kind, milli) in enumerate(_THERMAL.items()):
        folder = f"class/thermal/thermal_zone{number}"
        tree[f"{folder}/type"] = f"{kind}\n".encode()
        tree[f"{folder}/temp"] = f"{milli}\n".encode()
    power = "class/power_supply"
    tree |= {f"{power}/battery/status": b"Charging\n", f"{power}/usb/online": b"1\n"}
    return tree | CLOCKS
