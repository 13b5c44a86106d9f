"""The first files of a project: discovered devices, and texts with comments."""

from __future__ import annotations

import ipaddress
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from tempfile import TemporaryDirectory

import yaml

from fleet.config.groups import ALL, UNGROUPED
from fleet.config.inventory import load_inventory
from fleet.model.errors import InputError, reason
from fleet.model.inventory import Host

_WIDE = 10**6  # no line is folded
_BREAKS = set("\x85\u2028\u2029")  # each ends a line in YAML, also in a comment


@dataclass(frozen=True)
class FoundDevice:
    """A discovered device. `about` is its origin; `values` are keys of the inventory.

    `facts` are keys read from the device. They are written as comments, and a person decides to use
    them. A device that cannot be used (adb, an alias that is no address) is written as a comment.
    """

    name: str
    about: str
    values: dict[str, object] = field(default_factory=dict)
    usable: bool = True
    facts: dict[str, str] = field(default_factory=dict)


def project_text(inventory: str, playbook: str) -> str:
    """Return the text of fleet.yaml with comments."""
    values = _dump({"inventory": inventory, "playbook": playbook})
    return f"""{modeline("project", "")}
# Defaults of commands that are typed in this folder or below. Keys: docs/project.md
{values}
# runs: runs             # where records are kept; default: for this project, in FLEET_HOME
# parallel: 16
# repeats: 10
"""


def modeline(kind: str, above: str = "../") -> str:
    """Return the comment by which editors find a file's schema (`fleet config schema KIND`)."""
    return f"# yaml-language-server: $schema={above}schemas/{kind}.json"


def inventory_text(devices: Sequence[FoundDevice]) -> str:
    """Return the text of the inventory with comments."""
    lines = [
        modeline("inventory"),
        "# Devices. Keys: docs/inventory.md. Checked by: fleet config check FILE",
        "# Keys for all devices go under `vars`, like",
        "#   user: ubuntu",
        "#   become_password: env:BOARD_PASSWORD    # sudo's; never the password itself",
        "#   soc: QCS9075                           # for a board that does not tell its chip",
        "all:",
        "  hosts:",
    ]
    if not any(device.usable for device in devices):
        lines[-1] = "  hosts: {}"
        lines.append("    # evk-01: {host: 10.0.0.7, user: ubuntu}")
    for device in devices:
        mark = "" if device.usable else "# "
        body = _dump({device.name: dict(device.values) or None}).removesuffix(" null").split("\n")
        body += [f"  # {line}" for line in _dump(device.facts).split("\n") if device.facts]
        lines.append(f"    # {comment(device.about)}")
        lines += [f"    {mark}{line}" for line in body]
    return "\n".join(lines) + "\n"


def playbook_text(name: str, bundle: str, about: str, *, qairt: str = "", prompt: str = "") -> str:
    """Return the text of the playbook with comments.

    `bundle` may be a folder that does not exist yet; `qairt` is the version that compiled it.
    `prompt` is a file with a prompt. Both paths are relative to the playbook.
    """
    ask = _dump({"prompt_file": prompt}) if prompt else _PROMPT
    compiled = f": {comment(qairt)}" if qairt else ""
    return f"""{modeline("playbook")}
# The desired state of the devices, and the program to run on them. Keys: docs/playbook.md
{_dump({"name": name})}

# {comment(about)}
{_dump({"bundle": bundle})}

# The QAIRT version that compiled the bundle{compiled}. Another one: "2.51.0", in quotes.
runtime: bundle

# fastrpc: auto        # install FastRPC and the libraries of QNN, give the user the rights

run:
  runner: genie
  {ask}
  max_tokens: 64
  warmups: 1
  repeats: 5
"""


_PROMPT = "prompt: |\n    What is an NPU? Answer in one sentence."


def comment(text: str) -> str:
    """Return the text in one line, without characters that could end a comment."""
    return "".join(char for char in " ".join(text.split()) if char.isprintable())


def as_yaml(value: object) -> str:
    """Return plain data as YAML, without the last line end."""
    text = str(yaml.safe_dump(value, sort_keys=False, width=_WIDE, allow_unicode=True))
    if _BREAKS & set(text):
        text = str(yaml.safe_dump(value, sort_keys=False, width=_WIDE))
    return text.rstrip("\n")


def _dump(value: Mapping[str, object]) -> str:
    return as_yaml(dict(value))


_ADDRESS = re.compile(
    r"(?:(?P<user>[^@\s]+)@)?(?P<host>\[[0-9A-Fa-f:.%a-z]+\]|[^:@\s]+)(?::(?P<port>\d+))?"
)


