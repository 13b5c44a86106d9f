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

from fleet.profiles.compare.sequential import (
    LOOKS,
    Answer,
    Failures,
    answers,
    design_of,
    failures,
    over_boards,
    settled,
)
from fleet.profiles.stats.trend import Floats

TRIALS = 400
OF_TABLES = 12  # families that are measured in tables of 20 boards, too; the others alone
MARKS = ("<!-- ab -->", "<!-- ab end -->")
# Logarithms about 0: boards, runs in their order. Arguments: generator, boards, runs, CV.
Noise = Callable[[np.random.Generator, int, int, float], Floats]


def _wander(rho: float) -> Noise:
    def draw(rng: np.random.Generator, boards: int, runs: int, noise: float) -> Floats:
        found = rng.standard_normal((boards, runs))
        for run in range(1, runs):
            found[:, run] = rho * found[:, run - 1] + math.sqrt(1 - rho**2) * found[:, run]
        return noise * found

    return draw


def _calm(rng: np.random.Generator, boards: int, runs: int, noise: float) -> Floats:
    return noise * rng.standard_normal((boards, runs))


def _boot(effect: float) -> Noise:
    """A reboot in the middle: cut and resumed."""

    def draw(rng: np.random.Generator, boards: int, runs: int, noise: float) -> Floats:
        steps = np.repeat(effect * rng.standard_normal((boards, 2)), runs // 2, axis=1)
        return _calm(rng, boards, runs, noise) + steps

    return draw


def _sticky(rng: np.random.Generator, boards: int, runs: int, noise: float) -> Floats:
    """Clocks that stay for about ten runs in one of two states, 6 % apart."""
    changes = rng.random((boards, runs)) < 0.1
    return _calm(rng, boards, runs, noise) - 0.06 * (np.cumsum(changes, axis=1) % 2)


def _bimodal(rng: np.random.Generator, boards: int, runs: int, noise: float) -> Floats:
    return _calm(rng, boards, runs, noise) - 0.04 * (rng.random((boards, runs)) < 0.3)


def _bimodal_far(rng: np.random.Generator, boards: int, runs: int, noise: float) -> Floats:
    return _calm(rng, boards, runs, noise) - 0.06 * (rng.random((boards, runs)) < 0.3)


def _tails(rng: np.random.Generator, boards: int, runs: int, noise: float) -> Floats:
    return np.asarray(noise * rng.standard_t(2, (boards, runs)), dtype=float)


def _drift(change: float) -> Noise:
    def draw(rng: np.random.Generator, boards: int, runs: int, noise: float) -> Floats:
        return _calm(rng, boards, runs, noise) + math.log1p(change) * np.arange(runs) / runs

    return draw


def _throttled(rng: np.random.Generator, boards: int, runs: int, noise: float) -> Floats:
    """From some run on 20 % slower, and three times as noisy."""
    late = np.arange(runs) >= rng.integers(runs, size=(boards, 1))
    return _calm(rng, boards, runs, noise) * np.where(late, 3, 1) + math.log(0.8) * late


def _each(period: int, change: float) -> Noise:
    """A neighbour that slows one run of so many."""

    def draw(rng: np.random.Generator, boards: int, runs: int, noise: float) -> Floats:
        hit = (np.arange(runs) + rng.integers(period, size=(boards, 1))) % period == 0
        return np.asarray(_calm(rng, boards, runs, noise) + math.log1p(change) * hit)

    return draw


def _cron(rng: np.random.Generator, boards: int, runs: int, noise: float) -> Floats:
    """A job each 60 s that halves the speed for 3 s; a run alone takes 14.7 s."""
    quiet = 14.7 * np.exp(-_calm(rng, boards, runs, noise))
    now, found = rng.uniform(0, 60, boards), np.empty((boards, runs))
    for run in range(runs):
        work, at = quiet[:, run], now % 60
        left = np.maximum(0, work - (60 - at))  # of the work, when the next job begins
        lost = np.where(at < 3, (3 - at) / 2, np.minimum(left, 1.5))
        found[:, run] = -np.log((work + lost) / 14.7)
        now = now + work + lost
    return found


def _hysteresis(rng: np.random.Generator, boards: int, runs: int, noise: float) -> Floats:
    """Heat that trips a limit, costs 15 % until the chip has cooled, and so locks to the runs."""
    found = _calm(rng, boards, runs, noise)
    heat, hot = rng.uniform(0.6, 0.9, boards), np.zeros(boards, dtype=bool)
    for run in range(runs):
        hot = np.where(hot, heat > 0.75, heat > 0.85)
        found[:, run] += math.log(0.85) * hot
        heat = heat + 0.4 * (np.where(hot, 0.6, 1.0) - heat) + 0.01 * rng.standard_normal(boards)
    return found


def _outliers(rng: np.random.Generator, boards: int, runs: int, noise: float) -> Floats:
    wild = rng.random((boards, runs)) < 0.05
    return _calm(rng, boards, runs, noise) - wild * rng.uniform(0.1, 0.3, (boards, runs))


def _warming(rng: np.random.Generator, boards: int, runs: int, noise: float) -> Floats:
    return _calm(rng, boards, runs, noise) - 0.10 * (1 - np.exp(-np.arange(runs) / 10))


def _sawtooth(rng: np.random.Generator, boards: int, runs: int, noise: float) -> Floats:
    phase = (np.arange(runs) + rng.integers(7, size=(boards, 1))) % 7
    return _calm(rng, boards, runs, noise) - 0.05 * phase / 7


def _sawtooth_of_4(rng: np.random.Generator, boards: int, runs: int, noise: float) -> Floats:
    phase = (np.arange(runs) + rng.integers(4, size=(boards, 1))) % 4
    return _calm(rng, boards, runs, noise) - 0.08 * phase / 4


@dataclass(frozen=True)
class Family:
    """How the noise of one board looks. `step`: to which the program rounds a rate of about
    `level`, or with `tokens` the seconds in which it makes so many. `unequal`: the noise of A and
    of B, times the noise.
    """

    name: str
    noise: Noise
    step: float = 0.0
    unequal: tuple[float, float] = (1.0, 1.0)
    level: float = 10.0
    tokens: int = 0


FAMILIES = (
    Family("calm", _calm),
    Family("each .5 like the last", _wander(0.5)),
    Family("each .9 like the last", _wander(0.9)),
    Family("boots differ by 0.5 %", _boot(0.005)),
    Family("boots differ by 1.5 %", _boot(0.015)),
    Family("two days, 5 % apart", _boot(0.05)),
    Family("sticky clocks, 6 %", _sticky),
    Family("two modes, 4 % apart", _bimodal),
    Family("outliers, 1 in 20 by 10 to 30 %", _outliers),
    Family("quantised, 0.1 of 10", _calm, 0.1),
    Family("warms up, 10 %", _warming),
    Family("thermal sawtooth, 5 %", _sawtooth),
    Family("noise A x 0.5, B x 1.5", _calm, unequal=(0.5, 1.5)),
    Family("whole numbers, about 10", _calm, 1.0),
    Family("whole numbers, about 100", _calm, 1.0, level=100.0),
    Family("26 tokens, timer of 10 ms", _calm, 0.01, tokens=26),
    Family("26 tokens, timer of 100 ms", _calm, 0.1, tokens=26),
    Family("each .3 like the last", _wander(0.3)),
    Family("each .6 like the last", _wander(0.6)),
    Family("boots differ by 2 %", _boot(0.02)),
    Family("drifts by +10 %", _drift(0.10)),
    Family("drifts by -20 %", _drift(-0.20)),
    Family("two modes, 6 % apart", _bimodal_far),
    Family("tails of t(2)", _tails),
    Family("throttles, 20 %, noise x 3", _throttled),
    Family("each 7th run, 15 %", _each(7, -0.15)),
    Family("each 4th run, 8 %", _each(4, -0.08)),
    Family("sawtooth of 4 runs, 8 %", _sawtooth_of_4),
    Family("each 4th run, 15 %", _each(4, -0.15)),
    Family("each 8th run, 15 %", _each(8, -0.15)),
    Family("cron, 3 s of each 60 s", _cron),
    Family("heat that trips and recovers", _hysteresis),
)


def pairs_of(family: Family, rng: np.random.Generator, noise: float, changes: Floats) -> Floats:
    """Boards, pairs up to the last look, A and B. `changes`: of each board, as a share of A.
    The order of each eight pairs is drawn, as `fleet ab` draws it.

    Boards differ by up to 5 %, so that what is rounded is not always the middle of a step.
    """
    boards = len(changes)
    runs = family.noise(rng, boards, 2 * LOOKS[-1], noise).reshape(boards, LOOKS[-1], 2)
    halves = np.tile(np.arange(LOOKS[0]) < LOOKS[0] // 2, (boards, LOOKS[-1] // LOOKS[0], 1))
    swapped = rng.permuted(halves, axis=2).reshape(boards, LOOKS[-1])
    runs[swapped] = runs[swapped][:, ::-1]
    level = family.level * np.exp(rng.uniform(-0.05, 0.05, (boards, 1, 1)))
    sides = np.stack([np.ones(boards), 1 + changes], axis=1)[:, None, :]
    values = level * sides * np.exp(runs * family.unequal)
    if family.tokens:
        seconds = np.maximum(1, np.round(family.tokens / values / family.step)) * family.step
        values = family.tokens / seconds
    elif family.step:
        values = np.maximum(1, np.round(values / family.step)) * family.step
    return np.asarray(values, dtype=float)


@dataclass
class Cell:
    """Of so many tables: shares in which any board is worse, undecided; the first board's answer.

    `shown`: the interval of the first is below 0. `held`: all intervals of the table hold the
    truth. `pairs`: the middle of what was measured.
    """

    red: float
    undecided: float
    found: float
    missed: float
    shown: float
    held: float
    pairs: float


def cell(
    family: Family, noise: float, loss: float, limit: float, boards: int, *, trials: int
) -> Cell:
    """Tables of so many boards, of which the first loses `loss`."""
    seed = zlib.crc32(repr((family.name, noise, loss, limit, boards)).encode())
    truth = np.zeros((trials, boards))
    truth[:, 0] = -loss
    values = pairs_of(family, np.random.default_rng(seed), noise, truth.reshape(-1))
    design = design_of(boards)
    found = answers(values, limit, boards, design)
    for trial in range(0, len(found), boards):
        table = slice(trial, trial + boards)
        asked = [
            (board, limit, one) for board, one in zip(values[table], found[table], strict=True)
        ]
        found[table] = settled(asked, boards, design)
    words = np.array([decision.answer for decision in found]).reshape(trials, boards)
    ends = np.array([
        (-1.0, 9.0) if decision.low is None else (decision.low, decision.high) for decision in found
    ]).reshape(trials, boards, 2)  # fmt: skip
    held = (ends[..., 0] - 1e-9 <= truth) & (truth <= ends[..., 1] + 1e-9)
    red, first = (words == Answer.FAIL).any(axis=1), words[:, 0]
    return Cell(
        red=float(red.mean()),
        undecided=float((~red & (words == Answer.UNDECIDED).any(axis=1)).mean()),
        found=float((first == Answer.FAIL).mean()),
        missed=float((first == Answer.PASS).mean()),
        shown=float((ends[:, 0, 1] < 0).mean()),
        held=float(held.all(axis=1).mean()),
        pairs=float(np.median([decision.pairs for decision in found])),
    )


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
            "Nothing differs: fail / undecided / all intervals hold",
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
        for family in FAMILIES[:OF_TABLES]:
            row = []
            for noise in noises:
                made = cell(family, noise, loss, -0.05, rows, trials=trials)
                row.append(" / ".join(f"{getattr(made, name) * 100:.1f}" for name in shown))
            lines.append(f"| {family.name} | " + " | ".join(row) + " |")
        lines.append("")
    lines += [*_alone(trials), *_curve(trials), *_line(trials), *_failing(trials)]
    lines += ["**One gate, one board, noise 2.3 %**: fail, a loss at all, pass; pairs", ""]
    lines += ["| gate | loss | found | shown | missed | pairs (middle) |", "|---|" + "---:|" * 5]
    for limit, loss in ((-0.01, 0.03), (-0.02, 0.03), (-0.03, 0.03), (-0.03, 0.04), (-0.03, 0.05)):
        made = cell(FAMILIES[0], 0.023, loss, limit, 1, trials=trials)
        cells = f"{made.found:.1%} | {made.shown:.1%} | {made.missed:.1%} | {made.pairs:.0f}"
        lines.append(f"| {limit:.0%} | {loss:.0%} | {cells} |")
    return lines


def _alone(trials: int) -> list[str]:
    """One board and one gate: equal sides, and a loss of 1.5 times the gate."""
    lines = [
        "**One board** (gate -5 %, noise 3 %)",
        "",
        "| noise of a board | equal: fail / undecided; pairs | 7.5 % less: fail / pass; pairs |",
        "|---|---:|---:|",
    ]
    for family in FAMILIES:
        same, less = (cell(family, 0.03, loss, -0.05, 1, trials=trials) for loss in (0.0, 0.075))
        equal = f"{same.red * 100:.1f} / {same.undecided * 100:.1f}; {same.pairs:.0f}"
        lost = f"{less.found * 100:.1f} / {less.missed * 100:.1f}; {less.pairs:.0f}"
        lines.append(f"| {family.name} | {equal} | {lost} |")
    return [*lines, ""]


def _curve(trials: int) -> list[str]:
    """What a loss of so many times the gate is called."""
    lines = [
        "**A loss beside the gate** (one board, calm, gate -5 %, noise 3 %)",
        "",
        "| loss, times the gate | fail | pass | undecided | pairs (middle) |",
        "|---:|---:|---:|---:|---:|",
    ]
    for times in (0.25, 0.5, 0.75, 0.9, 1.0, 1.1, 1.25, 1.5, 2.0):
        made = cell(FAMILIES[0], 0.03, 0.05 * times, -0.05, 1, trials=trials)
        shares = (made.found, made.missed, made.undecided)
        words = " | ".join(f"{share * 100:.1f}" for share in shares)
        lines.append(f"| {times:g} | {words} | {made.pairs:.0f} |")
    return [*lines, ""]


def _line(trials: int) -> list[str]:
    """The line over eight boards, beside the boards alone."""
    lines = [
        "**The line over 8 boards** (gate -2 %, calm, noise 3 %)",
        "",
        "| loss of each board | line: fail / pass / undecided; pairs | an undecided board |",
        "|---:|---:|---:|",
    ]
    for loss in (0.0, 0.03):
        rng = np.random.default_rng(zlib.crc32(repr(("line", loss)).encode()))
        words, open_tables, pairs = [], 0, []
        for _ in range(trials):
            values = pairs_of(FAMILIES[0], rng, 0.03, np.full(8, -loss))
            found = over_boards(values, -0.02, 1, design_of(8))
            words.append(found.answer)
            pairs.append(found.pairs)
            alone = answers(values, -0.02, 8, design_of(8))
            asked = [(board, -0.02, one) for board, one in zip(values, alone, strict=True)]
            settled_ones = settled(asked, 8, design_of(8))
            open_tables += any(one.answer is Answer.UNDECIDED for one in settled_ones)
        shares = " / ".join(f"{words.count(word) / trials * 100:.1f}" for word in Answer)
        lines.append(
            f"| {loss:.0%} | {shares}; {np.median(pairs):.0f} | {open_tables / trials * 100:.1f} |"
        )
    return [*lines, ""]


def _failing(trials: int) -> list[str]:
    """Runs that fail: the loop of `fleet ab` on one board, whose surviving runs are equal."""
    lines = [
        "**Failing runs** (one board, surviving runs equal, noise 1.5 %, gate -5 %)",
        "",
        "| A fails, B fails | fail | undecided | pass, B failed no run | pass, else |",
        "|---|---:|---:|---:|---:|",
    ]
    for a, b in ((0, 0.15), (0, 0.30), (0, 0.45), (0, 1), (0.05, 0.45), (0.15, 0.15), (0.3, 0.3)):
        rng = np.random.default_rng(zlib.crc32(repr(("failing", a, b)).encode()))
        ends = [with_failures(rng, a, b) for _ in range(trials)]
        kinds = [
            sum(one.answer is Answer.FAIL for one in ends),
            sum(one.answer is Answer.UNDECIDED for one in ends),
            sum(one.answer is Answer.PASS and not one.b for one in ends),
            sum(one.answer is Answer.PASS and one.b > 0 for one in ends),
        ]
        shares = " | ".join(f"{count / trials * 100:.1f}" for count in kinds)
        lines.append(f"| {a:.0%}, {b:.0%} | {shares} |")
    return [*lines, ""]


def with_failures(rng: np.random.Generator, a: float, b: float) -> Failures:
    """Measure until the failures and the rate have an answer, or the last look."""
    values = pairs_of(FAMILIES[0], rng, 0.015, np.zeros(1))
    tries: list[tuple[str | None, str | None]] = []
    good = 0
    while True:
        bad = rng.random(2) < (a, b)
        tries.append(("failed" if bad[0] else "", "failed" if bad[1] else ""))
        good += not bad.any()
        found = failures(tries, 1)
        done = answers(values[:, :good], -0.05, 1)[0].answer is not Answer.UNDECIDED
        if found.answer is Answer.FAIL or good == LOOKS[-1]:
            return found
        if done and found.answer is Answer.PASS:
            return found


def written(
    parser: argparse.ArgumentParser, marks: tuple[str, str], made: Callable[[int], list[str]]
) -> None:
    """Print the lines that `made` gives for `--trials`, or put them into the page of `--write`."""
    parser.add_argument("--write", type=Path)
    given = parser.parse_args()
    text = "\n".join(made(given.trials))
    if given.write is None:
        print(text)
        return
    first, last = marks
    page = given.write.read_text("utf-8")
    inside = re.compile(re.escape(first) + ".*?" + re.escape(last), re.DOTALL)
    given.write.write_text(inside.sub(lambda _: f"{first}\n{text}\n{last}", page), "utf-8")


def main() -> None:
    """Print the tables, or put them into a page."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--trials", type=int, default=TRIALS)
    written(parser, MARKS, tables)


if __name__ == "__main__":
    main()
