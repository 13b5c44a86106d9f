"""Rows of figures, ratios by round, and bars. Pure: nothing is run here."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Self

Figures = dict[str, float]
SECONDS = "seconds"
PASS, MISS, UNKNOWN = "PASS", "MISS", "not measured"
ENOUGH = 5  # rounds; below, a median says little


@dataclass
class Row:
    """One tool in one scenario. `samples` has one entry a round, None where it gave none.

    `kind` is fleet, reference or peer; `main` rows stand in the chart. `note` says why samples
    lack; `over` is the time in seconds in which the tool was not done. Figures: `seconds` of
    the whole process, `cpu` seconds of the client's processes, `inner` seconds as the tool
    says, `rss_mib` of the largest process, and others.
    """

    name: str
    kind: str = "peer"
    samples: list[Figures | None] = field(default_factory=list)
    note: str = ""
    main: bool = True
    over: float | None = None

    def values(self, name: str = SECONDS) -> list[float]:
        return [one[name] for one in self.samples if one is not None and name in one]

    def median(self, name: str = SECONDS) -> float | None:
        values = self.values(name)
        return statistics.median(values) if values else None


def ratio(of: Row, to: Row, name: str = SECONDS, to_name: str = "") -> float | None:
    """The median of the ratios of each round; None where no round has both."""
    other = to_name or name
    found = [
        one[name] / two[other]
        for one, two in zip(of.samples, to.samples, strict=False)
        if one is not None and two is not None and name in one and two.get(other, 0) > 0
    ]
    return statistics.median(found) if found else None


@dataclass(frozen=True)
class Bar:
    """What a figure must be. Without `to` the median itself counts, else the worst ratio.

    `to_field` is the figure of the others where it is not the same one.
    """

    text: str
    of: str
    to: tuple[str, ...] = ()
    field: str = SECONDS
    most: float | None = None
    least: float | None = None
    unit: str = "x"
    to_field: str = ""


@dataclass(frozen=True)
class Verdict:
    text: str
    word: str
    value: float | None = None
    unit: str = "x"
    against: str = ""


def judge(bar: Bar, rows: Sequence[Row]) -> Verdict:
    """PASS or MISS; a bar whose rows lack is not measured, never passed."""
    named = {row.name: row for row in rows}
    of = named.get(bar.of)
    if of is None:
        return Verdict(bar.text, UNKNOWN, None, bar.unit, bar.of)
    if not bar.to:
        return _verdict(bar, of.median(bar.field), "")
    found: dict[str, float] = {}
    for name in bar.to:
        value = _against(bar, of, named[name]) if name in named else None
        if value is not None:
            found[name] = value
    if not found:
        return Verdict(bar.text, UNKNOWN, None, bar.unit, ", ".join(bar.to))
    worst = (max if bar.most is not None else min)(found, key=lambda name: found[name])
    lacking = [name for name in bar.to if name not in found]
    without = f"; not measured: {', '.join(lacking)}" if lacking else ""
    over = next((one.over for one in (of, named[worst]) if one.over is not None), None)
    bound = f" (a bound: not done in {over:g} s)" if over is not None else ""
    return _verdict(bar, found[worst], f"{worst}{bound}{without}")


def _against(bar: Bar, of: Row, to: Row) -> float | None:
    """The ratio; of a tool that was not done in time, a bound, where that is enough to pass."""
    value = ratio(of, to, bar.field, bar.to_field)
    if value is not None or bar.field != SECONDS:
        return value
    if bar.most is not None and to.over and (mine := of.median()) is not None:
        bound = mine / to.over
        return bound if bound <= bar.most else None
    if bar.least is not None and of.over and (theirs := to.median()):
        bound = of.over / theirs
        return bound if bound >= bar.least else None
    return None


def _verdict(bar: Bar, value: float | None, against: str) -> Verdict:
    if value is None:
        return Verdict(bar.text, UNKNOWN, None, bar.unit, bar.of)
    good = (bar.most is None or value <= bar.most) and (bar.least is None or value >= bar.least)
    return Verdict(bar.text, PASS if good else MISS, value, bar.unit, against)


@dataclass
class Result:
    """One scenario. `columns` are further figures of the table: (name, heading)."""

    scenario: str
    title: str
    reference: str
    rows: list[Row]
    rounds: int
    bars: tuple[Bar, ...] = ()
    columns: tuple[tuple[str, str], ...] = ()
    notes: list[str] = field(default_factory=list)
    missing: dict[str, str] = field(default_factory=dict)
    chart: bool = True

    @property
    def verdicts(self) -> list[Verdict]:
        return [judge(bar, self.rows) for bar in self.bars]

    def row(self, name: str) -> Row | None:
        return next((row for row in self.rows if row.name == name), None)

    def as_dict(self) -> dict[str, Any]:
        return {**asdict(self), "verdicts": [asdict(one) for one in self.verdicts]}

    @classmethod
    def read(cls, data: dict[str, Any]) -> Self:
        """The way back from `as_dict`."""
        plain = {name: value for name, value in data.items() if name != "verdicts"}
        plain["rows"] = [Row(**row) for row in data["rows"]]
        plain["bars"] = tuple(Bar(**{**bar, "to": tuple(bar["to"])}) for bar in data["bars"])
        plain["columns"] = tuple((name, heading) for name, heading in data["columns"])
        return cls(**plain)


def turns(names: Sequence[str], number: int) -> list[str]:
    """The order of one round: rotated, and backwards in every second round."""
    shift = number % len(names) if names else 0
    order = [*names[shift:], *names[:shift]]
    return order[::-1] if number % 2 else order
