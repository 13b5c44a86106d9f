"""Rungs and assumptions of data/assumptions.yaml, and what climbing them gave."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from functools import cache
from typing import Any, ClassVar, TypeVar

from fleet.data import frozen, load
from fleet.model.facts import Facts
from fleet.model.version import VERSION

HOLDS, FELL, UNDECIDED = "holds", "does not hold", "not decided"
WORKSTATION = "workstation"  # the reason for every error that is not the device's


@dataclass(frozen=True)
class Rung:
    """One question: what it asks, which rungs it needs, which checks of the doctor decide it.

    `strict`: their advice counts, too. `never` is the reason why no selftest decides it.
    """

    id: str
    asks: str
    checks: tuple[str, ...] = ()
    strict: bool = False
    needs: tuple[str, ...] = ()
    never: str | None = None
    what: str = ""


@dataclass(frozen=True)
class Assumption:
    """What fleet takes for true. `undecided`: kind of board → reasons that are allowed there."""

    id: str
    statement: str
    symbol: str
    rung: str
    source: str
    undecided: dict[str, tuple[str, ...]]


@dataclass
class RungResult:
    """How one rung went. `words` are the full ones of the device; `reason` is why it is not
    decided, in words, `listed` whether the table allows that here. `seconds` is its time. `cure`
    is a command for this workstation; it names paths, so no archive has it.
    """

    rung: Rung
    status: str
    expected: str
    seen: str
    words: str = ""
    reason: str = ""
    listed: bool = True
    seconds: float = 0.0
    key: str = ""
    cure: str = ""
    PLAIN: ClassVar[
        str
    ] = """rung=rung.id asks=rung.asks status expected seen reason cure listed seconds:3
        words"""


@dataclass
class Climbed:
    """One device: its facts, every rung, and `parts`: raw text by name.

    `ended` is the error that ended the climb before its last rung, "" where none did.
    """

    host: str
    facts: Facts
    runtime: str
    steps: list[RungResult] = field(default_factory=list)
    parts: dict[str, str] = field(default_factory=dict)
    ended: str = ""
    fleet: str = VERSION
    PLAIN: ClassVar[str] = (
        """host fleet emulated=facts.emulated kind runtime ended rungs=steps assumptions=judged"""
    )

    @property
    def kind(self) -> str:
        """The kind of the device: board, phone, lab or lab-phone."""
        return kind_of(self.facts)

    @property
    def judged(self) -> list[dict[str, Any]]:
        """The assumptions, each with what its rung says of it."""
        by_id = {step.rung.id: step for step in self.steps}
        known = [(row, by_id[row.rung]) for row in assumptions() if row.rung in by_id]
        return [{**asdict(a), "status": s.status, "reason": s.reason} for a, s in known]

    @property
    def first(self) -> tuple[RungResult, Assumption | None] | None:
        """The first rung that does not hold, with an assumption that rests on it."""
        fallen = next((step for step in self.steps if step.status == FELL), None)
        if fallen is None:
            return None
        return fallen, next((a for a in assumptions() if a.rung == fallen.rung.id), None)


class Undecided(Exception):  # noqa: N818 - no error: an outcome
    """A rung cannot be decided here: a reason of the table, its `what`, words of the device, and
    a `cure` if the user can make it decidable.
    """

    def __init__(self, reason: str, what: str = "", words: str = "", cure: str = "") -> None:
        super().__init__(reason)
        self.reason, self.what, self.words, self.cure = reason, what, words, cure


@dataclass(frozen=True)
class RungVerdict:
    """What a rung found."""

    holds: bool
    expected: str
    seen: str
    words: str = ""


Judge = TypeVar("Judge", bound=Callable[..., RungVerdict])
JUDGES: dict[str, Callable[..., RungVerdict]] = {}


def judge(name: str) -> Callable[[Judge], Judge]:
    """Register the function that decides the rung of that name, of a Bench.

    It raises Undecided where it cannot.
    """

    def keep(function: Judge) -> Judge:
        JUDGES[name] = function
        return function

    return keep


def kind_of(facts: Facts) -> str:
    """board, phone, lab or lab-phone, as the table of assumptions calls it."""
    phone = facts.android is not None
    if facts.emulated or facts.lab:
        return "lab-phone" if phone else "lab"
    return "phone" if phone else "board"


def reason_text(key: str, what: str = "") -> str:
    """A reason of the table in words."""
    return str(load("assumptions")["reasons"][key]).replace("{what}", what)


@cache
def rungs() -> tuple[Rung, ...]:
    """The ladder, from the ground up."""
    return tuple(Rung(**frozen(row)) for row in load("assumptions")["rungs"])


@cache
def assumptions() -> tuple[Assumption, ...]:
    """What is taken for true."""
    rows = load("assumptions")["assumptions"]
    return tuple(Assumption(**{**row, "undecided": frozen(row["undecided"])}) for row in rows)


def allowed(rung: str, kind: str) -> frozenset[str]:
    """Reasons that may leave a rung undecided on that kind of board."""
    rows = (row for row in assumptions() if row.rung == rung)
    return frozenset({"fell", WORKSTATION}).union(*(row.undecided[kind] for row in rows))
