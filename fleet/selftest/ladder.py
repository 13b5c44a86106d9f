"""The rungs and assumptions of data/assumptions.yaml, and the results of a climb."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from functools import cache
from typing import Any, ClassVar, TypeVar

from fleet.data import frozen, load
from fleet.model.facts import Facts
from fleet.model.version import VERSION

HOLDS, FELL, UNDECIDED = "holds", "does not hold", "not decided"
WORKSTATION = "workstation"  # the reason for all errors that are not the device's


@dataclass(frozen=True)
class Rung:
    """A rung: its question, the rungs that it needs, the doctor's checks that decide it.

    With `strict`, warnings of the checks count too. `never` is the reason why no selftest decides
    the rung.
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
    """An assumption of fleet. `undecided`: kind of board → reasons that are allowed there."""

    id: str
    statement: str
    symbol: str
    rung: str
    source: str
    undecided: dict[str, tuple[str, ...]]


@dataclass
class RungResult:
    """The result of one rung. `words` is the device's full output.

    `reason` explains why it is not decided; `listed` is True if the table allows that here.
    `seconds` is its time. `cure` is a command for this workstation; it contains paths, so no
    archive contains it.
    """

    rung: Rung
    status: str
    expected: str
    observed: str
    words: str = ""
    reason: str = ""
    listed: bool = True
    seconds: float = 0.0
    key: str = ""
    cure: str = ""
    PLAIN: ClassVar[
        str
    ] = """rung=rung.id asks=rung.asks status expected seen=observed reason cure listed seconds:3
        words"""


@dataclass
class Climbed:
    """The climb on one device: its facts, every rung, and `parts` (raw text by name).

    `ended` is the error that stopped the climb before its last rung, "" if none did.
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
        """The assumptions, each with the result of its rung."""
        by_id = {step.rung.id: step for step in self.steps}
        known = [(row, by_id[row.rung]) for row in assumptions() if row.rung in by_id]
        return [{**asdict(a), "status": s.status, "reason": s.reason} for a, s in known]

    @property
    def first(self) -> tuple[RungResult, Assumption] | None:
        """The first rung that does not hold, with an assumption that depends on it."""
        fallen = next((step for step in self.steps if step.status == FELL), None)
        if fallen is None:
            return None
        return fallen, next(a for a in assumptions() if a.rung == fallen.rung.id)


class Undecided(Exception):  # noqa: N818 - not an error but an outcome
    """A rung cannot be decided here.

    It has a reason of the table, its `what`, the device's output, and a `cure` if the user can make
    it decidable.
    """

    def __init__(self, reason: str, what: str = "", words: str = "", cure: str = "") -> None:
        super().__init__(reason)
        self.reason, self.what, self.words, self.cure = reason, what, words, cure


@dataclass(frozen=True)
class RungVerdict:
    """The verdict of a rung."""

    holds: bool
    expected: str
    observed: str
    words: str = ""


Judge = TypeVar("Judge", bound=Callable[..., RungVerdict])
JUDGES: dict[str, Callable[..., RungVerdict]] = {}


def judge(name: str) -> Callable[[Judge], Judge]:
    """Register the function that decides the rung with that name, from a Bench.

    The function raises Undecided if it cannot decide.
    """

    def keep(function: Judge) -> Judge:
        JUDGES[name] = function
        return function

    return keep


def kind_of(facts: Facts) -> str:
    """Return board, phone, lab or lab-phone, as in the table of assumptions."""
    phone = facts.android is not None
    if facts.emulated or facts.lab:
        return "lab-phone" if phone else "lab"
    return "phone" if phone else "board"


def reason_text(key: str, what: str = "") -> str:
    """Return the text of a reason in the table."""
    return str(load("assumptions")["reasons"][key]).replace("{what}", what)


@cache
def rungs() -> tuple[Rung, ...]:
    """Return the ladder, from the ground up."""
    return tuple(Rung(**frozen(row)) for row in load("assumptions")["rungs"])


@cache
def assumptions() -> tuple[Assumption, ...]:
    """Return all assumptions."""
    rows = load("assumptions")["assumptions"]
    return tuple(Assumption(**{**row, "undecided": frozen(row["undecided"])}) for row in rows)


def allowed(rung: str, kind: str) -> frozenset[str]:
    """Return the reasons that may leave a rung undecided on that kind of board."""
    rows = (row for row in assumptions() if row.rung == rung)
    return frozenset({"fell", WORKSTATION}).union(*(row.undecided[kind] for row in rows))
