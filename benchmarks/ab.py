"""The design of `fleet ab` on boards whose truth is known: `python -m benchmarks.ab`.

Every trial is a whole table of boards (one gate each) that is measured as `fleet ab` does it:
pairs in turns, looks, a board that is decided is left alone. Fixed seeds.
"""

from __future__ import annotations

import argparse
import math
import re
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from fleet.profiles.compare.sequential import LOOKS, Answer, answer, first_of
from fleet.profiles.stats.trend import Floats

TRIALS = 1000
MARKS = ("<!-- ab -->", "<!-- ab end -->")
# Noise of so many runs in their order: the logarithm about 0. Arguments: generator, runs, CV.
Noise = Callable[[np.random.Generator, int, float], Floats]


def _wander(rho: float) -> Noise:
    def draw(rng: np.random.Generator, runs: int, noise: float) -> Floats:
        found, state = np.empty(runs), rng.standard_normal()
        for place in range(runs):
            found[place] = state
            state = rho * state + math.sqrt(1 - rho**2) * rng.standard_normal()
        return noise * found

    return draw


def _calm(rng: np.random.Generator, runs: int, noise: float) -> Floats:
    return noise * rng.standard_normal(runs)


def _boot(effect: float) -> Noise:
    """A reboot in the middle: cut and resumed."""

    def draw(rng: np.random.Generator, runs: int, noise: float) -> Floats:
        steps = np.repeat(effect * rng.standard_normal(2), [runs // 2, runs - runs // 2])
        return _calm(rng, runs, noise) + steps

    return draw


def _sticky(rng: np.random.Generator, runs: int, noise: float) -> Floats:
    """Clocks that stay for about ten runs in one of two states, 6 % apart."""
    changes = rng.random(runs) < 0.1
    return _calm(rng, runs, noise) - 0.06 * (np.cumsum(changes) % 2)


def _bimodal(rng: np.random.Generator, runs: int, noise: float) -> Floats:
    return _calm(rng, runs, noise) - 0.04 * (rng.random(runs) < 0.3)


def _outliers(rng: np.random.Generator, runs: int, noise: float) -> Floats:
    return _calm(rng, runs, noise) - (rng.random(runs) < 0.05) * rng.uniform(0.1, 0.3, runs)


def _warming(rng: np.random.Generator, runs: int, noise: float) -> Floats:
    return _calm(rng, runs, noise) - 0.10 * (1 - np.exp(-np.arange(runs) / 10))


def _sawtooth(rng: np.random.Generator, runs: int, noise: float) -> Floats:
    return _calm(rng, runs, noise) - 0.05 * ((np.arange(runs) + rng.integers(7)) % 7) / 7


@dataclass(frozen=True)
class Family:
    """How the noise of one board looks. `step`: the resolution of the program, of a rate of 10.

    `unequal`: the noise of A and of B, times the noise.
    """

    name: str
    noise: Noise
    step: float = 0.0
    unequal: tuple[float, float] = (1.0, 1.0)


FAMILIES = (
    Family("calm", _calm),
    Family("each .5 like the last", _wander(0.5)),
    Family("each .9 like the last", _wander(0.9)),
    Family("boots differ by 0.5 %", _boot(0.005)),
    Family("boots differ by 1.5 %", _boot(0.015)),
    Family("two days, 5 % apart", _boot(0.05)),
    Family("sticky clocks, 6 %", _sticky),
    Family("two modes, 4 % apart", _bimodal),
    Family("outliers", _outliers),
    Family("quantised, 0.1 of 10", _calm, 0.1),
    Family("warms up, 10 %", _warming),
    Family("thermal sawtooth, 5 %", _sawtooth),
    Family("noise A x 0.5, B x 1.5", _calm, unequal=(0.5, 1.5)),
    Family("whole numbers", _calm, 1.0),
)


def pairs_of(
    family: Family, rng: np.random.Generator, noise: float, change: float
) -> list[tuple[float, float]]:
    """Pairs of one board up to the last look."""
    runs = family.noise(rng, 2 * LOOKS[-1], noise)
    pairs = []
    for pair in range(LOOKS[-1]):
        first, second = runs[2 * pair], runs[2 * pair + 1]
        a, b = (first, second) if first_of(pair) == "A" else (second, first)
        values = [
            10 * level * math.exp(scale * found)
            for level, scale, found in zip((1, 1 + change), family.unequal, (a, b), strict=True)
        ]
        if family.step:
            values = [max(1, round(value / family.step)) * family.step for value in values]
        pairs.append((values[0], values[1]))
    return pairs


@dataclass
class Cell:
    """Of so many tables: shares in which any board is worse, undecided; the first board's answer.

    `held`: all intervals of the table hold the truth. `pairs`: the middle of what was measured.
    """

    red: float
    undecided: float
    found: float
    missed: float
    held: float
    pairs: float


def cell(
    family: Family, noise: float, loss: float, limit: float, rows: int, *, trials: int
) -> Cell:
    """Tables of so many boards, of which the first loses `loss`."""
    rng = np.random.default_rng(zlib.crc32(repr((family.name, noise, loss, limit, rows)).encode()))
    counts = dict.fromkeys(("red", "undecided", "found", "missed", "held"), 0)
    pairs = []
    for _ in range(trials):
        truths = [-loss if row == 0 else 0.0 for row in range(rows)]
        found = [answer(pairs_of(family, rng, noise, truth), limit, rows) for truth in truths]
        answers = [decision.answer for decision in found]
        counts["red"] += Answer.WORSE in answers
        counts["undecided"] += Answer.WORSE not in answers and Answer.UNDECIDED in answers
        counts["found"] += answers[0] is Answer.WORSE
        counts["missed"] += answers[0] is Answer.FINE
        counts["held"] += all(
            decision.low is None or decision.low - 1e-9 <= truth <= (decision.high or 0) + 1e-9
            for decision, truth in zip(found, truths, strict=True)
        )
        pairs += [decision.pairs for decision in found]
    shares = {name: count / trials for name, count in counts.items()}
    return Cell(**shares, pairs=float(np.median(pairs)))


def tables(trials: int) -> list[str]:
    """Lines of Markdown."""
    noises, rows = (0.015, 0.03, 0.06), 20
    lines = [
        f"Percent of {trials:,} tables of {rows} boards a cell, `python -m benchmarks.ab`.",
        "",
    ]
    heads = [f"noise {noise:.1%}" for noise in noises]
    for title, loss, shown in (
        (
            "Nothing differs: worse / undecided / all intervals hold",
            0.0,
            ("red", "undecided", "held"),
        ),
        ("8 % less on one board: found / missed", 0.08, ("found", "missed")),
    ):
        lines += [
            f"**{title}** (gate -5 %)",
            "",
            "| noise of a board | " + " | ".join(heads) + " |",
        ]
        lines += ["|---|" + "---:|" * len(heads)]
        for family in FAMILIES:
            cells = []
            for noise in noises:
                made = cell(family, noise, loss, -0.05, rows, trials=trials)
                cells.append(" / ".join(f"{getattr(made, name) * 100:.1f}" for name in shown))
            lines.append(f"| {family.name} | " + " | ".join(cells) + " |")
        lines.append("")
    lines += ["**One gate, one board, noise 2.3 %, 3 % less**: found, pairs", ""]
    lines += ["| gate | found | missed | pairs (middle) |", "|---|---:|---:|---:|"]
    for limit in (-0.01, -0.02, -0.03):
        made = cell(FAMILIES[0], 0.023, 0.03, limit, 1, trials=trials)
        lines.append(f"| {limit:.0%} | {made.found:.1%} | {made.missed:.1%} | {made.pairs:.0f} |")
    return lines


def main() -> None:
    """Print the tables, or put them into a page."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--trials", type=int, default=TRIALS)
    parser.add_argument("--write", type=Path)
    given = parser.parse_args()
    text = "\n".join(tables(given.trials))
    if given.write is None:
        print(text)
        return
    first, last = MARKS
    page = given.write.read_text("utf-8")
    inside = re.compile(re.escape(first) + ".*?" + re.escape(last), re.DOTALL)
    given.write.write_text(inside.sub(lambda _: f"{first}\n{text}\n{last}", page), "utf-8")


if __name__ == "__main__":
    main()
