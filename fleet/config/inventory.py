"""Inventory files: fleet's own, strict; Ansible's YAML inventories, as they are."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from fleet.config.groups import ALL, UNGROUPED, GroupTree, HostGroup, merged
from fleet.config.problems import Problems
from fleet.config.select import select
from fleet.config.settings import Ignored, NativeReader, Notes, VariableReader, is_ansible
from fleet.config.trusted import require
from fleet.config.yamlpos import read
from fleet.model.errors import InputError, InventoryError
from fleet.model.inventory import Host, Inventory
from fleet.model.masking import publish

__all__ = ["InventoryReading", "load_inventory", "read_inventory", "select", "ssh_configs"]


@dataclass(frozen=True)
class InventoryReading:
    """All that a file gave. `inventory` is None when there are errors."""

    inventory: Inventory | None
    errors: tuple[InputError, ...]
    warnings: tuple[str, ...]
    ignored: tuple[Ignored, ...]
    ansible: bool


def load_inventory(path: Path) -> Inventory:
    """Return the hosts of a file, with groups, children and vars merged.

    Raises InventoryError for a file, or an ssh config that it names, that other users can change,
    and for the first thing that is wrong, with file, line and column.
    """
    unsure = require(path, InventoryError)
    reading, problems = _read(path)
    problems.raise_first(f"fleet config check {path}")
    if reading.inventory is None:
        raise InventoryError(f"cannot read {path}", hint=f"fleet config check {path}")
    for config in ssh_configs(reading.inventory.hosts):
        require(config, InventoryError)
    if not unsure:
        return reading.inventory
    return replace(reading.inventory, warnings=(unsure, *reading.inventory.warnings))


def read_inventory(path: Path) -> InventoryReading:
    """Read a file to judge it, trusted or not: all errors instead of the first.

    Syntax errors raise.
    """
    return _read(path)[0]


def ssh_configs(hosts: Iterable[Host]) -> list[Path]:
    """Return each ssh config that hosts name, once."""
    return list(dict.fromkeys(host.ssh_config for host in hosts if host.ssh_config))


def _read(path: Path) -> tuple[InventoryReading, Problems]:
    document = read(path, InventoryError)
    problems, notes = Problems(InventoryError), Notes()
    folder = path.absolute().parent
    ansible = is_ansible(document)
    reader: VariableReader = NativeReader(document, problems)
    if ansible:
        from fleet.config.ansible import AnsibleReader  # noqa: PLC0415 - most are fleet's own

        reader = AnsibleReader(document, problems, notes, folder)
    tree = GroupTree(document, problems, reader)
    inventory = None
    if not problems.errors:
        inventory = _inventory(tree, path, folder, notes)
    warnings = tuple(notes.warnings)
    return InventoryReading(
        inventory, problems.errors, warnings, tuple(notes.ignored), ansible
    ), problems


def _inventory(tree: GroupTree, path: Path, folder: Path, notes: Notes) -> Inventory:
    groups_of = tree.groups_of()
    publish([*tree.hosts, str(path)])
    hosts = tuple(
        _host(name, settings, groups_of[name], path, folder)
        for name, settings in ((n, merged(_layers(tree, n, groups_of[n]))) for n in tree.hosts)
    )
    members: dict[str, list[str]] = {name: [] for name in tree.groups}
    for name in tree.hosts:
        for group in groups_of[name]:
            members[group.name].append(name)
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
    )


def _layers(tree: GroupTree, name: str, groups: tuple[HostGroup, ...]) -> list[Any]:
    return [*(group.settings for group in groups), tree.hosts[name]]


def _host(
    name: str, values: Mapping[str, Any], groups: tuple[HostGroup, ...], path: Path, folder: Path
) -> Host:
    """The host of merged settings. Paths start from the inventory's folder."""
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
