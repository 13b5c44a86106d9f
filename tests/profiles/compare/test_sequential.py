"""`fleet ab` on boards whose truth is known. The whole table: `python -m benchmarks.ab`."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from benchmarks import ab_heat
from benchmarks.ab import FAMILIES, Cell, Family, cell, pairs_of, with_failures
from fleet.profiles.compare.sequential import (
    LOOKS,
    Answer,
    Decision,
    answers,
    decide,
    design_of,
    drawn,
    settled,
    useful_looks,
)
from fleet.profiles.stats import ranks

QUICK = 20  # tables of 20 boards: 400 rows a cell
HARD = {  # 40 pairs leave many boards undecided: docs/compare.md
    "whole numbers, about 10",  # 10.4 and 9.6 look alike
    "26 tokens, timer of 100 ms",
    "tails of t(2)",
    "throttles, 20 %, noise x 3",
    "two modes, 6 % apart",
    "each 7th run, 15 %",
    "each 4th run, 8 %",
    "sawtooth of 4 runs, 8 %",
    "each 4th run, 15 %",
    "each 8th run, 15 %",
    "cron, 3 s of each 60 s",
    "heat that trips and recovers",
}


def of_gaps(gaps: list[float], limit: float, family: int) -> Decision:
    """Of one board at a look."""
    values = np.array([[(10.0123456, 10.0123456 * (1 + gap)) for gap in gaps]])
    (found,) = decide(values, limit, family)
    return found


def test_the_order_is_drawn_for_each_eight_pairs_and_looks_are_fixed() -> None:
    order = drawn("20261127-101500-3fa9c1 evk-01")
    assert len(order) == LOOKS[-1]
    blocks = [order[pair : pair + 8] for pair in range(0, len(order), 8)]
    assert {block.count("A") for block in blocks} == {4}
    assert order == drawn("20261127-101500-3fa9c1 evk-01") != drawn("20261127-101500-3fa9c1 evk-02")
    assert len({drawn(str(seed))[:8] for seed in range(1000)}) == 70, "all halves of eight"
    assert LOOKS == (8, 14, 24, 40)


@pytest.mark.parametrize("period", [4, 8])
def test_a_disturbance_of_a_period_is_not_a_loss(period: int) -> None:
    """In a fixed order A had all of it or none: half of all boards were worse (period 4)."""
    (family,) = (one for one in FAMILIES if one.name == f"each {period}th run, 15 %")
    found = cell(family, 0.015, 0.0, -0.05, 1, trials=400)
    assert found.red <= 0.05


@pytest.mark.parametrize(
    ("middle", "limit", "answer"),
    [
        (-0.10, -0.05, Answer.FAIL),
        (-0.03, -0.05, Answer.PASS),  # less for sure, and within the limit
        (0.0, -0.05, Answer.PASS),
        (0.10, -0.05, Answer.PASS),
        (-0.045, -0.05, Answer.UNDECIDED),
        (0.10, 0.05, Answer.FAIL),  # a time
        (0.0, 0.05, Answer.PASS),
        (-0.10, 0.05, Answer.PASS),
        (0.045, 0.05, Answer.UNDECIDED),
    ],
)
def test_three_answers(middle: float, limit: float, answer: Answer) -> None:
    away = np.linspace(-0.011, 0.011, 8)
    found = of_gaps([middle + float(gap) for gap in away], limit, 1)
    assert (found.answer, found.pairs) == (answer, 8)


def test_a_family_too_large_for_so_few_pairs_is_undecided() -> None:
    slow = [-0.5] * 8
    assert of_gaps(slow, -0.05, 1).answer is Answer.FAIL
    found = of_gaps(slow, -0.05, 20)
    assert (found.answer, found.low) == (Answer.UNDECIDED, None)
    assert found.mid == pytest.approx(-0.5)
    assert of_gaps(slow * 2, -0.05, 20).answer is Answer.FAIL
    assert answers(np.empty((1, 0, 2)), -0.05, 1)[0].answer is Answer.UNDECIDED


def test_a_look_without_an_interval_leaves_its_chance_to_the_last() -> None:
    """At 20 questions eight pairs have none: the last look then has 3 parts of 5, not 1."""
    gaps = 0.02 * np.random.default_rng(4).standard_normal(40)
    found = of_gaps(np.expm1(gaps).tolist(), -0.05, 20)
    bounds = ranks.centres(gaps[None], 1 - 0.049 * 0.6 / 20)
    assert bounds is not None
    assert (found.low, found.high) == pytest.approx(np.expm1(bounds[[0, 2], 0]))


def test_few_wild_pairs_do_not_widen_the_interval() -> None:
    gaps = 0.02 * np.random.default_rng(5).standard_normal(40)
    gaps[[3, 9, 17, 30, 33]] = -0.2
    found = of_gaps(np.expm1(gaps).tolist(), -0.05, 20)
    whole = ranks.centre(gaps, 1 - 0.049 * 0.6 / 20)
    assert whole is not None
    assert found.answer is Answer.PASS
    assert whole[0] < -0.05, "all ranks, as they are, would be undecided"


@pytest.mark.parametrize(
    ("a", "b", "limit", "answer", "step"),
    [
        ((10.0,) * 40, (10.0,) * 40, -0.05, Answer.UNDECIDED, 10.0),  # 10.4 and 9.6 look alike
        ((12.0,) * 40, (12.0,) * 40, -0.05, Answer.UNDECIDED, 1.0),
        ((10.0,) * 40, (9.0,) * 40, -0.05, Answer.FAIL, 1.0),  # equal ones would look alike
        ((10.0, 9.0) * 20, (9.0, 10.0) * 20, -0.05, Answer.UNDECIDED, 1.0),
        ((100.0, 101.0) * 20, (101.0, 100.0) * 20, -0.05, Answer.PASS, 1.0),
        ((300.0,) * 40, (300.0,) * 40, 0.05, Answer.UNDECIDED, 100.0),  # a timer of 100 ms
        ((300.0, 400.0) * 20, (400.0, 300.0) * 20, 0.05, Answer.UNDECIDED, 100.0),
        ((2600.0, 2700.0) * 20, (2700.0, 2600.0) * 20, 0.05, Answer.UNDECIDED, 100.0),
        ((2600.0, 2610.0) * 20, (2610.0, 2600.0) * 20, 0.05, Answer.PASS, 10.0),
        ((10.0, 9.63) * 20, (9.63, 10.0) * 20, -0.05, Answer.UNDECIDED, 0.37),  # 26 in 2.6, 2.7 s
        ((10.04,) * 40, (10.04,) * 40, -0.05, Answer.PASS, 0.01),
        (tuple(range(20, 60)), tuple(range(120, 80, -1)), 0.05, Answer.FAIL, 0.0),
    ],
)
def test_what_was_rounded_away_is_in_the_interval(
    a: tuple[float, ...], b: tuple[float, ...], limit: float, answer: Answer, step: float
) -> None:
    (found,) = answers(np.array([list(zip(a, b, strict=True))], dtype=float), limit, 1)
    assert found.answer is answer
    assert found.step == pytest.approx(step)


@pytest.mark.parametrize(
    ("spread", "middle", "word", "end"),
    [(0.075, -0.024, Answer.PASS, -0.05), (0.150, -0.054, Answer.FAIL, 0.0)],
)
@pytest.mark.parametrize("sign", [1, -1])  # of rates, of times
def test_boards_with_an_answer_pass_their_chance_on(
    spread: float, middle: float, word: Answer, end: float, sign: int
) -> None:
    """By itself the board has that answer, among 20 not: 19 with the same settle it."""
    other = Answer.PASS if word is Answer.FAIL else Answer.FAIL
    gaps = sign * (middle + np.linspace(-spread, spread, 40))
    limit, values = -0.05 * sign, 10.0123456 * np.stack([np.ones(40), 1 + gaps], axis=1)
    (alone,) = decide(values[None], limit, 20)

    def among(said: Answer, others: int) -> Decision:
        asked = [(values, limit, replace(alone, answer=said))] * others
        return settled([(values, limit, alone), *asked], 20)[0]

    assert among(word, 10) == among(other, 19) == alone
    assert alone.answer is Answer.UNDECIDED
    found = among(word, 19)
    assert found.answer is word
    ends = sorted(sign * (one or 0.0) for one in (found.low, found.high))
    assert ends[word is Answer.FAIL] == pytest.approx(end, abs=1e-5)
    early = replace(alone, pairs=24)
    assert settled([(values, limit, early)], 1) == [early], "a look is to come"


def test_heat_of_b_is_seen_in_sustained_turns_only() -> None:
    """B alone makes the chip 10 % slower; the time constant is ten runs, the gate 5 %."""
    for minutes, answer in ((0.0, Answer.PASS), (5.0, Answer.FAIL)):
        design = design_of(1, sustained=bool(minutes))
        found = answers(ab_heat.pairs_of(40, 10, minutes), -0.05, 1, design)
        assert sum(one.answer is answer for one in found) >= 36


@pytest.mark.parametrize(("a", "b"), [(0.0, 0.15), (0.0, 0.45), (0.0, 1.0)])
def test_no_comparison_is_fine_in_which_only_b_failed(a: float, b: float) -> None:
    rng = np.random.default_rng(9)
    ends = [with_failures(rng, a, b) for _ in range(12)]
    assert not any(one.answer is Answer.PASS and one.b for one in ends)
    assert any(one.answer is Answer.FAIL for one in ends)


def test_looks_that_cannot_answer_are_not_announced() -> None:
    assert useful_looks(2, design_of(1)) == LOOKS
    assert useful_looks(3, design_of(1)) == LOOKS[1:]
    assert useful_looks(1, design_of(1, sustained=True)) == (6, 10, 16, 24)


def test_boards_are_judged_as_if_each_were_alone() -> None:
    for family in (FAMILIES[8], FAMILIES[13]):
        values = pairs_of(family, np.random.default_rng(6), 0.03, np.zeros(30))
        together = answers(values, -0.05, 3)
        assert together == [answers(board[None], -0.05, 3)[0] for board in values]
        assert len({decision.pairs for decision in together}) > 1 or family.step


def test_the_interval_of_eight_pairs_is_at_most_half_wider_than_one_alone() -> None:
    """Noise 1.5 %; against the exact interval of a single question asked once."""
    rng = np.random.default_rng(1)
    shares = []
    for _ in range(300):
        gaps = 0.015 * 2**0.5 * rng.standard_normal(8)
        alone = ranks.centre(gaps, 0.95)
        found = of_gaps(np.expm1(gaps).tolist(), -0.05, 1)
        assert alone is not None
        assert found.low is not None
        assert found.high is not None
        shares.append((found.high - found.low) / (alone[2] - alone[0]))
    assert float(np.median(shares)) <= 1.5


@pytest.mark.parametrize("family", FAMILIES, ids=lambda family: family.name)
def test_quick_cells(family: Family) -> None:
    """So few trials only catch what is broken."""
    calm = cell(family, 0.015, 0.0, -0.05, 20, trials=QUICK)
    assert calm.red == 0
    assert calm.held >= 0.85
    bad = cell(family, 0.015, 0.08, -0.05, 20, trials=QUICK)
    assert bad.missed == 0
    assert bad.found >= (0.3 if family.name in HARD else 0.8)


@pytest.mark.slow
@pytest.mark.parametrize("family", FAMILIES, ids=lambda family: family.name)
def test_the_promise(family: Family) -> None:
    """1,000 tables of 20 boards a cell: the bars of docs/compare.md."""
    for noise, red, found in ((0.015, 0.02, 0.95), (0.03, 0.02, 0.95), (0.06, 0.03, 0.8)):
        calm: Cell = cell(family, noise, 0.0, -0.05, 20, trials=1000)
        assert calm.red <= red, noise
        assert calm.held >= 0.94, noise
        if noise <= 0.03:
            assert calm.undecided <= 0.05 or family.name in HARD, noise
        bad = cell(family, noise, 0.08, -0.05, 20, trials=1000)
        assert bad.missed <= 0.025, noise
        assert bad.held >= 0.94, noise
        assert bad.found >= found or family.name in HARD, noise


@pytest.mark.slow
def test_three_percent_is_found_within_25_minutes() -> None:
    """Noise 2.3 %, one gate, one board: at 10 s a run 40 pairs take 14 minutes.

    Held against the limit that it is, it lies beyond it half of the time; that it is one shows.
    """
    for limit in (-0.01, -0.02, -0.03):
        found = cell(FAMILIES[0], 0.023, 0.03, limit, 1, trials=1000)
        assert found.found >= 0.9 or limit == -0.03
        assert found.shown >= 0.9
    assert LOOKS[-1] * 2 * 10 / 60 < 25
