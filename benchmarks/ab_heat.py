"""A B that is slower only because it heats the chip more: `python -m benchmarks.ab_heat`.

The heat of the chip follows the side that runs, with a time constant. A leaves it cold; B alone
makes it so hot that the chip is 10 % slower, for whichever side runs next. A run takes 15 s.
In single turns both sides share the heat; `--sustained` lets each side make its own. Fixed seeds.
"""

from __future__ import annotations

import argparse
import math
import zlib
from dataclasses import dataclass

import numpy as np

from benchmarks.ab import TRIALS, written
from fleet.profiles.compare.sequential import Answer, answers, design_of, drawn
from fleet.profiles.stats.trend import Floats

RUN_SECONDS = 15.0
LOSS = 0.10
NOISE = 0.02
LIMIT = -0.05
MARKS = ("<!-- heat -->", "<!-- heat end -->")


@dataclass
class Chip:
    """The heat of many boards: 0 cold, 1 as hot as B alone makes it."""

    rng: np.random.Generator
    heat: Floats
    keeps: float  # of the heat, over one run

    def run(self, side: str) -> Floats:
        """Return the rates of one run of a side on each board."""
        aim = float(side == "B")
        after = aim + (self.heat - aim) * self.keeps
        rate = 10 * (1 - LOSS * (self.heat + after) / 2)
        self.heat = after
        return np.asarray(rate * np.exp(NOISE * self.rng.standard_normal(len(rate))), dtype=float)


def pairs_of(boards: int, runs: float, minutes: float) -> Floats:
    """Return boards, pairs, A and B. `runs`: the time constant; `minutes`: 0 for single turns."""
    design = design_of(1, sustained=bool(minutes))
    seed = zlib.crc32(repr((runs, minutes)).encode())
    chip = Chip(np.random.default_rng(seed), np.zeros(boards), math.exp(-1 / runs))
    length = max(1, round(minutes * 60 / RUN_SECONDS))
    order = drawn(str(seed), design)
    found = np.empty((boards, design.looks[-1], 2))
    for pair in range(design.looks[-1]):
        for side in "AB" if order[pair] == "A" else "BA":
            rates = np.array([chip.run(side) for _ in range(length)])
            settled = rates[-math.ceil(length / 3) :]
            found[:, pair, "AB".index(side)] = np.median(settled, axis=0)
    return found


def table(trials: int) -> list[str]:
    """Lines of Markdown."""
    about = f"one board, gate {LIMIT:.0%}, noise {NOISE:.0%} of a run"
    lines = [
        f"Percent of {trials:,} comparisons ({about}), `python -m benchmarks.ab_heat`.",
        "",
        "| time constant | measured | fail / pass | change shown | minutes (middle) |",
        "|---|---|---:|---:|---:|",
    ]
    for runs in (1, 3, 10, 20):
        for minutes in (0.0, 3.0, 5.0):
            values = pairs_of(trials, runs, minutes)
            found = answers(values, LIMIT, 1, design_of(1, sustained=bool(minutes)))
            shares = [
                sum(one.answer is word for one in found) / trials * 100
                for word in (Answer.FAIL, Answer.PASS)
            ]
            each = minutes * 60 or RUN_SECONDS
            spent = float(np.median([one.pairs for one in found])) * 2 * each / 60
            shown = float(np.median([one.mid for one in found if one.mid is not None]))
            how = f"`--sustained {minutes:g}m`" if minutes else "single turns"
            lines.append(
                f"| {runs * RUN_SECONDS:.0f} s | {how} | {shares[0]:.1f} / {shares[1]:.1f} "
                f"| {shown * 100:+.1f} % | {spent:.0f} |"
            )
    return lines


def main() -> None:
    """Print the table, or put it into a page."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--trials", type=int, default=TRIALS)
    written(parser, MARKS, table)


if __name__ == "__main__":
    main()
