"""Who packages FastRPC: the table data/fastrpc.yaml, and which row a device shows."""

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
    """What the rules of a packaging give from a version on; None where nobody saw it.

    `node` and `secure` are modes; where there are rules, None leaves the nodes as they are.
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
    """One row; `setup` is the command by which its tutorial adds the source, `boards` are the
    beginnings of models for which it comes first. `version_mark` is in each version of its
    packages and tells them from packages of the same names in another archive.
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
        """Return whether there is a package of this version, and it is of this packaging."""
        return version is not None and self.version_mark in version

    def at(self, version: str | None = None) -> Version:
        """What a version of its packages gives; the newest one's where none is known."""
        known = [
            row
            for row in self.versions
            if version is None or _numbers(row.since) <= _numbers(version)
        ]
        return (known or self.versions[-1:])[0]


def _numbers(version: str) -> list[int]:
    """A package's version without its epoch, for the order of releases."""
    return [int(part) for part in re.findall(r"\d+", version.rpartition(":")[2])]


@cache
def packagings() -> dict[str, Packaging]:
    """All rows, in the order in which they are preferred."""
    return {
        name: Packaging(
            id=name,
            **{**frozen(row), "versions": tuple(Version(**version) for version in row["versions"])},
        )
        for name, row in load("fastrpc").items()
        if name not in _NOT_ROWS
    }


def qnn_packages() -> tuple[str, ...]:
    """QNN runtimes of distributions, by package name."""
    return tuple(load("fastrpc")["qnn_packages"])


def installed(state: SystemState) -> Packaging | None:
    """The row of which a package is installed."""
    for packaging in packagings().values():
        if any(packaging.is_there(state.installed(name)) for name in packaging.packages):
            return packaging
    return None


def source_known(packaging: Packaging, spec: SystemSpec, state: SystemState) -> bool:
    """Can the packages come from somewhere? One that has to be set up needs a source of its own,
    by its `marks`: of the device or of the playbook, which brings its key.
    """
    local = {deb.name.split("_")[0] for deb in spec.debs}
    there = all(
        packaging.is_there(state.candidate(name) or state.installed(name)) or name in local
        for name in packaging.packages
    )
    elsewhere = packaging.setup or packaging.version_mark
    return there or not elsewhere or _marked(packaging, spec, state)


def _marked(packaging: Packaging, spec: SystemSpec, state: SystemState) -> bool:
    """Is its source set up on the device, or named by the playbook?"""
    places = [*state.sources, *(repository.uri for repository in spec.repositories)]
    return any(mark in place for mark in packaging.marks for place in places)


def offered(spec: SystemSpec, state: SystemState, model: str | None = None) -> Packaging | None:
    """The row that can be installed: asked for, begun, offered, or set up as a source; that of
    the board's `model` first.

    What is set up as a source but not yet read counts: its lists are refreshed first.
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
