"""Inventory files: fleet's own format, read strictly, and Ansible inventories, read unchanged."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from fleet.config.groups import ALL, UNGROUPED, GroupTree, HostGroup, merged
from fleet.config.problems import Problems
from fleet.config.select import select
from fleet.config.settings import Ignored, NativeReader, Notes, Unusable, VariableReader, is_ansible
from fleet.config.ssh_files import with_included
from fleet.config.trusted import fault_of, require
from fleet.config.yamlpos import MAX_BYTES, Document, read
from fleet.model.errors import InputError, InventoryError
from fleet.model.inventory import Host, Inventory
from fleet.model.masking import publish

__all__ = ["InventoryReading", "load_inventory", "read_inventory", "select", "ssh_configs"]


@dataclass(frozen=True)
class InventoryReading:
    """The result of reading an inventory file. `inventory` is None if there are errors."""

    inventory: Inventory | None
    errors: tuple[InputError, ...]
    warnings: tuple[str, ...]
    ignored: tuple[Ignored, ...]
    ansible: bool
    files: tuple[Path, ...] = ()  # the variable files next to the inventory


def load_inventory(path: Path) -> Inventory:
    """Return the hosts of a file, with groups, children and vars merged.

    Raises InventoryError if other users can change the file or an ssh config that it names. Also
    raises it for the first error in the file, with file, line and column.
    """
    path = _file(path)
    unsure = require(path, InventoryError)
    reading, problems = _read(path)
    for variables in reading.files:
        require(variables, InventoryError)
    problems.raise_first(f"fleet config check {path}")
    if reading.inventory is None:
        raise InventoryError(f"cannot read {path}", hint=f"fleet config check {path}")
    for config in ssh_configs(reading.inventory.hosts):
        require(config, InventoryError)
    if not unsure:
        return reading.inventory
    return replace(reading.inventory, warnings=(unsure, *reading.inventory.warnings))


def read_inventory(path: Path) -> InventoryReading:
    """Read a file in order to check it, trusted or not. Collect all errors instead of the first.

    Syntax errors raise InventoryError.
    """
    return _read(_file(path))[0]


def ssh_configs(hosts: Iterable[Host]) -> dict[Path, tuple[str, ...]]:
    """Return the ssh configs that hosts name, and the files that these include, with the names of
    the hosts.
    """
    users, files = dict[Path, tuple[str, ...]](), dict[Path, tuple[str, ...]]()
    for host in hosts:
        if host.ssh_config:
            users[host.ssh_config] = (*users.get(host.ssh_config, ()), host.name)
    for path, names in users.items():
        try:
            read = with_included(path)
        except (OSError, ValueError):
            read = [path]  # the connection reports the error
        files |= {file: (*files.get(file, ()), *names) for file in read}
    return files


def _read(path: Path) -> tuple[InventoryReading, Problems]:
    problems, notes = Problems(InventoryError), Notes()
    folder = path.absolute().parent
    document, ansible = _document(path, folder, problems)
    reader: VariableReader = NativeReader(document, problems)
    if ansible:
        from fleet.config.ansible import AnsibleReader  # noqa: PLC0415 - most are fleet's own

        reader = AnsibleReader(document, problems, notes, folder)
    tree = GroupTree(document, problems, reader)
    files = _variables(tree, folder, problems, notes) if ansible else ()
    inventory = None
    if not problems.errors:
        inventory = _inventory(tree, path, folder, notes)
    warnings = tuple(notes.warnings)
    return InventoryReading(
        inventory, problems.errors, warnings, tuple(notes.ignored), ansible, files
    ), problems


def _file(path: Path) -> Path:
    if not path.is_dir():
        return path
    from fleet.config.ansible_files import inventory_file  # noqa: PLC0415 - seldom used

    return inventory_file(path)


def _document(path: Path, folder: Path, problems: Problems) -> tuple[Document, bool]:
    """Return the document of a file, and whether it is Ansible's."""
    from fleet.config import ansible_files  # noqa: PLC0415 - after the start of the CLI

    text = ansible_files.inventory_text(path, MAX_BYTES)
    reader = None
    if text is not None:
        ansible_files.refuse_vault(text, path)
        reader = ansible_files.other_form(text, path)
    if text is None or reader is None:
        document = read(path, InventoryError, problems)
        return document, is_ansible(document) or ansible_files.has_variable_folders(folder)
    if ansible_files.runs_a_program(text):
        fault = fault_of(path)
        if fault is not None:
            raise ansible_files.untrusted(path, fault)
    return reader(path, text, problems), True


