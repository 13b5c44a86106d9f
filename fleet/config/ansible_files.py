"""Ansible inventories other than a single YAML file: INI, variable folders, plugins.

INI files follow ansible.builtin.ini of ansible-core. `group_vars` and `host_vars` next to the
inventory follow its host_group_vars: each file overrides the inventory's own variables of the same
group or host. A dynamic inventory (a program, or the settings of a plugin) is read by the user's
own `ansible-inventory --list`. Reading it runs it, so nobody else may be able to change the file.
"""

from __future__ import annotations

import ast
import json
import os
import re
import shlex
import shutil
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fleet.config.problems import Problems
from fleet.config.settings import Notes
from fleet.config.ssh_files import expanded, named_hosts
from fleet.config.yamlpos import Document, Keys, Spot, parse, plain
from fleet.model.errors import InputError, InventoryError, Position, reason

VARS_FOLDERS = ("group_vars", "host_vars")
VAULT_MARK = "$ANSIBLE_VAULT;"
_TOOL = "ansible-inventory"
_SECONDS = 120.0  # plugins query cloud services
_ENDINGS = ("", ".yml", ".yaml", ".json")
_NO_INVENTORY = (".cfg", ".md", ".pyc", ".pyo", ".retry", ".orig", ".bak", ".txt", ".j2", ".sh")
_SECTION = re.compile(r"\s*\[(?P<name>[^\]:\s]+)(?::(?P<part>\w+))?\]\s*(?:[#;].*)?")
_PLUGIN = re.compile(r"^plugin\s*:", re.MULTILINE)
# `host ansible_host=10.0.0.1` is a line of an INI inventory.
_SSH_LINE = re.compile(r"(?i)\s*(?:host|match|include)(?:[ \t]*=[ \t]*|[ \t]+(?!\w+=))\S")
_HOST_LINE = re.compile(r"\s*[\w\[][\w.:%@+\[\]-]*(?:\s+[A-Za-z_]\w*\s*=.*)?\s*(?:#.*)?")


def inventory_file(path: Path) -> Path:
    """Return the inventory of a folder by Ansible's rules; return a file unchanged.

    Raises InventoryError for a folder with no inventory or with several.
    """
    if not path.is_dir():
        return path
    names = sorted(
        entry.name
        for entry in path.iterdir()
        if entry.is_file() and entry.suffix not in _NO_INVENTORY and not entry.name.startswith(".")
    )
    if len(names) == 1:
        return path / names[0]
    have = f"several inventories: {', '.join(names)}" if names else "no inventory"
    raise InventoryError(
        f"the folder {path} has {have}",
        hint=f"give the file: -i {shlex.quote(str(path / (names[0] if names else 'FILE')))}",
    )


def other_form(text: str, path: Path) -> Callable[[Path, str, Problems], Document] | None:
    """Return the reader for the text of an inventory, None for YAML."""
    if text.startswith("#!") or _PLUGIN.search(text):
        return _from_tool
    if path.suffix in {".yml", ".yaml", ".json", ".py"}:
        return read_pyinfra if path.suffix == ".py" else None
    lines = [line for line in text.splitlines() if line.strip() and line.lstrip()[0] not in "#;"]
    if any(_SECTION.fullmatch(line) for line in lines):
        return read_ini
    if any(line.rstrip().endswith(":") for line in lines):
        return None
    if any(map(_SSH_LINE.match, lines)):
        return read_ssh_config
    return read_ini if lines and all(map(_HOST_LINE.fullmatch, lines)) else None