def from_address(text: str) -> FoundDevice:
    """Return the device at `[user@]host[:port]`, with [IPv6] in brackets. Raises InputError."""
    match = _ADDRESS.fullmatch(text)
    if match is None or text.startswith("-"):
        raise InputError(
            f"'{text}' is not a valid address",
            hint="write [user@]host[:port], and IPv6 in brackets: [::1]:22",
        )
    host = match["host"].strip("[]")
    port = int(match["port"]) if match["port"] else None
    if port is not None and not 0 < port < 65536:
        raise InputError(f"'{text}': {port} is not a valid port", hint="use a port from 1 to 65535")
    values: dict[str, object] = {"host": host}
    if match["user"]:
        values["user"] = match["user"]
    if port:
        values["port"] = port
    device = tried(FoundDevice(safe_name(host), "given", values))
    if not device.usable:
        raise InputError(
            f"'{text}' is not a valid address: {device.about}", hint="write a name or an IP"
        )
    return device


def is_address(text: str) -> bool:
    """Return True for text that can hardly be a folder: with user or port, or an IP address."""
    match = _ADDRESS.fullmatch(text)
    if match is None:
        return False
    try:
        ipaddress.ip_address(match["host"].strip("[]").partition("%")[0])
    except ValueError:
        return bool(match["user"] or match["port"])
    return True


def safe_name(text: str) -> str:
    """Return a host name for the inventory: letters, digits, `_ . -`, and no group name."""
    name = re.sub(r"[^A-Za-z0-9_.-]+", "-", text).strip("-.")[:63] or "board"
    return f"host-{name}" if name in {ALL, UNGROUPED} else name


def unique(devices: Iterable[FoundDevice]) -> list[FoundDevice]:
    """Return each device once. The same name with other values gets a number."""
    names: dict[str, FoundDevice] = {}
    for device in devices:
        name, number = device.name, 2
        while name in names and names[name].values != device.values:
            name, number = f"{device.name}-{number}", number + 1
        names.setdefault(name, replace(device, name=name))
    return list(names.values())


def tried(device: FoundDevice) -> FoundDevice:
    """Return the device. If the inventory refuses its values, the device is not usable, and `about`
    has the reason.
    """
    try:
        read_back([device])
    except InputError as error:
        return replace(device, usable=False, about=f"{device.about}; {error.message}")
    return device


def read_back(devices: list[FoundDevice]) -> tuple[Host, ...]:
    """Return the hosts of the inventory that fleet would write.

    Raises InventoryError for values that the inventory refuses, InputError if a name is lost.
    """
    with TemporaryDirectory(prefix="fleet-init-") as folder:
        path = Path(folder) / "inventory.yaml"
        path.write_text(inventory_text(devices), "utf-8")
        hosts = load_inventory(path).hosts
    lost = {device.name for device in devices if device.usable} - {host.name for host in hosts}
    if lost:
        raise InputError(
            f"the new inventory would not contain these devices: {', '.join(sorted(lost))}",
            hint="write the inventory by hand: docs/inventory.md",
        )
    return hosts


def write_all(files: Mapping[Path, str]) -> None:
    """Write the files (path → text) in new folders, where needed.

    Raises InputError if one exists, even since a moment ago, or cannot be written. In this case the
    new files and folders are removed.
    """
    made: list[Path] = []
    folders: list[Path] = []
    try:
        for path in files:
            if os.path.lexists(path):
                raise FileExistsError(0, "", str(path))
        for path, text in files.items():
            _make(path.parent, folders)
            with path.open("x", encoding="utf-8") as stream:
                made.append(path)
                stream.write(text)
    except BaseException as error:
        _take_away(made, folders)
        if not isinstance(error, OSError):
            raise
        why = (
            f"the file {error.filename} exists already"
            if isinstance(error, FileExistsError)
            else f"it cannot write {error.filename}: {reason(error)}"
        )
        raise InputError(
            f"fleet wrote nothing, because {why}",
            hint="fleet init FOLDER (writes to another folder)",
        ) from error


def _make(folder: Path, made: list[Path]) -> None:
    lacking = [parent for parent in (folder, *folder.parents) if not os.path.lexists(parent)]
    for parent in reversed(lacking):
        parent.mkdir()
        made.append(parent)


def _take_away(files: list[Path], folders: list[Path]) -> None:
    for path in files:
        path.unlink(missing_ok=True)
    for folder in reversed(folders):
        try:
            folder.rmdir()
        except OSError:  # another program added a file
            return
