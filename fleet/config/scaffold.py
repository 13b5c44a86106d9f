"""First files for a new fleet: an inventory, a playbook and a folder, from what was seen."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

import yaml

from fleet.config.inventory import load_inventory
from fleet.model.errors import InputError

_PLAIN_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,62}")
_ADDRESS = re.compile(
    r"(?:(?P<user>[^@\s]+)@)?(?P<host>\[[0-9A-Fa-f:.%a-z]+\]|[^:@\s]+)(?::(?P<port>\d+))?"
)


@dataclass(frozen=True)
class Seen:
    """A device that was seen. `about` says where; `values` are keys of the inventory.

    A device that fleet cannot reach yet (adb) is written as a comment.
    """

    name: str
    about: str
    values: dict[str, object] = field(default_factory=dict)
    usable: bool = True


def from_address(text: str) -> Seen:
    """`[user@]host[:port]`, with [IPv6] in brackets. Raises InputError."""
    match = _ADDRESS.fullmatch(text)
    if match is None or text.startswith("-"):
        raise InputError(
            f"'{text}' is no address", hint="write [user@]host[:port], IPv6 in brackets: [::1]:22"
        )
    host = match["host"].strip("[]")
    port = int(match["port"]) if match["port"] else None
    if port is not None and not 0 < port < 65536:
        raise InputError(f"'{text}': {port} is no port", hint="ports are 1 to 65535")
    values: dict[str, object] = {"host": host}
    if match["user"]:
        values["user"] = match["user"]
    if port:
        values["port"] = port
    return Seen(safe_name(host), "given", values)


def safe_name(text: str) -> str:
    """A host name for the inventory: letters, digits, `_ . -`."""
    name = re.sub(r"[^A-Za-z0-9_.-]+", "-", text).strip("-.") or "board"
    return name[:63]


def unique(found: Iterable[Seen]) -> list[Seen]:
    """Each device once: the same name with other values gets a number."""
    names: dict[str, Seen] = {}
    for one in found:
        name, number = one.name, 2
        while name in names and names[name].values != one.values:
            name, number = f"{one.name}-{number}", number + 1
        names.setdefault(name, Seen(name, one.about, one.values, one.usable))
    return list(names.values())


def inventory_text(devices: list[Seen]) -> str:
    """The inventory with comments; values are written by the YAML library."""
    lines = [
        "# Devices. Keys: docs/inventory.md. Checked by: fleet inventory check FILE",
        "# Keys for all of them go under `vars`, like",
        "#   user: ubuntu",
        "#   become_password: env:BOARD_PASSWORD    # sudo's; never the password itself",
        "#   soc: QCS9075                           # where the board hides its chip",
        "all:",
        "  hosts:",
    ]
    usable = [one for one in devices if one.usable]
    if not usable:
        lines[-1] = "  hosts: {}"
        lines.append("    # evk-01: {host: 10.0.0.7, user: ubuntu}")
    for one in devices:
        text = yaml.safe_dump({one.name: one.values or None}, sort_keys=False, width=10**6)
        mark = "" if one.usable else "# "
        lines.append(f"    # {_comment(one.about)}")
        lines += [f"    {mark}{line}" for line in text.rstrip("\n").split("\n")]
    return "\n".join(lines) + "\n"


def playbook_text(name: str, bundle: str, about: str) -> str:
    """The playbook with comments. `bundle` may be a folder that is yet to be made."""
    head = yaml.safe_dump({"name": name})
    path = yaml.safe_dump({"bundle": bundle}, width=10**6)
    return f"""# What shall be true on the devices, and what to run there. Keys: docs/playbook.md
{head}
# {_comment(about)}
{path}
runtime: bundle        # the QAIRT version that compiled the bundle; or "2.51.0"

# fastrpc: auto        # install FastRPC and give the user its rights where they lack
# system:
#   packages: [libatomic1]

run:
  runner: genie
  prompt: |
    What is an NPU? Answer in one sentence.
  max_tokens: 64
  warmups: 1
  repeats: 3
"""


def _comment(text: str) -> str:
    return "".join(one for one in " ".join(text.split()) if one.isprintable())


def write_all(files: dict[Path, str]) -> None:
    """All files, or none: they are written beside their place and renamed at the end.

    Raises InputError when one exists, and when a folder cannot be written.
    """
    for path in files:
        if path.exists() or path.is_symlink():
            raise InputError(
                f"{path} exists already; nothing was written",
                hint="name another folder: fleet init FOLDER",
            )
    made: list[Path] = []
    folders: list[Path] = []
    try:
        for path, text in files.items():
            folders += _make(path.parent)
            part = path.with_name(f".{path.name}.part")
            made.append(part)
            part.write_text(text, "utf-8")
        for path in files:
            path.with_name(f".{path.name}.part").replace(path)
    except OSError as error:
        for part in made:
            part.unlink(missing_ok=True)
        for folder in reversed(folders):
            folder.rmdir()
        raise InputError(f"cannot write {error.filename}: {error.strerror}") from error


def _make(folder: Path) -> list[Path]:
    lacking = [one for one in (folder, *folder.parents) if not one.exists()]
    for one in reversed(lacking):
        one.mkdir()
    return list(reversed(lacking))


def check(path: Path, names: Iterable[str]) -> None:
    """The inventory that was written gives back the hosts. Raises InventoryError."""
    hosts = {one.name for one in load_inventory(path).hosts}
    lost = sorted(set(names) - hosts)
    if lost:
        raise InputError(f"{path}: these names are lost: {', '.join(lost)}")
