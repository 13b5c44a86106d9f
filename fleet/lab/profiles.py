"""The identity of a lab board or phone: files under /sys, names under /dev, properties."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files as files_of
from pathlib import Path
from typing import Any

import yaml

from fleet.lab.debs import LIB
from fleet.lab.elf import fastrpc_library
from fleet.lab.rootfs import rootfs
from fleet.model.errors import LabError, reason

# Two clusters and a DDR controller. The numbers are invented and never change by themselves.
CLOCKS = {
    **{
        f"devices/system/cpu/cpufreq/policy{number}/{name}": text
        for number in (0, 4)
        for name, text in {
            "scaling_governor": b"schedutil\n",
            "scaling_cur_freq": b"1200000\n",
            "scaling_max_freq": b"2400000\n",
            "cpuinfo_max_freq": b"2400000\n",
        }.items()
    },
    "class/devfreq/lab-ddr/governor": b"simple_ondemand\n",
    "class/devfreq/lab-ddr/cur_freq": b"1600000000\n",
    "class/devfreq/lab-ddr/max_freq": b"3200000000\n",
}
_FIRMWARE = "qcom/lab/{}.mbn"
# found before the udevadm of udev; no namespace board runs udev's daemon
_UDEVADM = "/usr/local/bin/udevadm"


@dataclass(frozen=True)
class BoardProfile:
    """A board type. `sys` maps paths below /sys to contents, `nodes` are names below /dev.

    `root` maps paths below / to contents that the board has from the factory; `remove` are paths
    that it does not have. `node` is mode and owner of the nodes before any rule. `bare` boards use
    the userland without FastRPC. `user` is the login user.
    """

    name: str
    sys: Mapping[str, bytes]
    nodes: tuple[str, ...]
    root: Mapping[str, bytes]
    remove: tuple[str, ...] = ()
    node: str = "660 root:fastrpc"
    bare: bool = False
    user: str = "ubuntu"

    def write(self, folder: Path) -> None:
        """Write `sys/` and `root/` below a folder, and the files that board.sh reads."""
        write_trees(folder, sys=self.sys, root=self.root)
        for path in self.root:
            if "/bin/" in path:
                (folder / "root" / path.lstrip("/")).chmod(0o755)
        (folder / "remove").write_text("".join(f"{path}\n" for path in self.remove), "utf-8")


def write_trees(folder: Path, **trees: Mapping[str, bytes]) -> None:
    """Write each tree (path → content) below the folder with its name."""
    for place, tree in trees.items():
        (folder / place).mkdir(parents=True, exist_ok=True)
        for path, content in tree.items():
            target = folder / place / path.lstrip("/")
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(content)


@cache
def _table(name: str) -> dict[str, Any]:
    text = (files_of("fleet.lab") / f"{name}.yaml").read_text("utf-8")
    return dict(yaml.safe_load(text))


def _soc(soc0: Mapping[str, Any], thermal: Mapping[str, int]) -> dict[str, bytes]:
    """Return the files of a chip below /sys: its identity, thermal zones in m°C, and clocks."""
    tree = {f"devices/soc0/{key}": f"{value}\n".encode() for key, value in soc0.items()}
    for number, (kind, milli) in enumerate(thermal.items()):
        folder = f"class/thermal/thermal_zone{number}"
        tree[f"{folder}/type"] = f"{kind}\n".encode()
        tree[f"{folder}/temp"] = f"{milli}\n".encode()
    return tree | CLOCKS


_FORM = "the file must be YAML with one name at the top, and the keys below this name"


def row_of(name: str, table: Mapping[str, Any], what: str) -> dict[str, Any]:
    """Return the row of a table, or the only row of a file NAME.yaml (from `fleet lab profile`).

    Raises LabError.
    """
    if name.endswith(".yaml"):
        try:
            rows = yaml.safe_load(Path(name).read_text("utf-8"))
            (row,) = rows.values()
            return dict(row)
        except (OSError, ValueError, AttributeError, TypeError, yaml.YAMLError) as error:
            raise LabError(
                f"the file {name} does not describe a lab {what}: "
                f"{reason(error) if isinstance(error, OSError) else _FORM}",
                hint="fleet lab profile ARCHIVE (writes such a file from the archive of a "
                "self-test)",
            ) from error
    if name not in table:
        raise LabError(
            f"there is no lab {what} profile '{name}'", hint="use one of: " + ", ".join(table)
        )
    return dict(table[name])


def profile(name: str, *, real: bool = False) -> BoardProfile:
    """Return the profile with that name or file. Raises LabError with the known names.

    `real` means that the board has the real library and shells, and gets no stand-ins for them.
    """
    row = row_of(name, _table("profiles"), "board")
    if "like" in row:
        row = {**_table("profiles")[row["like"]], **row}
    sys = _soc(row["soc0"], row["thermal"])
    tree = "firmware/devicetree/base"
    sys[f"{tree}/compatible"] = b"".join(text.encode() + b"\0" for text in row["compatible"])
    sys[f"{tree}/model"] = row["model"].encode() + b"\0"
    for number, (kind, state) in enumerate(row["remoteproc"].items()):
        folder = f"class/remoteproc/remoteproc{number}"
        sys[f"{folder}/name"] = f"{kind}\n".encode()
        sys[f"{folder}/state"] = f"{state}\n".encode()
        sys[f"{folder}/firmware"] = f"{_FIRMWARE.format(kind)}\n".encode()
    return BoardProfile(
        name,
        sys,
        tuple(row["nodes"]),
        {path: text for path, text in _root(row).items() if not real or "/firmware/" in path},
        tuple(row.get("remove", ())) + (("/usr/bin/sudo",) if row.get("sudo") == "none" else ()),
        row.get("node", BoardProfile.node),
        row.get("tree") == "bare",
        row.get("user", BoardProfile.user),
    )


def _root(row: Mapping[str, Any]) -> dict[str, bytes]:
    """Return the factory files: apt's sources, sudo rules, os-release, libraries, firmware."""
    files: dict[str, bytes] = {}
    if "os_release" in row:
        lines = [f'{key}="{value}"\n' for key, value in row["os_release"].items()]
        files["/usr/lib/os-release"] = "".join(lines).encode()
    if row.get("repository"):
        folder = f"/srv/lab-apt/{row['repository']}"
        text = f"Types: deb\nURIs: file:{folder}\nSuites: ./\nSigned-By: /srv/lab-apt/key.asc\n"
        files["/etc/apt/sources.list.d/lab.sources"] = text.encode()
    if row.get("sudo") == "nopasswd":
        files["/etc/sudoers.d/90-lab"] = b"ubuntu ALL=(ALL) NOPASSWD: ALL\n"
    if "soname" in row:
        for name in (row["soname"], "libcdsprpc.so"):
            files[f"/usr/lib/{name}"] = fastrpc_library(row["soname"])
    if row.get("tree") != "bare":
        for name in ("libcdsprpc.so", "libcdsprpc.so.1"):
            files[f"{LIB}/{name}"] = fastrpc_library("libcdsprpc.so.1")
        files[_UDEVADM] = (files_of("fleet.lab") / "standins" / "udevadm").read_bytes()
    for kind in row["remoteproc"]:
        files[f"/usr/lib/firmware/{_FIRMWARE.format(kind)}"] = b"fleet lab stand-in, emulated\n"
    if row.get("repository") != "debian":  # Debian's own package installs the shell there
        files["/usr/lib/dsp/cdsp/fastrpc_shell_unsigned_3"] = b"fleet lab stand-in, emulated\n"
    if row.get("libatomic"):
        library = rootfs() / "usr/lib/x86_64-linux-gnu/libatomic.so.1"
        files["/usr/lib/libatomic.so.1"] = library.read_bytes()
    return files


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


def phone_profiles() -> tuple[str, ...]:
    """Return the names of all phone types."""
    return tuple(_table("phones"))


def phone_profile(name: str, serialno: str = "") -> PhoneProfile:
    """Return the phone type of that name, for a phone with that serial number. Raises LabError."""
    row = row_of(name, _table("phones"), "phone")
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
    power = "class/power_supply"
    sys = _soc(row.get("soc0", {}), _THERMAL)
    sys |= {f"{power}/battery/status": b"Charging\n", f"{power}/usb/online": b"1\n"}
    return PhoneProfile(name, sys, root, _NODES, row["source"], row.get("python3", False))
