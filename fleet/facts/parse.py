"""Output of probe.sh -> Facts."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from fleet.facts.soc import identify
from fleet.model.errors import DeviceError
from fleet.model.facts import DeviceNode, Disk, Facts, Soc, ThermalZone, Tools, User

HEAD, TAIL = "fleet-facts 1", "end"
T = TypeVar("T")
Values = dict[str, list[str]]


def parse(text: str, *, host: str = "", soc: str | None = None) -> Facts:
    """Facts of the probe's output. `soc` is the chip that the inventory names.

    Noise before the first line is dropped, unknown keys are ignored. Raises DeviceError when
    the output is not that of the probe or was cut.
    """
    lines = text.split("\n")
    if HEAD not in lines or TAIL not in lines[lines.index(HEAD) :]:
        raise DeviceError(
            "the probe's answer is missing or was cut",
            device=host,
            step="facts",
            hint="does the user's login shell print or end something? try: ssh <host> true",
        )
    found: Values = {}
    first = lines.index(HEAD) + 1
    for line in lines[first : lines.index(TAIL, first)]:
        key, _, value = line.partition("\t")
        found.setdefault(key, []).append(value.replace("\x1f", "\n"))
    libc, _, version = (_one(found, "libc") or "").partition(" ")
    unversioned = [path for path in found.get("libcdsprpc", ()) if path.endswith("libcdsprpc.so")]
    return Facts(
        hostname=_one(found, "hostname"),
        os_id=_one(found, "os_id"),
        os_version=_one(found, "os_version"),
        os_name=_one(found, "os_name"),
        kernel=_one(found, "kernel"),
        machine=_one(found, "machine"),
        libc=libc or None,
        libc_version=version or None,
        boot_id=_one(found, "boot_id"),
        machine_id=_one(found, "machine_id"),
        uptime_s=_number(found, "uptime", float),
        memory_bytes=_kilobytes(found, "mem_total_kb"),
        memory_available_bytes=_kilobytes(found, "mem_available_kb"),
        soc=identify(_soc(found), soc),
        user=_user(found),
        nodes=_nodes(found),
        libcdsprpc=tuple(found.get("libcdsprpc", ())),
        libcdsprpc_unversioned=bool(unversioned),
        libatomic="libatomic" in found,
        qnn_libraries=tuple(found.get("qnn_library", ())),
        dsp_library_path=_one(found, "dsp_library_path"),
        base_dir=_one(found, "base_dir") or "",
        disk=_disk(found),
        thermal=_thermal(found),
        remoteproc=tuple(_pair(value) for value in found.get("remoteproc", ())),
        tools=_tools(found),
        lab="lab" in found,
    )


def _one(found: Values, key: str) -> str | None:
    value = found.get(key, [""])[0].strip()
    return value or None


def _number(found: Values, key: str, kind: Callable[[str], T]) -> T | None:
    text = (_one(found, key) or "").split(" ")[0]
    try:
        return kind(text)
    except (ValueError, OverflowError):
        return None


def _kilobytes(found: Values, key: str) -> int | None:
    number = _number(found, key, int)
    return None if number is None else number * 1024


def _pair(value: str) -> tuple[str, str]:
    name, _, rest = value.partition("\t")
    return name, rest


def _soc(found: Values) -> Soc:
    compatible = (_one(found, "dt_compatible") or "").split("\x1e")
    model = (_one(found, "dt_model") or "").replace("\x1e", "").strip()
    return Soc(
        kernel_soc_id=_number(found, "soc_id", int),
        machine=_one(found, "soc_machine"),
        compatible=tuple(text for text in compatible if text),
        model=model or None,
    )


def _user(found: Values) -> User:
    return User(
        name=_one(found, "user"),
        uid=_number(found, "uid", int),
        home=_one(found, "home"),
        groups_db=tuple((_one(found, "groups_db") or "").split()),
        groups_live=tuple((_one(found, "groups_live") or "").split()),
    )


def _nodes(found: Values) -> tuple[DeviceNode, ...]:
    opened = dict(_pair(value) for value in found.get("open", ()))
    nodes = []
    for value in found.get("node", ()):
        path, rest = _pair(value)
        said = opened.get(path)
        mode, owner, group = (rest.split(" ") + [""] * 3)[:3]
        nodes.append(
            DeviceNode(
                path=path,
                exists=bool(mode) or said not in {None, "ENOENT"},
                mode=mode or None,
                owner=owner or None,
                group=group or None,
                open_error=None if said is None else said.replace("ok", ""),
            )
        )
    return tuple(nodes)


def _disk(found: Values) -> Disk:
    writable = _one(found, "disk_writable")
    return Disk(
        path=_one(found, "base_dir") or "",
        mount=_one(found, "disk_mount"),
        available_bytes=_kilobytes(found, "disk_free_kb"),
        inodes=_number(found, "disk_inodes", int),
        writable=None if writable is None else writable == "yes",
    )


def _thermal(found: Values) -> tuple[ThermalZone, ...]:
    zones = []
    for value in found.get("thermal", ()):
        name, kind, milli = [*value.split("\t"), "", ""][:3]
        try:
            celsius: float | None = int(milli) / 1000
        except ValueError:
            celsius = None
        zones.append(ThermalZone(name, kind, celsius))
    return tuple(zones)


def _tools(found: Values) -> Tools:
    path, _, version = (_one(found, "python3") or "").rpartition(" ")
    return Tools(
        python3=path or None,
        python3_version=version or None,
        python3_ctypes=_one(found, "python3_ctypes") == "yes" if path else None,
        sha256=tuple((_one(found, "sha256") or "").split()),
        timeout="timeout" in found,
        dd_fullblock="dd_fullblock" in found,
        sync_file="sync_file" in found,
    )
