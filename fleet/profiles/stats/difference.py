"""The difference between two groups of runs on one board, and whether it is more than chance."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import ClassVar

import numpy as np

from fleet.model.gates import fewest
from fleet.profiles.stats import ranks
from fleet.profiles.stats.interval import Interval, interval
from fleet.profiles.stats.trend import Floats, f_tail, leans, trend

# The values of the repeats of one run, in order; nan if a repeat does not count.
Run = Sequence[float] | Floats
Bounds = tuple[float, float, float]
UNLIKE = 0.05  # p value below which the runs of one group are too different to be one sample
FEWEST_PAIRS = 6
SEEN = 0.001  # a share; smaller differences are not visible in percentages
UNLIKE_MIDDLES = (
    "the change is the median over all pairs of runs, so it can differ from the change between "
    "the two medians"
)


@dataclass(frozen=True)
class Difference:
    """B compared with A. `low`, `mid` and `high` are the change as a share of A.

    A change of -0.05 means that B is 5 % lower. If there is no interval, `low` and `high` are None,
    and `mid` is the change from `mid_a` to `mid_b`. `count_a` and `count_b` are the numbers of
    values, which are runs or repeats (see `how`); `mid_a` and `mid_b` are the middles of the same
    values.

    `p` is the probability that chance alone causes such a change; `least` is the smallest p that so
    few values can give. `above` is the probability that a run of B lies above a run of A (0.5: no
    effect; Vargha and Delaney's A).

    `a` and `b` are the intervals of the groups alone. `how` is `runs`, `repeats` (pairs, because
    both drift), `values`, or "" if there is no answer; `why` is then the reason.
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
    bounds: Callable[[float], Bounds | None] | None = field(default=None, compare=False, repr=False)
    PLAIN: ClassVar[str] = "* -p -why -least -bounds"

    def at(self, level: float) -> Difference:
        """Return the same difference with the interval of this level; its ends may be None."""
        ends = self.bounds(level) if self.bounds else None
        return replace(self, low=ends and ends[0], high=ends and ends[2])


def difference(a: Sequence[Run], b: Sequence[Run], level: float = 0.95) -> Difference:
    """Compare two groups of runs.

    With at least five runs of each side, the run is the unit, because repeats in one boot are more
    alike than boots. With fewer runs the repeats are the unit, the same number from each side. If
    the runs of one group differ among themselves, or wander, there is no answer.

    If repeats drift (a board warms up), the first repeat is compared with the first, the second
    with the second, and so on. If all values are above 0, the computation uses logarithms (ratios).
    """
    left, right = _table(a), _table(b)
    both = [side[np.isfinite(side)] for side in (left, right)]
    units_a, units_b = _units(left, level), _units(right, level)
    spread_a, spread_b = _whole(left, units_a, level), _whole(right, units_b, level)
    mid_a = spread_a.mid if spread_a else _median(units_a)
    mid_b = spread_b.mid if spread_b else _median(units_b)
    base = Difference(
        spread_a, spread_b, len(units_a), len(units_b), mid_a, mid_b, mid=_share(mid_a, mid_b)
    )
    if not len(both[0]) or not len(both[1]):
        empty = [n for n, values in zip("AB", both, strict=True) if not len(values)]
        return replace(base, why=f"the metric has no value in {' and '.join(empty)}")
    ratio = bool(min(both[0].min(), both[1].min()) > 0)
    if min(len(left), len(right)) >= fewest(level):
        return _of_values(base, units_a, units_b, level, ratio=ratio, how="runs")
    return _of_repeats(base, left, right, level, ratio=ratio)


def against_level(figure: float, b: Sequence[Run], level: float = 0.95) -> Difference:
    """Compare B with a fixed figure above 0, such as a published one.

    The test is a signed-rank test of the logarithms of B's runs. The noise of the figure is unknown
    and not included.
    """
    rows = _table(b)
    units = _units(rows, level)
    mid, least = _median(units), ranks.least_signed_rank(len(units))
    base = Difference(
        None, _whole(rows, units, level), 1, len(units), figure, mid, mid=_share(figure, mid)
    )
    if len(rows) < fewest(level) or not (units > 0).all():
        return replace(
            base, why=f"too few runs: {len(rows)}, but an interval needs {fewest(level)}"
        )
    gaps = np.log(units / figure)
    change = _changed(base, partial(ranks.centre, gaps), level, ratio=True)
    above = float(np.mean(np.sign(gaps)) / 2 + 0.5)
    return replace(change, p=ranks.signed_rank(gaps), least=least, above=above, how="runs")


def _of_repeats(base: Difference, a: Floats, b: Floats, level: float, *, ratio: bool) -> Difference:
    """Compare few runs by their repeats, the same number from each side."""
    upto = min(a.shape[1], b.shape[1])
    cut = a.shape[1] > upto or b.shape[1] > upto
    sides = {name: _log(_kept(runs[:, :upto]), ratio) for name, runs in (("A", a), ("B", b))}
    if not all(runs.size for runs in sides.values()):
        return replace(base, why="no repeat has a value of the metric in both A and B")
    tell = f"at least {fewest(level)} runs of A and of B are needed"
    unlike = _which(sides, _unlike)
    if unlike:
        return replace(base, why=f"the runs of {unlike} differ too much from each other: {tell}")
    moved = _which(sides, lambda runs: trend(_finite(_by_repeat(runs))) is not None)
    if moved:
        change = _of_pairs(base, sides["A"], sides["B"], level, ratio=ratio)
        return replace(change, remarks=(f"the values of {moved} drift", *change.remarks))
    wander = _which(sides, lambda runs: leans(_finite(_by_repeat(runs))))
    if wander:
        return replace(base, why=f"the values of {wander} change slowly over the repeats: {tell}")
    first, second = (runs[:, :upto][np.isfinite(runs[:, :upto])] for runs in (a, b))
    change = _of_values(base, first, second, level, ratio=ratio, how="values")
    cut_remark = (f"only the first {upto} repeats of A and of B are compared",) if cut else ()
    return replace(change, remarks=(*cut_remark, *change.remarks))


def _which(groups: Mapping[str, Floats], test: Callable[[Floats], bool]) -> str:
    return " and ".join(name for name, runs in groups.items() if test(runs))


def _of_values(
    base: Difference, a: Floats, b: Floats, level: float, *, ratio: bool, how: str
) -> Difference:
    """Compare by rank sum; the order of the values does not matter."""
    base = replace(base, count_a=len(a), count_b=len(b), mid_a=_median(a), mid_b=_median(b))
    base = replace(base, mid=_share(base.mid_a, base.mid_b))
    left, right = _log(a, ratio), _log(b, ratio)
    least = ranks.least_rank_sum(*sorted((len(a), len(b))))
    if least > 1 - level or min(len(a), len(b)) < fewest(level):
        fewer = min(len(a), len(b))
        return replace(base, why=f"too few runs: {fewer}, but an interval needs {fewest(level)}")
    order = np.searchsorted(np.sort(a), b, "left") + np.searchsorted(np.sort(a), b, "right")
    welch = ranks.Welch.of(left, right)

    def shifts(level: float) -> Bounds | None:
        bounds = ranks.shift(left, right, level)
        if bounds is None:
            return None
        low, high = welch.ends(level)
        return min(low, bounds[0]), bounds[1], max(high, bounds[2])

    return replace(
        _changed(base, shifts, level, ratio=ratio),
        p=max(ranks.rank_sum(a, b), welch.p),
        least=least,
        above=float(order.mean()) / 2 / len(a),
        how=how,
    )


def _of_pairs(base: Difference, a: Floats, b: Floats, level: float, *, ratio: bool) -> Difference:
    """Compare repeat with repeat by signed ranks, which removes changes over time that both
    share.
    """
    first, second = _by_repeat(a), _by_repeat(b)
    paired = np.isfinite(first) & np.isfinite(second)
    gaps = second[paired] - first[paired]
    if leans(gaps):
        return replace(base, why=f"the values drift: {fewest(level)} runs of A and of B are needed")
    if ranks.least_signed_rank(len(gaps)) > 1 - level:
        why = f"too few pairs of repeats: {len(gaps)}, but drifting values need {FEWEST_PAIRS}"
        return replace(base, why=why)
    mids = [_level(values[paired], ratio) for values in (first, second)]
    base = replace(base, count_a=len(gaps), count_b=len(gaps), mid_a=mids[0], mid_b=mids[1])
    return replace(
        _changed(base, partial(ranks.centre, gaps), level, ratio=ratio),
        p=ranks.signed_rank(gaps),
        least=ranks.least_signed_rank(len(gaps)),
        above=float(np.mean(np.sign(gaps)) / 2 + 0.5),
        how="repeats",
    )


def _changed(
    base: Difference, shifts: Callable[[float], Bounds | None], level: float, *, ratio: bool
) -> Difference:
    """Return the difference with the change and its interval, as shares of A.

    `shifts` returns low, middle and high at a level.
    """
    unit = 1.0 if ratio else abs(base.mid_a or 0)

    def bounds(level: float) -> Bounds | None:
        ends = shifts(level)
        if ends is None or not unit:
            return None
        low, mid, high = (math.expm1(shift) if ratio else shift / unit for shift in ends)
        return low, mid, high

    ends = bounds(level)
    if ends is None:
        return base
    low, mid, high = ends
    changed = replace(base, low=low, mid=mid, high=high, bounds=bounds)
    apart = _share(base.mid_a, base.mid_b)
    alike = apart is not None and (apart * mid >= 0 or abs(apart - mid) < SEEN)
    if apart is None or (low <= apart <= high and alike):
        return changed
    return replace(changed, remarks=(*base.remarks, UNLIKE_MIDDLES))


def _table(runs: Sequence[Run]) -> Floats:
    """Return a row for each run and a column for each repeat, nan if there is no value.

    Empty rows are left out.
    """
    widths = {len(run) for run in runs}
    if len(widths) == 1:
        rows = np.array(runs, dtype=float)
    else:
        rows = np.full((len(runs), max(widths, default=0)), np.nan)
        for row, run in zip(rows, runs, strict=True):
            row[: len(run)] = run
    rows[~np.isfinite(rows)] = np.nan
    return _kept(rows)


def _kept(rows: Floats) -> Floats:
    return np.asarray(rows[np.isfinite(rows).any(axis=1)], dtype=float)


def _finite(values: Floats) -> Floats:
    return np.asarray(values[np.isfinite(values)], dtype=float)


def _log(values: Floats, ratio: bool) -> Floats:
    return np.asarray(np.log(values) if ratio else values, dtype=float)


def _units(rows: Floats, level: float) -> Floats:
    """Return the values to compare: the median of each run if there are enough runs, else each
    repeat.
    """
    return _middles(rows) if len(rows) >= fewest(level) else rows[np.isfinite(rows)]


def _level(values: Floats, ratio: bool) -> float:
    """Return the middle of values that drift; for ratios (given as logs) their geometric mean."""
    mean = float(values.mean())
    return math.exp(mean) if ratio else mean


def _median(values: Floats) -> float | None:
    return float(_middles(values[None])[0]) if len(values) else None


def _share(a: float | None, b: float | None) -> float | None:
    return (b - a) / abs(a) if a and b is not None else None


def _middles(rows: Floats) -> Floats:
    """Return the median of each run; nan, which sorts last, is not a value."""
    counts = np.isfinite(rows).sum(axis=1)
    ordered, run = np.sort(rows, axis=1), np.arange(len(rows))
    return np.asarray((ordered[run, (counts - 1) // 2] + ordered[run, counts // 2]) / 2)


def _by_repeat(rows: Floats) -> Floats:
    """Return the mean of each repeat over several runs, nan if no run has it."""
    if len(rows) == 1:
        return np.asarray(rows[0])
    there = np.isfinite(rows)
    counts = there.sum(axis=0)
    sums = np.where(there, rows, 0).sum(axis=0)
    return np.asarray(np.where(counts > 0, sums / np.maximum(counts, 1), np.nan))


def _whole(rows: Floats, units: Floats, level: float) -> Interval | None:
    """Return the interval of several runs: of their medians if there are enough, else of the
    repeats.
    """
    if len(rows) == 1:
        return interval(rows[0], level)
    if len(rows) >= fewest(level):
        return interval(units, level)
    if not len(rows) or _unlike(rows):
        return None
    return interval(_by_repeat(rows), level)


def _unlike(rows: Floats) -> bool:
    """Return True if the runs differ by more than their repeats do (one-way F test)."""
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


def holm(p_values: Sequence[float]) -> list[float]:
    """Return the corrected p of each question (Holm).

    After the correction, *any* false alarm among all questions is as rare as for one question. Use
    it for decisions: a gate, a verdict.
    """
    order = sorted(range(len(p_values)), key=lambda n: p_values[n])
    corrected, worst = [1.0] * len(p_values), 0.0
    for place, n in enumerate(order):
        worst = max(worst, min(1.0, p_values[n] * (len(p_values) - place)))
        corrected[n] = worst
    return corrected


def questions(p_values: Sequence[float], chance: float) -> list[int]:
    """Return the number of questions among which Holm judges each one.

    A change is shown if its p is at most `chance` divided by that number. An interval of the level
    1 - chance / questions gives the same answer as the corrected p.
    """
    order = sorted(range(len(p_values)), key=lambda n: p_values[n])
    among, left = [0] * len(p_values), len(p_values)
    for n in order:
        among[n] = left
        if p_values[n] * left <= chance:
            left -= 1
    return among


def between(groups: Sequence[Sequence[float]]) -> float | None:
    """Return the share of the variance that lies between groups, from 0 to 1; 0 for equal values.

    The method is one-way analysis of variance with random effects (Searle, Variance Components,
    1992, 3.6), for groups that may differ in size. With few groups the result is rough: with three
    groups, an estimate of 0.5 may be far off. Returns None if there is one group, or if no group
    has two values.
    """
    counts = np.array([len(group) for group in groups], dtype=float)
    whole, many = counts.sum(), len(groups)
    if many < 2 or whole <= many:
        return None
    means = np.array([np.mean(group) for group in groups])
    middle = float(counts @ means) / whole
    inside = sum(float(np.sum((np.asarray(group) - np.mean(group)) ** 2)) for group in groups)
    inside /= whole - many
    among = float(counts @ (means - middle) ** 2) / (many - 1)
    size = (whole - float(counts @ counts) / whole) / (many - 1)
    effect = max(0.0, (among - inside) / size)
    return effect / (effect + inside) if effect else 0.0
