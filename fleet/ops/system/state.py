"""The state of a device's system: the request, and the parser of the answer."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from fleet.device.shell import device_script
from fleet.model.command import Command
from fleet.model.errors import DeviceError
from fleet.model.masking import masked
from fleet.model.system import FileSeen, PackageSeen, RuleSeen, SystemState, UnitSeen

HEAD, TAIL = "fleet-system 1", "end"


def system_command() -> Command:
    """Return the command that asks for the system in one round trip. It only reads."""
    return device_script("system")


def system_input(
    packages: Iterable[str], groups: Iterable[str], files: Iterable[str], units: Iterable[str]
) -> Iterator[bytes]:
    """Yield the standard input of `system_command`: the names to check."""
    asked = (("package", packages), ("group", groups), ("file", files), ("unit", units))
    for kind, names in asked:
        for name in dict.fromkeys(names):
            yield f"{kind}\t{name}\n".encode()


def parse_system(text: str, host: str) -> SystemState:
    """Parse the answer. Raises DeviceError if it was truncated."""
    lines = text.split("\n")
    if HEAD not in lines or TAIL not in lines[lines.index(HEAD) :]:
        raise DeviceError(
            "the device returned only a part of the answer; the answer ends with "
            f"{masked(text)[-200:]!r}",
            device=host,
            step="system",
            hint=f"fleet facts --limit {host}",
        )
    rows: dict[str, list[list[str]]] = {}
    first = lines.index(HEAD) + 1
    for line in lines[first : lines.index(TAIL, first)]:
        key, *rest = line.split("\t")
        rows.setdefault(key, []).append([*rest, "", "", "", "", "", ""])
    manager = _first(rows, "manager")
    return SystemState(
        manager=manager or None,
        lists=bool(rows.get("lists")) if manager else None,
        sources=tuple(row[0] for row in rows.get("source", ())),
        packages=_packages(rows),
        groups=_groups(rows),
        files={row[0]: _file(row) for row in rows.get("file", ())},
        units={row[0]: UnitSeen(row[1], row[2], row[3]) for row in rows.get("unit", ())},
        rules=_rules(rows),
        tools=frozenset(row[0] for row in rows.get("tool", ())),
        skels=tuple(dict.fromkeys(row[0] for row in rows.get("skel", ()))),
        on_path=tuple(dict.fromkeys(row[1] for row in rows.get("onpath", ()))),
        trees=tuple(row[0] for row in rows.get("tree", ())),
        reboot_required="reboot" in rows,
        acls=frozenset(row[0] for row in rows.get("acl", ())),
        tried=frozenset(row[0] for row in rows.get("tried", ())),
    )


def _first(rows: dict[str, list[list[str]]], key: str) -> str:
    return rows[key][0][0] if key in rows else ""


def _packages(rows: dict[str, list[list[str]]]) -> dict[str, PackageSeen]:
    offered = {row[0]: row[1] for row in rows.get("candidate", ())}
    own = {_first(rows, "native"), "all", ""}
    there = {
        name if arch in own else f"{name}:{arch}": version
        for name, version, status, arch, *_ in rows.get("installed", ())
        if status == "installed"
    }
    halfway = {row[0] for row in rows.get("halfway", ())}
    names = dict.fromkeys([*there, *offered, *sorted(halfway)])
    return {
        name: PackageSeen(there.get(name), offered.get(name), name not in halfway) for name in names
    }


def _groups(rows: dict[str, list[list[str]]]) -> dict[str, tuple[str, ...] | None]:
    groups: dict[str, tuple[str, ...] | None] = {row[0]: None for row in rows.get("nogroup", ())}
    for name, members, *_ in rows.get("group", ()):
        groups[name] = tuple(user for user in members.split(",") if user)
    return groups


def _file(row: list[str]) -> FileSeen:
    _, kind, mode, owner, group, data, *_ = row
    if kind == "link":
        return FileSeen(kind, target=_bytes(data).decode("utf-8", "surrogateescape").rstrip("\n"))
    content = _bytes(data[1:]) if data.startswith("x") else None
    return FileSeen(kind, mode, owner, group, content)


def _bytes(text: str) -> bytes:
    try:
        return bytes.fromhex(text)
    except ValueError:
        return b""


def _rules(rows: dict[str, list[list[str]]]) -> tuple[RuleSeen, ...]:
    files: dict[str, list[str]] = {}
    for path, line, *_ in rows.get("rule", ()):
        files.setdefault(path, []).append(line)
    return tuple(RuleSeen(path, tuple(lines)) for path, lines in files.items())