def read_ssh_config(path: Path, _text: str, problems: Problems) -> Document:
    """Read an ssh config as an inventory of the hosts that it names.

    Each host gets its settings from this file. A pattern (`Host rb3-*`) is no host.
    """
    try:
        hosts = named_hosts(expanded(path))
    except (OSError, ValueError) as error:
        raise InventoryError(
            f"cannot read the ssh config {path}: {reason(error)}",
            hint=f"ssh -G -F {shlex.quote(str(path))} localhost (shows ssh's own error)",
        ) from error
    if not hosts:
        _bad(problems, path, 1, "the ssh config names no single host, only patterns",
             "add a line `Host NAME` for each board")  # fmt: skip
    own = {"ansible_ssh_common_args": f"-F {shlex.quote(str(path.absolute()))}"}
    return plain({"ungrouped": {"hosts": dict.fromkeys(hosts, own)}}, path)


_PYINFRA = {
    "ssh_hostname": "ansible_host", "ssh_user": "ansible_user", "ssh_port": "ansible_port",
    "ssh_key": "ansible_ssh_private_key_file", "ssh_config_file": "ssh_config",
}  # fmt: skip


def read_pyinfra(path: Path, text: str, problems: Problems) -> Document:
    """Read an inventory of pyinfra: lists of hosts, without running the file.

    A host is a name, or a pair of the name and its data (docs.pyinfra.com, Inventory & Data).
    Connectors such as `@local` are left out.
    """
    try:
        body = ast.parse(text).body
    except (SyntaxError, ValueError, MemoryError, RecursionError) as error:
        raise InventoryError(
            f"{path} is not Python: {error or 'it is nested too deeply'}",
            hint="give an inventory: fleet config check FILE",
        ) from error
    groups: dict[str, Any] = {}
    for node in body:
        if not isinstance(node, ast.Assign) or not isinstance(node.targets[0], ast.Name):
            continue
        try:
            rows, shared = _pyinfra_rows(ast.literal_eval(node.value))
        except (ValueError, TypeError, MemoryError, RecursionError):
            continue
        hosts = {name: shared | data for name, data in rows if not name.startswith("@")}
        groups |= {node.targets[0].id: {"hosts": hosts}} if hosts else {}
    if not groups:
        _bad(problems, path, 1, "the Python file has no list of hosts that can be read without "
             "running it", "write the hosts as YAML: fleet init FOLDER")  # fmt: skip
    return plain(groups, path)


def _pyinfra_rows(
    value: Any,  # noqa: ANN401 - a literal of any type
) -> tuple[list[tuple[str, dict[str, Any]]], dict[str, Any]]:
    """Return the hosts of a group with their variables, and the variables of the group."""
    shared: dict[str, Any] = {}
    if isinstance(value, tuple) and len(value) == 2 and isinstance(value[1], dict):
        value, shared = value[0], _renamed(value[1])
    rows = []
    for item in value if isinstance(value, list | tuple) else ():
        name, data = item if isinstance(item, tuple) and len(item) == 2 else (item, {})
        if isinstance(name, str) and isinstance(data, dict):
            rows.append((name.removeprefix("@ssh/"), _renamed(data)))
    return rows, shared


def _renamed(data: dict[Any, Any]) -> dict[str, Any]:
    return {_PYINFRA[key]: value for key, value in data.items() if key in _PYINFRA}


def refuse_vault(text: str, path: Path) -> None:
    """Raise InventoryError if ansible-vault encrypted the whole file."""
    if text.startswith(VAULT_MARK):
        raise InventoryError(
            f"{path} is encrypted by ansible-vault, which fleet cannot decrypt",
            position=Position(path, 1, 1),
            hint=f"ansible-vault view {shlex.quote(str(path))} > NEW.yaml (then give NEW.yaml, and "
            "delete it afterwards)",
        )


