"""One group against samples whose truth is known: what its interval holds. Of whole tables:
`benchmarks.whole`.

    python -m benchmarks.truth                      the tables, a few minutes
    python -m benchmarks.truth

Every sample comes from a fixed seed: the same code gives the same table.
"""

from __future__ import annotations

import argparse
import math
import os
import re
import zlib
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from statistics import NormalDist

import numpy as np
from numpy.typing import NDArray

from fleet.profiles.compare.verdict import CHANCE
from fleet.profiles.stats.difference import difference
from fleet.profiles.stats.interval import interval
from fleet.profiles.stats.trend import t_quantile

Floats = NDArray[np.float64]
SIZES = (5, 6, 7, 8, 10, 15, 20, 30)
TRIALS = 4000
MARKS = ("<!-- simulation -->", "<!-- end -->")


@dataclass(frozen=True)
class Family:
    """How samples come about. `draw(rng, n)`: n values in their order, about 100.

    `truth(n)`: what the interval should hold; `of` says what that is: the median of the
    distribution, or under a trend the level over all n repeats (mean of the logarithms).
    """

    name: str
    draw: Callable[[np.random.Generator, int], Floats]
    truth: Callable[[int], float]
    of: str = "median"


def _mixture_median(weight: float, gap: float, within: float) -> float:
    """Median of logarithms: `weight` at 0, the rest at `gap`, each with spread `within`."""
    one, low, high = NormalDist(0, within), -1.0, 1.0
    for _ in range(200):
        middle = (low + high) / 2
        below = weight * one.cdf(middle) + (1 - weight) * one.cdf(middle - gap)
        low, high = (middle, high) if below < 0.5 else (low, middle)
    return 100 * math.exp(high)


def _two(name: str, weight: float, gap: float, within: float) -> Family:
    def draw(rng: np.random.Generator, n: int) -> Floats:
        other = rng.random(n) > weight
        return 100 * np.exp(within * rng.standard_normal(n) + gap * other)

    middle = _mixture_median(weight, gap, within)
    return Family(name, draw, lambda _: middle)


def _trend(name: str, shape: Callable[[Floats], Floats], fall: float) -> Family:
    """Warming: by `fall` from the first to the last repeat, 2 % noise about it."""

    def level(n: int) -> Floats:
        return math.log(1 - fall) * shape(np.linspace(0, 1, n))

    def draw(rng: np.random.Generator, n: int) -> Floats:
        return 100 * np.exp(level(n) + 0.02 * rng.standard_normal(n))

    return Family(name, draw, lambda n: 100 * math.exp(float(level(n).mean())), "level")


def _bent(x: Floats) -> Floats:
    return (1 - np.exp(-3 * x)) / (1 - math.exp(-3))


_TAIL = 0.925  # exp(N(0, 1)) times this has a standard deviation of 2
FAMILIES = (
    Family("normal, 2 %", lambda r, n: 100 + 2 * r.standard_normal(n), lambda _: 100.0),
    Family("normal, 10 %", lambda r, n: 100 + 10 * r.standard_normal(n), lambda _: 100.0),
    Family(
        "skewed: floor and long tail, 2 %",
        lambda r, n: 100 + _TAIL * np.exp(r.standard_normal(n)),
        lambda _: 100 + _TAIL,
    ),
    Family(
        "skewed: log-normal, 25 %",
        lambda r, n: 100 * np.exp(0.25 * r.standard_normal(n)),
        lambda _: 100.0,
    ),
    _trend("drifting: falls by a quarter, 2 %", lambda x: x, 0.25),
    _trend("drifting: a quarter, bent, 2 %", _bent, 0.25),
    _trend("drifting: by 5 %, 2 %", lambda x: x, 0.05),
    _two("two modes 70:30, 2 % in all", 0.7, 0.04, 0.008),
    _two("two modes 70:30, 10 % apart", 0.7, 0.10, 0.01),
    _two("two modes 50:50, 10 % apart", 0.5, 0.10, 0.01),
)


def _rng(*key: object) -> np.random.Generator:
    return np.random.default_rng(zlib.crc32(repr(key).encode()))


def coverage(family: Family, n: int, trials: int) -> float:
    """How often the interval of n values holds the truth, as a share."""
    rng, held = _rng("coverage", family.name, n), 0
    for _ in range(trials):
        found = interval(family.draw(rng, n))
        held += found is not None and found.low <= family.truth(n) <= found.high
    return held / trials


