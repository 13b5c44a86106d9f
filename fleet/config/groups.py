"""Groups, children and hosts of an inventory file, and the precedence of variables."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from fleet.config.problems import Problems
from fleet.config.ranges import MAX_HOSTS, expand, split_port
from fleet.config.settings import Setting, Settings, VariableReader, priority
from fleet.config.yamlpos import MAX_DEPTH, Document, Keys, describe
from fleet.model.errors import InventoryError, Position

ALL = "all"
UNGROUPED = "ungrouped"
NAMED = ("hosts", "children")  # the sections of a group in which keys are names

# A host's name becomes the name of folders on this workstation, and a word in --limit.
_HOST_NAME = re.compile(r"[\w\[:][\w.:%@+\[\]-]*")
_GROUP_NAME = re.compile(r"[^\s,:!&~@\[\]*?/\x00-\x1f][^,:\[\]*?/\x00-\x1f]*")


@dataclass
class HostGroup:
    """A group, merged from all places in the file that mention it."""

    name: str
    position: Position
    children: dict[str, None] = field(default_factory=dict)
    hosts: dict[str, None] = field(default_factory=dict)
    settings: Settings = field(default_factory=dict)
    priority: int = 1
    depth: int = 0
    above: frozenset[str] = frozenset()


class GroupTree:
    """The groups and hosts of a file; `hosts` keeps the order of the file."""

    def __init__(self, document: Document, problems: Problems, reader: VariableReader) -> None:
        self.groups: dict[str, HostGroup] = {}
        self.hosts: dict[str, Settings] = {}
        self._document, self._problems, self._reader = document, problems, reader
        for name, body in document.data.items():
            self._group(name, body, (name,))
        for name in (ALL, UNGROUPED):
            self.groups.setdefault(name, HostGroup(name, Position(document.file)))
        below = {child for group in self.groups.values() for child in group.children}
        for name in self.groups:
            if name != ALL and name not in below:
                self.groups[ALL].children[name] = None
        if self._acyclic():
            self._descend(ALL, 0, frozenset())

    def _bad(self, message: str, position: Position, hint: str) -> None:
        self._problems.add(message, position, hint)

    def _group(self, name: str, body: Any, path: Keys) -> None:  # noqa: ANN401
        at = self._document.key(path)
        if not _GROUP_NAME.fullmatch(name):
            self._bad(
                f"'{name}' is not a valid group name",
                at,
                "use only letters, digits, _ and - (the characters , : ! & ~ [ * ? have a "
                "meaning in --limit)",
            )
            return
        group = self.groups.setdefault(name, HostGroup(name, at))
        if not self._mapping(body, path, "write hosts, children or vars below it"):
            return
        for key, value in body.items():
            here = (*path, key)
            if isinstance(value, str) and self._reader.lone_name and key in NAMED:
                self._section(group, key, {value: None}, here)
            else:
                self._section(group, key, value, here)

    def _section(self, group: HostGroup, key: str, value: Any, path: Keys) -> None:  # noqa: ANN401
        if key != "vars" and key not in NAMED:
            self._reader.section(key, path)
        elif not self._mapping(value, path, f"write lines with a colon below `{key}:`"):
            return
        elif key == "vars":
            group.settings.update(self._reader.settings(value, path, of_group=True))
            group.priority = priority(self._document, self._problems, value, path)
        elif key == "children":
            for name, body in value.items():
                group.children[name] = None
                self._group(name, body, (*path, name))
        else:
            for name, body in value.items():
                self._host(group, name, body, (*path, name))

    def _mapping(self, value: Any, path: Keys, hint: str) -> bool:  # noqa: ANN401
        """Return True for a mapping. None counts as an empty mapping; report anything else."""
        if value is not None and not isinstance(value, dict):
            name = path[-1]
            self._bad(
                f"'{name}' must be a mapping, not {describe(value)}",
                self._document.value(path),
                hint,
            )
        return isinstance(value, dict)

    def _host(self, group: HostGroup, pattern: str, body: Any, path: Keys) -> None:  # noqa: ANN401
        at = self._document.key(path)
        name, port = split_port(pattern)
        try:
            names = expand(name)
        except InventoryError as error:
            self._bad(error.message, at, error.hint)
            return
        if not _HOST_NAME.fullmatch(names[0]):
            self._bad(
                f"'{pattern}' is not a valid host name",
                at,
                "use only letters, digits, dots, hyphens and underscores in the name; write the "
                "address as `host: ADDRESS`",
            )
            return
        if len(self.hosts) + len(names) > MAX_HOSTS:
            self._bad(
                f"more than {MAX_HOSTS} hosts", at, "split the hosts into several inventories"
            )
            return
        settings: Settings = {}
        if port is not None:
            settings[self._reader.port_key] = (Setting("port", port),)
        if self._mapping(body, path, f"write `host: ADDRESS` in the line below `{pattern}:`"):
            settings.update(self._reader.settings(body, path, of_group=False))
        for each in names:
            group.hosts[each] = None
            self.hosts.setdefault(each, {}).update(settings)

    def _acyclic(self) -> bool:
        """Return False, after reporting the cycle, if a group contains itself."""
        done: set[str] = set()
        for start in self.groups:
            way: list[str] = []
            if not self._walk(start, way, done):
                return False
        return True

    def _walk(self, name: str, way: list[str], done: set[str]) -> bool:
        if name in way:
            ring = [*way[way.index(name) :], name]
            self._bad(
                f"group '{name}' contains itself: {' > '.join(ring)}",
                self.groups[name].position,
                f"remove '{name}' from `children:` of '{ring[-2]}'",
            )
            return False
        if name in done or name not in self.groups:
            return True
        if len(way) > MAX_DEPTH:
            self._bad(
                f"the groups are nested more than {MAX_DEPTH} levels deep",
                self.groups[name].position,
                "move some groups to a higher level",
            )
            return False
        way.append(name)
        if not all(self._walk(child, way, done) for child in self.groups[name].children):
            return False
        way.pop()
        done.add(name)
        return True

    def _descend(self, name: str, depth: int, above: frozenset[str]) -> None:
        """Set the depth of each group: its longest path from `all`, as in Ansible."""
        group = self.groups.get(name)
        if group is None:
            return
        known = group.above | above | {name}
        if known == group.above and depth <= group.depth:
            return
        group.above, group.depth = known, max(depth, group.depth)
        for child in group.children:
            self._descend(child, group.depth + 1, known)

    def groups_of(self) -> dict[str, tuple[HostGroup, ...]]:
        """Return all groups of each host, the weakest first."""
        direct: dict[str, set[str]] = {name: {ALL} for name in self.hosts}
        for group in self.groups.values():
            for host in group.hosts:
                direct[host] |= group.above
        for names in direct.values():
            if names <= {ALL, UNGROUPED}:
                names.add(UNGROUPED)
        cache: dict[frozenset[str], tuple[HostGroup, ...]] = {}
        return {host: self._ordered(frozenset(names), cache) for host, names in direct.items()}

    def _ordered(
        self, names: frozenset[str], cache: dict[frozenset[str], tuple[HostGroup, ...]]
    ) -> tuple[HostGroup, ...]:
        if names not in cache:
            groups = (self.groups[name] for name in names)
            cache[names] = tuple(sorted(groups, key=lambda g: (g.depth, g.priority, g.name)))
        return cache[names]


def merged(layers: Iterable[Settings]) -> dict[str, object]:
    """Return the value of each field after merging the layers.

    A later layer overrides an earlier one key by key. Then the key with the higher rank wins for
    each field. The `labels` of all layers are joined, label by label.
    """
    by_key: Settings = {}
    labels: dict[str, str] = {}
    for layer in layers:
        for settings in layer.values():
            for setting in settings:
                if setting.field == "labels" and isinstance(setting.value, dict):
                    labels.update(setting.value)
                elif setting.field == "labels":
                    labels.clear()
        by_key.update(layer)
    flat = [s for settings in by_key.values() for s in settings if s.value is not None]
    values = {s.field: s.value for s in sorted(flat, key=lambda s: s.rank)}
    values["labels"] = labels
    return values
