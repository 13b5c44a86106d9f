"""The state of a device's system: the request, and the parser of the answer."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from fleet.model.errors import DeviceError
from fleet.model.masking import masked
from fleet.model.system import (
    LOADER_CONF,
    UDEV_RULES,
    FileSeen,
    PackageSeen,
    RuleSeen,
    SystemSpec,
    SystemState,
    UnitSeen,
    WantedFile,
)
from fleet.ops.system.fastrpc import DEFAULT_GROUP, QNN_PACKAGES, RULE_FILE
from fleet.ops.system.packaging import packagings, qnn_packages
from fleet.ops.system.steps_packages import key_path, list_path, sources_text


@dataclass(frozen=True)
class Questions:
    """The names of packages, groups, files and units that the plan needs."""

    packages: tuple[str, ...]
    groups: tuple[str, ...]
    files: tuple[str, ...]
    units: tuple[str, ...]


def questions(spec: SystemSpec) -> Questions:
    """Return the names of everything that `provision` reads from the state."""
    rows = packagings().values() if spec.fastrpc != "off" else ()
    packages = [name for row in rows for name in (*row.packages, *row.companions)]
    packages += QNN_PACKAGES if rows else ()
    packages += [name.partition("=")[0] for name in spec.packages]
    packages += [deb_name(deb.name)[0] for deb in spec.debs]
    packages += qnn_packages()
    given = [version.group for row in rows for version in row.versions if version.group]
    groups = [*spec.groups, *spec.members, *given]
    files = [file.path for file in wanted_files(spec)] + [RULE_FILE] * bool(rows)
    units = [unit.name for unit in spec.units] + [row.unit for row in rows if row.unit]
    for repository in spec.repositories:
        files += [key_path(repository.name), list_path(repository.name)]
    return Questions(
        tuple(dict.fromkeys(packages)),
        tuple(dict.fromkeys([*groups, *([DEFAULT_GROUP] * bool(rows)), "render", "system"])),
        tuple(dict.fromkeys(files)),
        tuple(dict.fromkeys(units)),
    )


def wanted_files(spec: SystemSpec) -> tuple[WantedFile, ...]:
    """Return files, udev rules and ld.so.conf.d files of a spec as files."""
    rules = (WantedFile(UDEV_RULES + name, text.encode()) for name, text in spec.rules.items())
    paths = (
        WantedFile(LOADER_CONF + name, ("\n".join(folders) + "\n").encode())
        for name, folders in spec.library_paths.items()
    )
    return (*spec.files, *rules, *paths)


def repository_files(spec: SystemSpec) -> dict[str, tuple[tuple[str, bytes], ...]]:
    """Return repository name → (path, content) of its two files."""
    return {
        repository.name: (
            (key_path(repository.name), repository.key),
            (list_path(repository.name), sources_text(repository).encode()),
        )
        for repository in spec.repositories
    }


def deb_name(file_name: str) -> tuple[str, str]:
    """Return (package, version without epoch) of `name_version_arch.deb`.

    The name follows dpkg's convention (`dpkg-name`, `apt-get download`); `%3a` is a colon.
    """
    package, _, rest = file_name.removesuffix(".deb").partition("_")
    version = rest.rpartition("_")[0].replace("%3a", ":").replace("%3A", ":")
    return package, version.rpartition(":")[2]


HEAD, TAIL = "fleet-system 1", "end"


def system_input(
    packages: Iterable[str], groups: Iterable[str], files: Iterable[str], units: Iterable[str]
) -> Iterator[bytes]:
    """Yield the standard input of system.sh, which only reads: the names to check."""
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
