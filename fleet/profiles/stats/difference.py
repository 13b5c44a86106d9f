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
    left, right = [_finite(one) for one in a], [_finite(one) for one in b]
    left, right = [one for one in left if len(one)], [one for one in right if len(one)]
    both = [np.concatenate(one) if one else np.empty(0) for one in (left, right)]
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
    return _of_repeats(base, a, b, level, ratio=ratio)


def _of_repeats(
    base: Difference, a: Sequence[Run], b: Sequence[Run], level: float, *, ratio: bool
) -> Difference:
    """Few runs: their repeats are what is compared, as many of one side as of the other."""
    upto = min(max(len(one) for one in side) for side in (a, b))
    sides = [
        [one for one in map(_finite, (run[:upto] for run in side)) if len(one)] for side in (a, b)
    ]
    logs = dict(zip("AB", ([_log(run, ratio) for run in one] for one in sides), strict=True))
    if not all(sides):
        return replace(base, why="A and B have no repeats of one number")
    tell = f"{fewest(level)} runs a side and more would tell"
    unlike = _which(logs, _unlike)
    if unlike:
        return replace(base, why=f"the runs of {unlike} differ among themselves: {tell}")
    moved = _which(logs, lambda runs: any(trend(one) for one in runs))
    if moved:
        found = _of_pairs(base, _matrix(a), _matrix(b), level, ratio=ratio)
        return replace(found, remarks=(f"{moved} drift over the repeats",))
    wander = _which(logs, lambda runs: any(leans(one) for one in runs))
    if wander:
        return replace(base, why=f"the repeats of {wander} wander: {tell}")
    first, second = (np.concatenate(one) for one in sides)
    found = _of_values(base, first, second, level, ratio=ratio, how="values")
    cut = any(len(run) > upto for side in (a, b) for run in side)
    return replace(found, remarks=(f"the first {upto} repeats of each",) if cut else ())


def _which(groups: Mapping[str, Sequence[Floats]], test: Callable[[Sequence[Floats]], bool]) -> str:
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
    upto = min(len(a), len(b))
    left, right = a[:upto], b[:upto]
    kept = np.isfinite(left) & np.isfinite(right)
    gaps = _log(right[kept], ratio) - _log(left[kept], ratio)
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


def _finite(run: Run) -> Floats:
    values = np.asarray(run, dtype=float)
    return np.asarray(values[np.isfinite(values)], dtype=float)


def _log(run: Floats, ratio: bool) -> Floats:
    return np.asarray(np.log(run) if ratio else run, dtype=float)


def _median(values: Floats) -> float | None:
    return float(np.median(values)) if len(values) else None


def _share(a: float | None, b: float | None) -> float | None:
    return (b - a) / abs(a) if a and b is not None else None


def _middles(runs: Sequence[Floats]) -> Floats:
    return np.array([float(np.median(one)) for one in runs])


def _whole(runs: Sequence[Floats], level: float) -> Interval | None:
    """The interval of several runs: of their middles where there are enough, else of all."""
    if len(runs) == 1:
        return interval(runs[0], level)
    if len(runs) >= fewest(level):
        return interval(_middles(runs), level)
    return interval(_matrix(runs), level) if runs and not _unlike(runs) else None


def _matrix(runs: Sequence[Run]) -> Floats:
    """The middle of each repeat over several runs, in the order of the repeats."""
    longest = max(len(one) for one in runs)
    rows = np.full((len(runs), longest), np.nan)
    for row, one in zip(rows, runs, strict=True):
        row[: len(one)] = one
    seen = np.isfinite(rows).any(axis=0)
    found = np.full(longest, np.nan)
    found[seen] = np.nanmedian(rows[:, seen], axis=0)
    return found


def _unlike(runs: Sequence[Floats]) -> bool:
    """True where runs differ among themselves by more than their repeats do (one-way F test)."""
    several = [one for one in runs if len(one) > 1]
    if len(several) < 2:
        return False
    values = np.concatenate(several)
    free = len(values) - len(several)
    within = sum(float(((one - one.mean()) ** 2).sum()) for one in several) / free
    between = sum(len(one) * float(one.mean() - values.mean()) ** 2 for one in several)
    between /= len(several) - 1
    if all(np.ptp(one) == 0 for one in several):
        return bool(np.ptp(values) > 0)
    return f_tail(between / within, len(several) - 1, free) < UNLIKE