def _variables(tree: GroupTree, folder: Path, problems: Problems, notes: Notes) -> tuple[Path, ...]:
    """Add the variables of group_vars and host_vars, which override those of the inventory, and
    return their files.
    """
    from fleet.config.ansible import AnsibleReader  # noqa: PLC0415 - most are fleet's own
    from fleet.config.ansible_files import read_variables, variable_files  # noqa: PLC0415

    files = []
    for kind, name, path in variable_files(folder, [*tree.groups], [*tree.hosts]):
        document = read_variables(path, notes)
        files.append(path)
        if document is None:
            continue
        reader = AnsibleReader(document, problems, notes, path.parent)
        group = kind == "group_vars"
        settings = reader.settings(document.data, (), of_group=group)
        target = tree.groups[name].settings if group else tree.hosts[name]
        target.update(settings)
    return tuple(files)


def _inventory(tree: GroupTree, path: Path, folder: Path, notes: Notes) -> Inventory:
    groups_of = tree.groups_of()
    publish([*tree.hosts, str(path)])
    settings = {name: merged(_layers(tree, name, groups_of[name])) for name in tree.hosts}
    left = {
        name: str(reason)
        for name, values in settings.items()
        if (
            reason := next(
                (value for value in values.values() if isinstance(value, Unusable)), None
            )
        )
    }
    for why in dict.fromkeys(reason.rpartition(" (")[0] for reason in left.values()):
        names = [name for name, reason in left.items() if reason.rpartition(" (")[0] == why]
        shown = ", ".join(names[:5]) + (f" and {len(names) - 5} more" if len(names) > 5 else "")
        notes.warnings.append(f"fleet leaves out {shown}: {left[names[0]]}")
    hosts = tuple(
        _host(name, values, groups_of[name], path, folder)
        for name, values in settings.items()
        if name not in left
    )
    members: dict[str, list[str]] = {name: [] for name in tree.groups}
    for name in tree.hosts:
        for group in groups_of[name]:
            members[group.name] += [] if name in left else [name]
    for name in tree.hosts.keys() & tree.groups.keys():
        notes.warn(
            f"'{name}' is the name of a group and of a host; --limit {name} means the group",
            tree.groups[name].position,
        )
    return Inventory(
        path.absolute(),
        hosts,
        {name: tuple(each) for name, each in members.items()},
        tuple(notes.warnings),
        left,
    )


def _layers(tree: GroupTree, name: str, groups: tuple[HostGroup, ...]) -> list[Any]:
    return [*(group.settings for group in groups), tree.hosts[name]]


def _host(
    name: str, values: Mapping[str, Any], groups: tuple[HostGroup, ...], path: Path, folder: Path
) -> Host:
    """Return the host of merged settings. Relative paths start from the inventory's folder."""
    fields: dict[str, Any] = {
        key: value
        for key, value in values.items()
        if key not in {"host", "identity_file", "ssh_config", "known_hosts"}
    }
    known = values.get("known_hosts") or f"{path.stem}.known_hosts"
    config = values.get("ssh_config")
    return Host(
        name,
        address=values.get("host") or name,
        identity_files=tuple(_path(each, folder) for each in values.get("identity_file") or ()),
        ssh_config=_path(config, folder) if config else None,
        known_hosts=_path(known, folder),
        groups=tuple(g.name for g in groups if g.name not in {ALL, UNGROUPED}),
        **fields,
    )


def _path(text: str, folder: Path) -> Path:
    path = Path(text)
    try:
        path = path.expanduser()
    except RuntimeError as error:
        raise InventoryError(
            f"'{text}' names a user that does not exist on this workstation",
            hint="write the whole path, without ~",
        ) from error
    return folder / path