@dataclass
class _Ini:
    """The content of an INI file, with the positions of its keys and values."""

    path: Path
    data: dict[str, Any] = field(default_factory=dict)
    keys: dict[Keys, Spot] = field(default_factory=dict)
    values: dict[Keys, Spot] = field(default_factory=lambda: {(): (1, 1)})
    texts: dict[Keys, str] = field(default_factory=dict)

    def put(self, where: Keys, line: int, value: object, text: str = "") -> None:
        """Set a value below a group; create the missing levels above it."""
        node = self.data
        for count, key in enumerate(where[:-1], 1):
            self.keys.setdefault(where[:count], (line, 1))
            self.values.setdefault(where[:count], (line, 1))
            node = node.setdefault(str(key), {})
        self.keys[where] = self.values[where] = (line, 1)
        if isinstance(value, dict):
            node.setdefault(str(where[-1]), value)
        else:
            node[str(where[-1])] = value
            self.texts[where] = text


def read_ini(path: Path, text: str, problems: Problems) -> Document:
    """Read an Ansible INI inventory into the document of the equivalent YAML file."""
    made = _Ini(path)
    group, part = "ungrouped", "hosts"
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip() or line.lstrip()[0] in "#;":
            continue
        section = _SECTION.fullmatch(line)
        if section:
            group, part = section["name"], section["part"] or "hosts"
            made.put((group,), number, {})
            if part not in {"hosts", "vars", "children"}:
                _bad(problems, path, number, f"[{group}:{part}] is no section of an inventory",
                     "use [GROUP], [GROUP:vars] or [GROUP:children]")  # fmt: skip
                part = "vars"
        elif part == "vars":
            _variable(made, problems, group, number, line)
        elif part == "children":
            made.put((group, "children", line.partition("#")[0].strip()), number, {})
        else:
            _host_line(made, problems, group, number, line)
    return Document(path, made.data, made.keys, made.values, made.texts)


def _bad(problems: Problems, path: Path, line: int, message: str, hint: str) -> None:
    problems.add(message, Position(path, line, 1), hint)


def _variable(made: _Ini, problems: Problems, group: str, number: int, line: str) -> None:
    key, sign, value = line.partition("=")
    if not sign or not key.strip():
        _bad(problems, made.path, number, f"'{line.strip()}' is no variable", "write NAME=VALUE")
        return
    text = value.strip()
    made.put((group, "vars", key.strip()), number, _literal(text), _unquoted(text))


def _host_line(made: _Ini, problems: Problems, group: str, number: int, line: str) -> None:
    try:
        words = shlex.split(line, comments=True)
    except ValueError as error:
        _bad(problems, made.path, number, f"the line cannot be split: {error}",
             "close the quotation mark")  # fmt: skip
        return
    if not words:
        return
    name, here = words[0], (group, "hosts", words[0])
    made.put(here, number, {})
    for word in words[1:]:
        key, sign, value = word.partition("=")
        if not sign:
            _bad(problems, made.path, number, f"'{word}' of the host {name} is no variable",
                 "write NAME=VALUE; quote a value with blanks")  # fmt: skip
            continue
        made.put((*here, key), number, _literal(value), value)


def _literal(text: str) -> object:
    """Return a value by Ansible's rule: a Python literal if the text is one, else the text."""
    try:
        value = ast.literal_eval(text)
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        return text
    return value if isinstance(value, str | int | float | bool | dict | list | None) else text


def _unquoted(text: str) -> str:
    value = _literal(text)
    return value if isinstance(value, str) else text


def variable_files(folder: Path, groups: list[str], hosts: list[str]) -> Iterator[
    tuple[str, str, Path]
]:  # fmt: skip
    """Yield (folder, name, file) of the variables of groups and hosts, weakest first."""
    for kind, names in zip(VARS_FOLDERS, (groups, hosts), strict=True):
        for name in names:
            for ending in _ENDINGS:
                path = folder / kind / f"{name}{ending}"
                if path.is_file():
                    yield kind, name, path
                elif path.is_dir() and not ending:
                    for below in sorted(path.rglob("*")):
                        if below.is_file() and below.suffix in _ENDINGS:
                            yield kind, name, below


def has_variable_folders(folder: Path) -> bool:
    """Return whether the folder has `group_vars` or `host_vars`, which Ansible reads."""
    return any((folder / name).is_dir() for name in VARS_FOLDERS)


