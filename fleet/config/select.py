"""The selection of hosts by patterns: Ansible's --limit."""

from __future__ import annotations

import re
from collections.abc import Sequence
from fnmatch import fnmatchcase
from ipaddress import IPv6Address
from shlex import quote

from fleet.config.problems import suggestion
from fleet.config.ranges import expand
from fleet.model.errors import InventoryError
from fleet.model.inventory import Host, Inventory

_SUBSCRIPT = re.compile(r"(?P<base>.+)\[(?:(?P<one>-?\d+)|(?P<first>\d+)[:-](?P<last>\d*))\]")
_COLON = re.compile(r":(?![^\[]*\])")  # not inside [0:2]


def select(inventory: Inventory, patterns: Sequence[str] = ()) -> tuple[Host, ...]:
    """Return the hosts that match `patterns`, in the order of the inventory; all without patterns.

    Patterns are names, groups, globs, `~regex`, `group[0]`, `group[0:2]` (both ends count, as in
    Ansible), `!exclude` and `&intersect`. One text may hold several with commas. Raises
    InventoryError for a pattern that matches nothing, and if no host remains.
    """
    words = [word for pattern in patterns for word in _split(inventory, pattern)]
    if not words:
        if not inventory.hosts and inventory.left_out:
            raise _unusable(inventory, next(iter(inventory.left_out)))
        return inventory.hosts
    chosen: set[str] = set()
    plain = [word for word in words if word[0] not in "!&"]
    for word in plain or ["all"]:
        chosen |= _match(inventory, word)
    for word in words:
        if word[0] == "&":
            chosen &= _match(inventory, word[1:])
    for word in words:
        if word[0] == "!" and word[1:] not in inventory.left_out:
            chosen -= _match(inventory, word[1:])
    if not chosen:
        raise InventoryError(
            f"the selection '{','.join(words)}' contains no host",
            hint=f"fleet config list {quote(str(inventory.path))}",
        )
    return tuple(host for host in inventory.hosts if host.name in chosen)


def _split(inventory: Inventory, pattern: str) -> list[str]:
    """Return the words of a pattern. Also split Ansible's older `a:b:!c`, but not names with a
    colon.
    """
    words: list[str] = []
    names = {host.name for host in inventory.hosts}
    for part in re.split(r",(?![^\[]*\])", pattern):
        word = part.strip()
        bare = word.lstrip("!&")
        if bare in names or bare.startswith("~") or _is_ipv6(bare):
            words.append(word)
        else:
            words += [each.strip() for each in _COLON.split(word)]
    if any(word in {"", "!", "&"} for word in words):
        raise InventoryError(
            f"the selection '{pattern}' contains an empty pattern",
            hint="write --limit evk1,evk2 or --limit 'all,!evk3'",
        )
    return words


def _is_ipv6(text: str) -> bool:
    try:
        IPv6Address(text)
    except ValueError:
        return False
    return True


def _match(inventory: Inventory, word: str) -> set[str]:
    names = set(_slice(inventory, word)) or _named(inventory, word)
    if not names and "[" in word:
        known = {host.name for host in inventory.hosts}
        names = known.intersection(expand(word)) or _globbed(inventory, word)
    if not names:
        raise _nothing(inventory, word)
    return names


def _named(inventory: Inventory, word: str) -> set[str]:
    if word.startswith("~"):
        return _regex(inventory, word[1:])
    if word in {"all", "*"}:
        return {host.name for host in inventory.hosts}
    if word in inventory.groups:
        return set(inventory.groups[word])
    if any(host.name == word for host in inventory.hosts):
        return {word}
    return _globbed(inventory, word) if "*" in word or "?" in word else set()


def _globbed(inventory: Inventory, word: str) -> set[str]:
    names = {host.name for host in inventory.hosts if fnmatchcase(host.name, word)}
    for name, members in inventory.groups.items():
        if fnmatchcase(name, word):
            names.update(members)
    return names


def _regex(inventory: Inventory, text: str) -> set[str]:
    try:
        pattern = re.compile(text)
    except re.error as error:
        raise InventoryError(
            f"'~{text}' is not a valid regular expression: {error}",
            hint="use a glob instead: 'evk*'",
        ) from error
    names = {host.name for host in inventory.hosts if pattern.match(host.name)}
    for name, members in inventory.groups.items():
        if pattern.match(name):
            names.update(members)
    return names


def _slice(inventory: Inventory, word: str) -> list[str]:
    match = _SUBSCRIPT.fullmatch(word)
    if not match or word.startswith("~"):
        return []
    members = _named(inventory, match["base"])
    names = [host.name for host in inventory.hosts if host.name in members]
    if not names:
        return []
    if match["one"] is not None:
        at = int(match["one"])
        picked = names[at : at + 1 or None] if -len(names) <= at < len(names) else []
    else:
        last = int(match["last"]) if match["last"] else len(names)
        picked = names[int(match["first"]) : last + 1]
    if not picked:
        raise InventoryError(
            f"'{word}' selects nothing: '{match['base']}' has {len(names)} hosts",
            hint=f"use an index up to {match['base']}[{len(names) - 1}]",
        )
    return picked


def _unusable(inventory: Inventory, name: str) -> InventoryError:
    return InventoryError(
        f"the host '{name}' cannot be used: {inventory.left_out[name]}",
        hint=f"select other hosts: fleet config list {quote(str(inventory.path))}"
        if inventory.hosts
        else f"add a host with the connection ssh, local or adb to {inventory.path}",
    )


def _nothing(inventory: Inventory, word: str) -> InventoryError:
    if word in inventory.left_out:
        return _unusable(inventory, word)
    names = [*(host.name for host in inventory.hosts), *inventory.groups]
    if word in inventory.groups:
        return InventoryError(
            f"the group '{word}' has no hosts"
            + (" that fleet can connect to" if inventory.left_out else ""),
            hint=f"fleet config list {quote(str(inventory.path))}",
        )
    near = suggestion(word, names)
    return InventoryError(
        f"no host or group matches '{word}'",
        hint=near or f"fleet config list {quote(str(inventory.path))}",
    )
