"""The packagings of FastRPC from data/fastrpc.yaml, and the row that matches a device."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache

from fleet.data import frozen, load
from fleet.model.system import SystemSpec, SystemState

UPSTREAM, BSP = "upstream", "bsp"
_NOT_ROWS = {"qnn_packages"}


@dataclass(frozen=True)
class Version:
    """The effect of a packaging's rules from a version on; None if unknown.

    `node` and `secure` are modes. If there are rules, None means that the nodes stay unchanged.
    """

    since: str
    date: str
    group: str | None
    rules: bool | None
    heap: bool | None
    node: str | None
    secure: str | None
    source: str


@dataclass(frozen=True)
class Packaging:
    """A row of the table.

    `setup` is the command with which its tutorial adds the source. `boards` are the beginnings of
    models for which it is preferred. `version_mark` is part of each version of its packages, and
    distinguishes them from packages with the same names in another archive.
    """

    id: str
    title: str
    packages: tuple[str, ...]
    companions: tuple[str, ...]
    marks: tuple[str, ...]
    unit: str | None
    versions: tuple[Version, ...]
    setup: str = ""
    boards: tuple[str, ...] = ()
    version_mark: str = ""

    def is_there(self, version: str | None) -> bool:
        """Return True if this version exists and belongs to this packaging."""
        return version is not None and self.version_mark in version

    def at(self, version: str | None = None) -> Version:
        """Return the effect of a version of its packages; None means the newest version."""
        known = [
            row
            for row in self.versions
            if version is None or _numbers(row.since) <= _numbers(version)
        ]
        return (known or self.versions[-1:])[0]


def _numbers(version: str) -> list[int]:
    """Return the numbers of a package version without its epoch, for sorting."""
    return [int(part) for part in re.findall(r"\d+", version.rpartition(":")[2])]


@cache
def packagings() -> dict[str, Packaging]:
    """Return name → row for all packagings, in order of preference."""
    return {
        name: Packaging(
            id=name,
            **{**frozen(row), "versions": tuple(Version(**version) for version in row["versions"])},
        )
        for name, row in load("fastrpc").items()
        if name not in _NOT_ROWS
    }


def qnn_packages() -> tuple[str, ...]:
    """Return the QNN runtimes of distributions, by package name."""
    return tuple(load("fastrpc")["qnn_packages"])


def installed(state: SystemState) -> Packaging | None:
    """Return the first row of which a package is installed, None if no package is."""
    for packaging in packagings().values():
        if any(packaging.is_there(state.installed(name)) for name in packaging.packages):
            return packaging
    return None


def source_known(packaging: Packaging, spec: SystemSpec, state: SystemState) -> bool:
    """Return True if the packages have a source.

    A packaging with `setup` needs its own source, identified by its `marks`: on the device, or in
    the playbook, which has its key.
    """
    local = {deb.name.split("_")[0] for deb in spec.debs}
    there = all(
        packaging.is_there(state.candidate(name) or state.installed(name)) or name in local
        for name in packaging.packages
    )
    elsewhere = packaging.setup or packaging.version_mark
    return there or not elsewhere or _marked(packaging, spec, state)


def _marked(packaging: Packaging, spec: SystemSpec, state: SystemState) -> bool:
    """Return True if its source is set up on the device or named by the playbook."""
    places = [*state.sources, *(repository.uri for repository in spec.repositories)]
    return any(mark in place for mark in packaging.marks for place in places)


def offered(spec: SystemSpec, state: SystemState, model: str | None = None) -> Packaging | None:
    """Return the row that can be installed: requested, begun, offered, or set up as a source.

    Returns None if the device offers no packaging and no such source is set up.
    The row of the board's `model` is preferred. A source that is set up but not read yet counts,
    because its lists are refreshed first.
    """
    rows = packagings()
    if spec.fastrpc in rows:
        return rows[spec.fastrpc]
    begun = installed(state)
    if begun is not None:
        return begun
    local = {deb.name.split("_")[0] for deb in spec.debs}
    ordered = sorted(rows.values(), key=lambda row: not (model or "").startswith(row.boards or "-"))
    for packaging in ordered:
        if not packaging.packages:
            continue
        if all(
            packaging.is_there(state.candidate(name)) or name in local
            for name in packaging.packages
        ):
            return packaging
    return next((row for row in ordered if _marked(row, spec, state)), None)
