"""Who packages FastRPC: the table data/fastrpc.yaml, and which row a device shows."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

from fleet.data import load
from fleet.model.system import SystemSpec, SystemState

UPSTREAM, BSP = "upstream", "bsp"
_NOT_ROWS = {"qnn_packages"}


@dataclass(frozen=True)
class Packaging:
    """One row. `group`, `rules`, `heap` and `unit` are None where nobody saw what it brings."""

    id: str
    title: str
    packages: tuple[str, ...]
    companions: tuple[str, ...]
    marks: tuple[str, ...]
    group: str | None
    rules: bool | None
    heap: bool | None
    unit: str | None
    source: str


@cache
def packagings() -> dict[str, Packaging]:
    """All rows, in the order in which they are preferred."""
    return {
        name: Packaging(
            id=name,
            title=row["title"],
            packages=tuple(row["packages"]),
            companions=tuple(row["companions"]),
            marks=tuple(row["marks"]),
            group=row["group"],
            rules=row["rules"],
            heap=row["heap"],
            unit=row["unit"],
            source=row["source"],
        )
        for name, row in load("fastrpc").items()
        if name not in _NOT_ROWS
    }


def qnn_packages() -> tuple[str, ...]:
    """QNN runtimes of distributions, by package name."""
    return tuple(load("fastrpc")["qnn_packages"])


def installed(state: SystemState) -> Packaging | None:
    """The row of which a package is installed."""
    for one in packagings().values():
        if any(state.installed(name) for name in one.packages):
            return one
    return None


def offered(spec: SystemSpec, state: SystemState) -> Packaging | None:
    """The row that can be installed: asked for, begun, offered, or set up as a source.

    What is set up as a source but not yet read counts: its lists are refreshed first.
    """
    rows = packagings()
    if spec.fastrpc in rows:
        return rows[spec.fastrpc]
    begun = installed(state)
    if begun is not None:
        return begun
    local = {deb.name.split("_")[0] for deb in spec.debs}
    places = [*state.sources, *(one.uri for one in spec.repositories)]
    for one in rows.values():
        if not one.packages:
            continue
        if all(state.candidate(name) or name in local for name in one.packages):
            return one
    for one in rows.values():
        if any(mark in place for mark in one.marks for place in places):
            return one
    return None