def read_variables(path: Path, notes: Notes) -> Document | None:
    """Read one variable file; return None for an empty one, and None with a warning for an
    encrypted one.

    Raises InventoryError if the file cannot be read.
    """
    try:
        text = path.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise InventoryError(
            f"cannot read the variables of {path}: {error}", hint=f"ls -l {shlex.quote(str(path))}"
        ) from error
    if text.startswith(VAULT_MARK):
        notes.warn(
            "fleet does not read this file, because ansible-vault encrypted it; a setting that "
            "fleet needs must stand in another file",
            Position(path),
        )
        return None
    if not re.sub(r"(?m)^\s*(#.*|---)?$", "", text).strip():
        return None
    return parse(text, path, InventoryError)


def _from_tool(path: Path, text: str, problems: Problems) -> Document:
    """Return the output of `ansible-inventory --list` for a dynamic inventory. Raises
    InventoryError.
    """
    del text, problems
    tool = shutil.which(_TOOL)
    command = f"{_TOOL} -i {shlex.quote(str(path))} --list"
    if tool is None:
        raise InventoryError(
            f"{path} is a dynamic inventory (a program, or settings of a plugin), which needs "
            f"{_TOOL} of Ansible, and this workstation does not have this program",
            hint=f"pip install ansible-core; or on another machine: {command} --yaml > NEW.yaml",
        )
    try:
        result = subprocess.run(
            [tool, "-i", str(path), "--list"],
            cwd="/",  # the ansible.cfg of the working folder may belong to another user
            env={**os.environ, "ANSIBLE_DEPRECATION_WARNINGS": "False"},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=_SECONDS,
            check=False,
        )
        data = json.loads(result.stdout) if result.returncode == 0 else None
    except (OSError, subprocess.TimeoutExpired, ValueError) as error:
        raise InventoryError(f"`{command}` failed: {error}", hint=command) from error
    if not isinstance(data, dict):
        last = result.stderr.decode("utf-8", "replace").strip().splitlines()[-1:]
        raise InventoryError(f"`{command}` failed: {' '.join(last)}", hint=command)
    return plain(_as_groups(data), path)


def _as_groups(data: dict[str, Any]) -> dict[str, Any]:
    """Convert the JSON of `--list` to groups.

    The JSON has lists of hosts and children, with all variables under `_meta`.
    """
    variables = (data.get("_meta") or {}).get("hostvars") or {}
    groups: dict[str, Any] = {}
    for name, body in data.items():
        if name != "_meta" and isinstance(body, dict):
            groups[name] = {
                "hosts": {host: variables.get(host) or {} for host in body.get("hosts") or ()},
                "children": {child: {} for child in body.get("children") or ()},
                "vars": body.get("vars") or {},
            }
    for host, own in variables.items():
        groups.setdefault("all", {}).setdefault("hosts", {}).setdefault(host, own)
    return groups


def runs_a_program(text: str) -> bool:
    """Return whether reading the inventory would run the file as a program, or a plugin."""
    return text.startswith("#!") or _PLUGIN.search(text) is not None


def inventory_text(path: Path, limit: int) -> str | None:
    """Return the text of an inventory; None if it cannot be read or is too long, so that the YAML
    reader reports the error.
    """
    try:
        with path.open("rb") as stream:
            data = stream.read(limit + 1)
        return None if len(data) > limit else data.decode("utf-8-sig")
    except (OSError, UnicodeDecodeError):
        return None


def untrusted(path: Path, fault: object) -> InputError:
    """Return the error for a dynamic inventory that other users can change, which fleet does not
    run.
    """
    return InventoryError(
        f"{path} is a dynamic inventory, and reading it would run a program, but the file is not "
        f"trusted: {fault}",
        hint=f"fleet config trust {shlex.quote(str(path.parent))} (if you trust everybody who can "
        "change it)",
    )
