"""`fleet ab` on boards whose truth is known. The whole table: `python -m benchmarks.ab`."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks.ab import FAMILIES, Cell, Family, cell
from fleet.profiles.compare.sequential import LOOKS, Answer, decide, first_of, next_look
from fleet.profiles.stats import ranks

QUICK = 20  # tables of 20 boards: 400 rows a cell


def made(gaps: list[float]) -> list[tuple[float, float]]:
    return [(10.0, 10.0 * (1 + gap)) for gap in gaps]


def test_the_order_is_abba_and_looks_are_fixed() -> None:
    assert "".join(first_of(pair) for pair in range(4)) == "ABAB"  # A B, B A, A B, B A
    assert [next_look(pairs) for pairs in (0, 8, 13, 14, 39, 40)] == [8, 14, 14, 24, 40, None]


@pytest.mark.parametrize(
    ("middle", "limit", "answer"),
    [
        (-0.10, -0.05, Answer.WORSE),
        (-0.03, -0.05, Answer.FINE),  # less for sure, and within the limit
        (0.0, -0.05, Answer.FINE),
        (0.10, -0.05, Answer.FINE),
        (-0.045, -0.05, Answer.UNDECIDED),
        (0.10, 0.05, Answer.WORSE),  # a time
        (0.0, 0.05, Answer.FINE),
        (-0.10, 0.05, Answer.FINE),
        (0.045, 0.05, Answer.UNDECIDED),
    ],
)
def test_three_answers(middle: float, limit: float, answer: Answer) -> None:
    away = np.linspace(-0.011, 0.011, 8)
    found = decide(made([middle + float(gap) for gap in away]), limit, 1)
    assert (found.answer, found.pairs) == (answer, 8)


def test_a_family_too_large_for_so_few_pairs_is_undecided() -> None:
    slow = made([-0.5] * 8)
    assert decide(slow, -0.05, 1).answer is Answer.WORSE
    found = decide(slow, -0.05, 20)
    assert (found.answer, found.low) == (Answer.UNDECIDED, None)
    assert found.mid == pytest.approx(-0.5)
    assert decide(slow * 2, -0.05, 20).answer is Answer.WORSE
    assert decide([], -0.05, 1).answer is Answer.UNDECIDED


def test_the_interval_of_eight_pairs_is_at_most_half_wider_than_one_alone() -> None:
    """Noise 1.5 %; against the exact interval of a single question asked once."""
    rng = np.random.default_rng(1)
    shares = []
    for _ in range(300):
        gaps = 0.015 * 2**0.5 * rng.standard_normal(8)
        alone = ranks.centre(gaps, 0.95)
        found = decide(made(np.expm1(gaps).tolist()), -0.05, 1)
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
    assert bad.found >= 0.8


@pytest.mark.slow
@pytest.mark.parametrize("family", FAMILIES, ids=lambda family: family.name)
def test_the_promise(family: Family) -> None:
    """1,000 tables of 20 boards a cell: the bars of docs/compare.md."""
    for noise, red in ((0.015, 0.02), (0.03, 0.02), (0.06, 0.03)):
        calm: Cell = cell(family, noise, 0.0, -0.05, 20, trials=1000)
        assert calm.red <= red, noise
        assert calm.held >= 0.94, noise
        bad = cell(family, noise, 0.08, -0.05, 20, trials=1000)
        assert bad.missed <= 0.025, noise


@pytest.mark.slow
def test_three_percent_is_found_within_25_minutes() -> None:
    """Noise 2.3 %, one gate, one board: at 10 s a run 40 pairs take 14 minutes."""
    found = cell(FAMILIES[0], 0.023, 0.03, -0.02, 1, trials=1000)
    assert found.found >= 0.9
    assert LOOKS[-1] * 2 * 10 / 60 < 25
