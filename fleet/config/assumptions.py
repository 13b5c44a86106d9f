"""The model of data/assumptions.yaml: what fleet takes for true, and the ladder that decides it."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Annotated, Literal

from pydantic import Field

from fleet.config.fields import Matches, Source, Strict
from fleet.config.yamlpos import Keys

KINDS = ("board", "phone", "lab", "lab-phone")
Name = Annotated[str, Matches(r"[a-z][a-z0-9-]*", "name", "write it like token-limit")]
Allowed = dict[Literal["board", "phone", "lab", "lab-phone"], list[Name]]


class _Rung(Strict):
    id: Name
    asks: Annotated[str, Matches(r".{10,60}\?", "question", "at most 60 characters and a ?")]
    checks: list[Name] = Field(default_factory=list)
    strict: bool = False
    needs: list[Name] = Field(default_factory=list)
    never: Name | None = None
    what: str = ""


class _Assumption(Strict):
    id: Annotated[str, Matches(r"A[1-9][0-9]?", "id", "write it like A7")]
    statement: Annotated[str, Matches(r".{10,100}\.", "sentence", "a sentence with its full stop")]
    symbol: Annotated[str, Matches(r"fleet(\.\w+)+:\w+", "symbol", "fleet.module:name")]
    rung: Name
    source: Source
    undecided: Allowed


class AssumptionTable(Strict):
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
