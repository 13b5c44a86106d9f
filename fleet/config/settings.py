"""The variables of one host or group: checked values that can be merged key by key."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any, Protocol

from fleet.config.hostvars import HOST_KEYS, PRIORITY, SECTIONS, WHOLE_NUMBER, ValuePlace
from fleet.config.problems import Problems, printable, suggest_or_list
from fleet.config.yamlpos import Document, Keys
from fleet.model.errors import Position


@dataclass(frozen=True)
class Unusable:
    """A value with which fleet cannot connect; its hosts are left out.

    Examples are winrm, network_cli, a proxy command, and a password that cannot be hidden. `why` is
    a clause.
    """

    why: str
    position: Position

    def __str__(self) -> str:
        return f"{self.why} ({self.position})"


@dataclass(frozen=True)
class Setting:
    """A checked value for a field of HostVars. None unsets an inherited value.

    The setting with the higher `rank` wins if two set one field, because Ansible has several names
    for one thing. Secrets are already SecretRef.
    """

    field: str
    value: object
    rank: int = 0


Settings = dict[str, tuple[Setting, ...]]  # by the key in the file, because layers merge by key


@dataclass(frozen=True)
class Ignored:
    """A variable that fleet does not use."""

    key: str
    position: Position


@dataclass
class Notes:
    """The warnings of a reader, and the variables that it ignored."""

    warnings: list[str] = field(default_factory=list)
    ignored: list[Ignored] = field(default_factory=list)

    def warn(self, text: str, position: Position) -> None:
        """Add a warning, unless it is already there."""
        line = f"{position}: {printable(text)}"
        if line not in self.warnings:
            self.warnings.append(line)


class VariableReader(Protocol):
    """A reader of variables: strict for fleet's files, tolerant for Ansible's.

    `port_key` is the key that the port in `name:2222` sets. With `lone_name`, a single host or
    group below `hosts` or `children` needs no colon.
    """

    port_key: str
    lone_name: bool

    def settings(self, body: dict[str, Any], path: Keys, *, of_group: bool) -> Settings:
        """Return the checked variables of a group (`of_group`) or of a host."""
        ...

    def section(self, name: str, path: Keys) -> None:
        """Read or report a key of a group that is not hosts, children or vars."""
        ...


class NativeReader:
    """A reader of variables in fleet's own format, where each key must be known."""

    port_key = "port"
    lone_name = False

    def __init__(self, document: Document, problems: Problems) -> None:
        self._document, self._problems = document, problems

    def settings(self, body: dict[str, Any], path: Keys, *, of_group: bool) -> Settings:
        """Return the checked variables, and report unknown keys and missing values."""
        settings: Settings = {}
        for key, value in body.items():
            here = (*path, key)
            if key == PRIORITY and of_group:
                continue
            if key in HOST_KEYS and value is None and not self._document.text(here):
                self._problems.add(
                    f"'{key}' has no value",
                    self._document.key(here),
                    "write a value; `null` removes an inherited one",
                )
                continue
            checked = check(self._document, self._problems, key, value, here)
            if checked is not None:
                settings[key] = (checked,)
        return settings

    def section(self, name: str, path: Keys) -> None:
        """Report an unknown key of a group."""
        hint = suggest_or_list(name, tuple(SECTIONS))
        if name in HOST_KEYS:
            hint = f"move it to `vars:` of the group (vars: {{{name}: ...}})"
        self._problems.add(f"'{name}' is not a key of a group", self._document.key(path), hint)


def check(
    document: Document, problems: Problems, name: str, value: object, path: Keys, *, rank: int = 0
) -> Setting | None:
    """Return the setting for field `name`, or None after reporting an error at `path`."""
    known = HOST_KEYS.get(name)
    if known is None:
        hint = suggest_or_list(name, tuple(HOST_KEYS))
        problems.add(f"unknown key '{name}'", document.key(path), hint)
        return None
    taken = None if value is None else known.take(ValuePlace(document, problems, path), value)
    return None if taken is None and value is not None else Setting(name, taken, rank)


def priority(document: Document, problems: Problems, body: dict[str, Any], path: Keys) -> int:
    """Return `ansible_group_priority` of the vars at `path`; Ansible's default is 1."""
    value = body.get(PRIORITY)
    if value is None:
        return 1
    if isinstance(value, str) and re.fullmatch(r"\s*-?\d{1,9}\s*", value):
        return int(value)
    if type(value) is int:
        return value
    ValuePlace(document, problems, (*path, PRIORITY)).unlike(value, WHOLE_NUMBER)
    return 1


def is_ansible(document: Document) -> bool:
    """Return True if a key of the file starts with `ansible_`, except the group priority, which
    fleet's format has too.
    """
    names = (str(path[-1]) for path in document.keys)
    return any(name.startswith("ansible_") and name != PRIORITY for name in names)
