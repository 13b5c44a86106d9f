"""What a device shows of its system: the question, and the reading of the answer."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from fleet.device.shell import device_script
from fleet.model.command import Command
from fleet.model.errors import DeviceError
from fleet.model.masking import masked
from fleet.model.system import FileSeen, PackageSeen, RuleSeen, SystemState, UnitSeen

HEAD, TAIL = "fleet-system 1", "end"


def system_command() -> Command:
    """Asks for the system in one round trip; reads only."""
    return device_script("system")


def system_input(
    packages: Iterable[str], groups: Iterable[str], files: Iterable[str], units: Iterable[str]
) -> Iterator[bytes]:
    """Standard input of `system_command`: what to look at."""
    asked = (("package", packages), ("group", groups), ("file", files), ("unit", units))
    for kind, names in asked:
        for name in dict.fromkeys(names):
            yield f"{kind}\t{name}\n".encode()


def parse_system(text: str, host: str) -> SystemState:
    """The answer. Raises DeviceError when it was cut."""
    lines = text.split("\n")
    if HEAD not in lines or TAIL not in lines[lines.index(HEAD) :]:
        raise DeviceError(
            "the device returned only a part of the answer; the answer ends with "
            f"{masked(text)[-200:]!r}",
            device=host,
            step="system",
            hint=f"fleet facts --limit {host}",
        )
    found: dict[str, list[list[str]]] = {}
    first = lines.index(HEAD) + 1
    for line in lines[first : lines.index(TAIL, first)]:
        key, *rest = line.split("\t")
        found.setdefault(key, []).append([*rest, "", "", "", "", "", ""])
    manager = _first(found, "manager")
    return SystemState(
        manager=manager or None,
        lists=bool(found.get("lists")) if manager else None,
        sources=tuple(row[0] for row in found.get("source", ())),
        packages=_packages(found),
        groups=_groups(found),
        files={row[0]: _file(row) for row in found.get("file", ())},
        units={row[0]: UnitSeen(row[1], row[2], row[3]) for row in found.get("unit", ())},
        rules=_rules(found),
        tools=frozenset(row[0] for row in found.get("tool", ())),
        skels=tuple(dict.fromkeys(row[0] for row in found.get("skel", ()))),
        on_path=tuple(dict.fromkeys(row[1] for row in found.get("onpath", ()))),
        trees=tuple(row[0] for row in found.get("tree", ())),
        reboot_required="reboot" in found,
        acls=frozenset(row[0] for row in found.get("acl", ())),
        tried=frozenset(row[0] for row in found.get("tried", ())),
    )


def _first(found: dict[str, list[list[str]]], key: str) -> str:
    return found[key][0][0] if key in found else ""


def _packages(found: dict[str, list[list[str]]]) -> dict[str, PackageSeen]:
    offered = {row[0]: row[1] for row in found.get("candidate", ())}
    own = {_first(found, "native"), "all", ""}
    there = {
        name if arch in own else f"{name}:{arch}": version
        for name, version, status, arch, *_ in found.get("installed", ())
        if status == "installed"
    }
    halfway = {row[0] for row in found.get("halfway", ())}
    names = dict.fromkeys([*there, *offered, *sorted(halfway)])
    return {
        name: PackageSeen(there.get(name), offered.get(name), name not in halfway) for name in names
    }


def _groups(found: dict[str, list[list[str]]]) -> dict[str, tuple[str, ...] | None]:
    groups: dict[str, tuple[str, ...] | None] = {row[0]: None for row in found.get("nogroup", ())}
    for name, members, *_ in found.get("group", ()):
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


def _rules(found: dict[str, list[list[str]]]) -> tuple[RuleSeen, ...]:
    files: dict[str, list[str]] = {}
    for path, line, *_ in found.get("rule", ()):
        files.setdefault(path, []).append(line)
    return tuple(RuleSeen(path, tuple(lines)) for path, lines in files.items())