def verdicts(
    family: Family, sizes: tuple[int, int], change: float, trials: int, noisier: float = 1.0
) -> tuple[float, float, float]:
    """Shares: a difference was shown; the interval of the change held it; there was an answer.

    Repeats of a trend run on one clock: a group of 5 has the first 5 of the longer one's repeats.
    """
    rng = _rng("verdicts", family.name, sizes, change, noisier)
    shown = held = told = 0
    longest = max(sizes) if family.of == "level" else 0
    for _ in range(trials):
        a, b = (family.draw(rng, longest or n)[:n] for n in sizes)
        b = 100 * (b / 100) ** noisier * (1 + change)
        found = difference([a], [b])
        shown += found.p <= CHANCE
        if found.low is not None and found.high is not None:
            told += 1
            held += found.low <= change <= found.high
    return shown / trials, held / max(told, 1), told / trials


def _table(head: str, columns: list[str], rows: list[tuple[str, list[str]]]) -> list[str]:
    lines = [f"| {head} | " + " | ".join(columns) + " |", "|---|" + "---:|" * len(columns)]
    return [*lines, *(f"| {name} | " + " | ".join(cells) + " |" for name, cells in rows), ""]


def _percent(share: float) -> str:
    return f"{share * 100:.1f}"


def _bootstrap(values: Floats, rng: np.random.Generator) -> tuple[float, float]:
    """Percentile bootstrap of the median, 2,000 resamples."""
    draws = np.median(rng.choice(values, (2000, len(values))), axis=1)
    return float(np.quantile(draws, 0.025)), float(np.quantile(draws, 0.975))


def _student(values: Floats, _: np.random.Generator) -> tuple[float, float]:
    logs = np.log(values)
    half = t_quantile(0.95, len(logs) - 1) * logs.std(ddof=1) / math.sqrt(len(logs))
    return math.exp(logs.mean() - half), math.exp(logs.mean() + half)


def _range(values: Floats, _: np.random.Generator) -> tuple[float, float]:
    return float(values.min()), float(values.max())


def others(trials: int) -> list[str]:
    """What other intervals would have held, for the reasons of the page."""
    sizes, rows = (3, 4, 5, 7, 10, 30), []
    ways = (("Student's t", _student), ("bootstrap", _bootstrap), ("smallest to largest", _range))
    for family in (FAMILIES[0], FAMILIES[4], FAMILIES[8]):
        for name, way in ways:
            cells = []
            for n in sizes:
                rng, held, truth = _rng("others", family.name, name, n), 0, family.truth(n)
                if way is _student and family.of == "median":  # it is about the mean
                    truth = math.exp(float(np.log(family.draw(rng, 10**6)).mean()))
                for _ in range(trials):
                    low, high = way(family.draw(rng, n), rng)
                    held += low <= truth <= high
                cells.append(_percent(held / trials))
            rows.append((f"{name}; {family.name}", cells))
    lines = ["**What other 95 % intervals of one group hold**", ""]
    return [*lines, *_table("repeats", [str(n) for n in sizes], rows)]


def tables(trials: int, jobs: int) -> list[str]:
    """The tables of one group as lines of Markdown. Every cell has a seed of its own."""
    cells = [(family, n) for family in range(len(FAMILIES)) for n in SIZES]
    with ProcessPoolExecutor(jobs) as pool:
        found = [*pool.map(_held, [(*cell, trials) for cell in cells], chunksize=4)]
    wide = len(SIZES)
    rows = [
        (family.name, [_percent(share) for share in found[n * wide : (n + 1) * wide]])
        for n, family in enumerate(FAMILIES)
    ]
    lines = [f"Percent of {trials:,} samples a cell, `python -m benchmarks.truth`.", ""]
    lines += ["**The 95 % interval of one group holds the truth** (93 to 97 is wanted)", ""]
    lines += _table("repeats", [str(n) for n in SIZES], rows)
    return [*lines, *others(max(trials // 5, 100))]


def _held(task: tuple[int, int, int]) -> float:
    family, n, trials = task
    return coverage(FAMILIES[family], n, trials)


def main() -> None:
    """Print the tables, or put them into a page."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--trials", type=int, default=TRIALS)
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--write", type=Path)
    given = parser.parse_args()
    text = "\n".join(tables(given.trials, given.jobs))
    if given.write is None:
        print(text)
        return
    first, last = MARKS
    page = given.write.read_text("utf-8")
    inside = re.compile(re.escape(first) + ".*?" + re.escape(last), re.DOTALL)
    given.write.write_text(inside.sub(lambda _: f"{first}\n{text}\n{last}", page), "utf-8")


if __name__ == "__main__":
    main()
