"""The model of data/assumptions.yaml: what fleet takes for true, and the ladder that decides it."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Annotated, Literal

from msgspec import field

from fleet.config.fields import Source
from fleet.config.shape import Body
from fleet.config.values import Pattern
from fleet.config.yamlpos import Keys

KINDS = ("board", "phone", "lab", "lab-phone")
Name = Annotated[str, Pattern(r"[a-z][a-z0-9-]*", "name", "write it like token-limit")]
Allowed = dict[Literal["board", "phone", "lab", "lab-phone"], list[Name]]


class _Rung(Body, frozen=True, kw_only=True):
    id: Name
    asks: Annotated[str, Pattern(r".{10,60}\?", "question", "at most 60 characters and a ?")]
    checks: list[Name] = field(default_factory=list)
    strict: bool = False
    needs: list[Name] = field(default_factory=list)
    never: Name | None = None
    what: str = ""


class _Assumption(Body, frozen=True, kw_only=True):
    id: Annotated[str, Pattern(r"A[1-9][0-9]?", "id", "write it like A7")]
    statement: Annotated[str, Pattern(r".{10,100}\.", "sentence", "a sentence with its full stop")]
    symbol: Annotated[str, Pattern(r"fleet(\.\w+)+:\w+", "symbol", "fleet.module:name")]
    rung: Name
    source: Source
    undecided: Allowed


class AssumptionTable(Body, frozen=True, kw_only=True):
    """The whole file."""

    reasons: dict[Name, str]
    rungs: list[_Rung]
    allowed: dict[str, Allowed]
    assumptions: list[_Assumption]


def unknown_names(table: AssumptionTable) -> Iterator[tuple[Keys, str, Collection[str], str]]:
    """Each name that refers to another row: its place, itself, what is known, what it should be."""
    rungs = [rung.id for rung in table.rungs]
    for at, rung in enumerate(table.rungs):
        for name in rung.needs:
            yield ("rungs", at, "needs"), name, rungs[:at], "rung of the self-test before this one"
        if rung.never:
            yield ("rungs", at, "never"), rung.never, table.reasons, "reason"
    for at, row in enumerate(table.assumptions):
        yield ("assumptions", at, "rung"), row.rung, rungs, "rung"
        for kind in KINDS:
            for name in row.undecided.get(kind, ("no row",)):  # type: ignore[call-overload]
                yield ("assumptions", at, "undecided"), name, table.reasons, "reason"
