"""Facts for people: rows with remarks, and `unknown` for missing values."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from fleet.model.facts import Android, DeviceNode, Facts, Windows

_SHOWN_ZONES = 4
_NOT_WINDOWS = {"libc", "libcdsprpc", "groups", "soc_id (kernel)", "thermal"}


def summary(facts: Facts) -> list[tuple[str, str]]:
    """Return (fact, value) rows in the order in which people read them."""
    soc, user = facts.soc, facts.user
    rows = [
        ("emulated", "yes: no Hexagon NPU here" if facts.emulated else "no"),
        ("os", _words(facts.os_name, facts.kernel, facts.machine)),
        ("libc", _words(facts.libc, facts.libc_version)),
        ("soc", _words(soc.chip, f"from {soc.source}")),
        ("soc_id (kernel)", _text(soc.kernel_soc_id)),
        ("soc_model (QNN)", _text(soc.soc_model)),
        ("Hexagon", _words(soc.hexagon_arch, f"VTCM {_text(soc.vtcm_mb)} MB")),
        ("board", _text(soc.model)),
        ("identity", _text(_identity(facts))),
        ("user", _words(user.name, f"uid {_text(user.uid)}")),
        ("groups", " ".join(user.groups_live) or "unknown"),
        *((node.path, _node(node)) for node in facts.nodes),
        ("libcdsprpc", _libcdsprpc(facts)),
        *((f"remoteproc {name}", state or "unknown") for name, state in facts.remoteproc),
        ("python3", _words(facts.tools.python3, facts.tools.python3_version)),
        (
            "hash tool",
            " ".join(facts.tools.sha256) or ("none (fleet reads files back to check them)"),
        ),
        ("base folder", facts.base_dir or "unknown"),
        ("disk", _disk(facts)),
        ("thermal", _thermal(facts)),
    ]
    if facts.android is not None:
        rows[2:2] = _android(facts.android)
    if facts.windows is not None:
        rows = [row for row in rows if row[0] not in _NOT_WINDOWS]
        rows[2:2] = _windows(facts.windows)
    if soc.conflict:
        rows.append(("conflict", soc.conflict))
    waiting = sorted(set(user.groups_db) - set(user.groups_live))
    if waiting:
        rows.append(("new groups", f"{', '.join(waiting)}: only after a new login (log in again)"))
    if facts.dsp_library_path:
        rows.append(("DSP_LIBRARY_PATH", f"{facts.dsp_library_path} (fleet unsets it)"))
    if facts.qnn_libraries:
        rows.append(("QNN on the system", " ".join(facts.qnn_libraries)))
    return rows


# values that differ on each device by nature, so that they are not marked
_OWN = {"device", "disk", "°C"}
DIFFERS = "*"


def overview(every: Mapping[str, Facts]) -> tuple[list[str], list[list[str | None]]]:
    """Return the column titles, and a row for each device by name.

    A value ends with `DIFFERS` if more than half of the devices agree on another one; values that
    differ by nature (device, disk, °C) never do. A cell is None if the value is unknown.
    """
    rows = [{"device": name, **_short(facts)} for name, facts in every.items()]
    heads = list(rows[0]) if rows else ["device"]
    columns = [[row[head] for row in rows] for head in heads]
    marked = [
        column if head in _OWN else _marked(column)
        for head, column in zip(heads, columns, strict=True)
    ]
    return heads, [list(row) for row in zip(*marked, strict=True)]


def _marked(column: Sequence[str | None]) -> list[str | None]:
    usual, count = Counter(column).most_common(1)[0]
    if count * 2 <= len(column):
        return list(column)
    return [cell if cell == usual else f"{_text(cell)}{DIFFERS}" for cell in column]


def _short(facts: Facts) -> dict[str, str | None]:
    """Return the facts that distinguish devices, a word or two each."""
    nodes = {node.path: node for node in facts.nodes if node.exists}
    node = next((nodes[path] for path in nodes if "cdsp" in path), next(iter(nodes.values()), None))
    words = {"": "opens", None: None}
    hottest = max((z.celsius for z in facts.thermal if z.celsius is not None), default=None)
    free = facts.disk.available_bytes
    return {
        "chip": facts.soc.chip,
        "Hexagon": facts.soc.hexagon_arch,
        "NPU node": words.get(node.open_error, node.open_error) if node else "absent",
        "disk": None if free is None else f"{free / 1e9:.1f} GB",
        "°C": None if hottest is None else f"{hottest:.0f}",
        "os": facts.os_name,
        "kernel": facts.kernel,
        "libc": facts.libc_version and f"{facts.libc} {facts.libc_version}",
        "python3": facts.tools.python3_version,
        "board": facts.soc.model,
        "emulated": "yes" if facts.emulated else "no",
    }


def _identity(facts: Facts) -> str | None:
    phone = facts.android.serialno if facts.android else None
    return phone or facts.serial_number or facts.machine_id


def _android(phone: Android) -> list[tuple[str, str]]:
    battery = phone.battery
    plugged = {True: "on a charger", False: "no charger", None: "charger unknown"}
    charge = "unknown" if battery.percent is None else f"{battery.percent} %"
    return [
        ("android", _words(phone.release, f"API {_text(phone.sdk)}", phone.build_type)),
        ("phone", _words(phone.manufacturer, phone.model, f"({_text(phone.serialno)})")),
        ("ro.soc.model", _words(phone.soc_model, f"platform {_text(phone.platform)}")),
        ("SELinux", _text(phone.selinux) + (", su is there" if phone.su else ", no su")),
        ("battery", f"{charge}, {_text(battery.status)}, {plugged[battery.charger]}"),
        ("vendor's skels", " ".join(phone.vendor_skels) or "none seen"),
    ]


def _windows(pc: Windows) -> list[tuple[str, str]]:
    driver = " ".join(name for name, _ in pc.services) or "no driver service"
    qnn = f"QNN {_text(pc.driver_qnn)} in {_text(pc.driver_folder)}"
    policy = f"policy {_text(pc.execution_policy)}, {_text(pc.language_mode)}"
    return [
        ("processor", _text(pc.processor)),
        ("NPU driver", f"{driver}, {qnn}"),
        ("Python is", _text(pc.python_machine)),
        ("PowerShell", f"{_text(pc.powershell)}, {policy}"),
        ("login shell of sshd", pc.default_shell or "cmd.exe (none set)"),
        ("filesystem", _text(pc.filesystem)),
    ]


def _text(value: object) -> str:
    return "unknown" if value is None else str(value)


def _words(*values: object) -> str:
    return " ".join(_text(value) for value in values)


def _node(node: DeviceNode) -> str:
    if not node.exists:
        return "absent"
    result = {"": "opens", None: "not tried"}.get(node.open_error, f"refused: {node.open_error}")
    return f"{_text(node.mode)} {_text(node.owner)}:{_text(node.group)}, {result}"


def _libcdsprpc(facts: Facts) -> str:
    if not facts.libcdsprpc:
        return "none"
    tail = (
        ""
        if facts.libcdsprpc_unversioned
        else (" (libcdsprpc.so is missing; the QNN stub library needs this name)")
    )
    return " ".join(facts.libcdsprpc) + tail


def _disk(facts: Facts) -> str:
    disk = facts.disk
    free = "unknown" if disk.available_bytes is None else f"{disk.available_bytes / 1e9:.1f} GB"
    free += (
        f" (and {disk.recyclable_bytes / 1e9:.1f} GB that fleet can reuse)"
        if disk.recyclable_bytes
        else ""
    )
    state = {True: "writable", False: "NOT writable", None: "unknown"}[disk.writable]
    return f"{free} and {_text(disk.inodes)} inodes free on {_text(disk.mount)}, {state}"


def _thermal(facts: Facts) -> str:
    zones = [f"{z.type} {_text(z.celsius)} C" for z in facts.thermal[:_SHOWN_ZONES]]
    more = len(facts.thermal) - len(zones)
    return ", ".join(zones) + (f" and {more} more" if more else "") if zones else "unknown"
