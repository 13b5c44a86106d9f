"""How far two groups of runs on one board lie apart, and whether that is more than chance."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from fleet.profiles.stats import ranks
from fleet.profiles.stats.interval import Interval, fewest, interval
from fleet.profiles.stats.special import f_tail
from fleet.profiles.stats.trend import Floats, leans, trend

# Values of the repeats of one run in their order; nan where a repeat does not count.
Run = Sequence[float] | Floats
UNLIKE = 0.05  # runs of one group that differ so surely are not one sample
FEWEST_PAIRS = 6


@dataclass(frozen=True)
class Difference:
    """B against A. `low`, `mid`, `high`: the change as a share of A (-0.05: B has 5 % less).

    `low` and `high` are None where nothing can be said; `mid` is then that of the medians.

    `p`: how often chance alone does that; `least` the smallest p that so few values can give.
    `above`: how often a run of B lies above one of A (0.5: no effect; Vargha and Delaney's A).
    `a`, `b`: the groups by themselves. `how`: `runs`, `repeats` (pairs: both drift),
    `values`, or "" where nothing can be said, and then `why`.
    """

    a: Interval | None
    b: Interval | None
    count_a: int
    count_b: int
    mid_a: float | None
    mid_b: float | None
    low: float | None = None
    mid: float | None = None
    high: float | None = None
    p: float = 1.0
    least: float = 1.0
    above: float = 0.5
    how: str = ""
    why: str = ""
    remarks: tuple[str, ...] = ()


def difference(a: Sequence[Run], b: Sequence[Run], level: float = 0.95) -> Difference:
    """Compare two groups of runs.

    Five runs and more a side: the run is the unit, for repeats in one boot are more alike than
    boots. Fewer: the repeats are, as many of one side as of the other, unless runs of one group
    differ among themselves or wander; then there is no answer. Repeats that drift (a board
    warms) are compared first with first, second with second. Everything is done with logarithms
    (ratios) where all values are above 0.
    """
    left, right = _table(a), _table(b)
    both = [one[np.isfinite(one)] for one in (left, right)]
    base = Difference(
        _whole(left, level),
        _whole(right, level),
        len(both[0]),
        len(both[1]),
        _median(both[0]),
        _median(both[1]),
        mid=_share(_median(both[0]), _median(both[1])),
    )
    if not len(both[0]) or not len(both[1]):
        empty = [n for n, one in zip("AB", both, strict=True) if not len(one)]
        return replace(base, why=f"no value in {' and '.join(empty)}")
    ratio = bool(min(both[0].min(), both[1].min()) > 0)
    if min(len(left), len(right)) >= fewest(level):
        return _of_values(base, _middles(left), _middles(right), level, ratio=ratio, how="runs")
    return _of_repeats(base, left, right, level, ratio=ratio)


def _of_repeats(base: Difference, a: Floats, b: Floats, level: float, *, ratio: bool) -> Difference:
    """Few runs: their repeats are what is compared, as many of one side as of the other."""
    upto = min(a.shape[1], b.shape[1])
    cut = a.shape[1] > upto or b.shape[1] > upto
    sides = {name: _log(_kept(one[:, :upto]), ratio) for name, one in (("A", a), ("B", b))}
    if not all(one.size for one in sides.values()):
        return replace(base, why="A and B have no repeats of one number")
    tell = f"{fewest(level)} runs a side and more would tell"
    unlike = _which(sides, _unlike)
    if unlike:
        return replace(base, why=f"the runs of {unlike} differ among themselves: {tell}")
    moved = _which(sides, lambda one: trend(_found(_by_repeat(one))) is not None)
    if moved:
        found = _of_pairs(base, sides["A"], sides["B"], level, ratio=ratio)
        return replace(found, remarks=(f"{moved} drift over the repeats",))
    wander = _which(sides, lambda one: leans(_found(_by_repeat(one))))
    if wander:
        return replace(base, why=f"the repeats of {wander} wander: {tell}")
    first, second = (one[:, :upto][np.isfinite(one[:, :upto])] for one in (a, b))
    found = _of_values(base, first, second, level, ratio=ratio, how="values")
    return replace(found, remarks=(f"the first {upto} repeats of each",) if cut else ())


def _which(groups: Mapping[str, Floats], test: Callable[[Floats], bool]) -> str:
    return " and ".join(name for name, runs in groups.items() if test(runs))


def _of_values(
    base: Difference, a: Floats, b: Floats, level: float, *, ratio: bool, how: str
) -> Difference:
    """By rank sum: nothing in the order of the values matters."""
    bounds = ranks.shift(_log(a, ratio), _log(b, ratio), level)
    least = ranks.least_rank_sum(*sorted((len(a), len(b))))
    if bounds is None or min(len(a), len(b)) < fewest(level):
        fewer = min(len(a), len(b))
        return replace(base, why=f"{fewer} of {fewest(level)} runs that it takes")
    order = np.searchsorted(np.sort(a), b, "left") + np.searchsorted(np.sort(a), b, "right")
    return replace(
        _changed(base, bounds, ratio=ratio),
        p=max(ranks.rank_sum(a, b), ranks.unequal(a, b)),
        least=least,
        above=float(order.mean()) / 2 / len(a),
        how=how,
    )


def _of_pairs(base: Difference, a: Floats, b: Floats, level: float, *, ratio: bool) -> Difference:
    """By signed ranks of repeat against repeat: what both do over time falls out."""
    gaps = _found(_by_repeat(b) - _by_repeat(a))
    bounds = ranks.centre(gaps, level)
    if leans(gaps):
        return replace(base, why=f"repeats wander: {fewest(level)} runs a side would tell")
    if bounds is None:
        why = f"{len(gaps)} of {FEWEST_PAIRS} pairs of repeats that it takes where they drift"
        return replace(base, why=why)
    return replace(
        _changed(base, bounds, ratio=ratio),
        p=ranks.signed_rank(gaps),
        least=ranks.least_signed_rank(len(gaps)),
        above=float(np.mean(np.sign(gaps)) / 2 + 0.5),
        how="repeats",
    )


def _changed(base: Difference, bounds: tuple[float, float, float], *, ratio: bool) -> Difference:
    low, mid, high = bounds
    if ratio:
        return replace(base, low=math.expm1(low), mid=math.expm1(mid), high=math.expm1(high))
    if not base.mid_a:
        return base
    unit = abs(base.mid_a)
    return replace(base, low=low / unit, mid=mid / unit, high=high / unit)


def _table(runs: Sequence[Run]) -> Floats:
    """One row a run, one column a repeat, nan where there is no value; no empty rows."""
    widths = {len(one) for one in runs}
    if len(widths) == 1:
        rows = np.array(runs, dtype=float)
    else:
        rows = np.full((len(runs), max(widths, default=0)), np.nan)
        for row, one in zip(rows, runs, strict=True):
            row[: len(one)] = one
    rows[~np.isfinite(rows)] = np.nan
    return _kept(rows)


def _kept(rows: Floats) -> Floats:
    return np.asarray(rows[np.isfinite(rows).any(axis=1)], dtype=float)


def _found(values: Floats) -> Floats:
    return np.asarray(values[np.isfinite(values)], dtype=float)


def _log(values: Floats, ratio: bool) -> Floats:
    return np.asarray(np.log(values) if ratio else values, dtype=float)


def _median(values: Floats) -> float | None:
    return float(np.median(values)) if len(values) else None


def _share(a: float | None, b: float | None) -> float | None:
    return (b - a) / abs(a) if a and b is not None else None


def _middles(rows: Floats) -> Floats:
    """The median of each run."""
    whole = np.isfinite(rows).all()
    return np.asarray(np.median(rows, axis=1) if whole else np.nanmedian(rows, axis=1))


def _by_repeat(rows: Floats) -> Floats:
    """The mean of each repeat over several runs, nan where no run has it."""
    if len(rows) == 1:
        return np.asarray(rows[0])
    there = np.isfinite(rows)
    counts = there.sum(axis=0)
    sums = np.where(there, rows, 0).sum(axis=0)
    return np.asarray(np.where(counts > 0, sums / np.maximum(counts, 1), np.nan))


def _whole(rows: Floats, level: float) -> Interval | None:
    """The interval of several runs: of their middles where there are enough, else of repeats."""
    if len(rows) == 1:
        return interval(rows[0], level)
    if len(rows) >= fewest(level):
        return interval(_middles(rows), level)
    if not len(rows) or _unlike(rows):
        return None
    return interval(_by_repeat(rows), level)


def _unlike(rows: Floats) -> bool:
    """True where runs differ among themselves by more than their repeats do (one-way F test)."""
    there = np.isfinite(rows)
    several = there.sum(axis=1) > 1
    rows, there = rows[several], there[several]
    if len(rows) < 2:
        return False
    counts = there.sum(axis=1)
    values = rows[there]
    if np.all(np.nanmax(rows, axis=1) == np.nanmin(rows, axis=1)):
        return bool(np.ptp(values) > 0)
    means = np.where(there, rows, 0).sum(axis=1) / counts
    free = len(values) - len(rows)
    within = float(np.where(there, (rows - means[:, None]) ** 2, 0).sum()) / free
    between = float((counts * (means - values.mean()) ** 2).sum()) / (len(rows) - 1)
    return f_tail(between / within, len(rows) - 1, free) < UNLIKE
