"""The figures of docs/compare.md: known truth, fixed seeds."""

from __future__ import annotations

import pytest

from benchmarks.truth import FAMILIES, SIZES, Family, coverage, verdicts

# What the issue names; the others of the page are harder on purpose.
NAMED = [FAMILIES[n] for n in (0, 2, 4, 7)]


@pytest.mark.parametrize("family", NAMED, ids=lambda one: one.name)
def test_coverage_and_false_alarms(family: Family) -> None:
    """600 samples, fixed seeds: nothing here is left to chance."""
    assert 0.925 <= coverage(family, 10, 600) <= 0.972
    assert verdicts(family, (10, 10), 0.0, 600)[0] <= 0.065


@pytest.mark.parametrize("family", NAMED, ids=lambda one: one.name)
def test_five_percent_is_found(family: Family) -> None:
    assert verdicts(family, (10, 10), -0.05, 200)[0] >= 0.93


@pytest.mark.slow
@pytest.mark.parametrize("family", FAMILIES, ids=lambda one: one.name)
@pytest.mark.parametrize("n", SIZES)
def test_every_family_and_size(family: Family, n: int) -> None:
    """2,000 samples each, seeds are fixed; the bounds leave three standard errors."""
    assert coverage(family, n, 2000) >= 0.92
    if family in NAMED:
        assert coverage(family, n, 2000) <= 0.98
    shown, held, told = verdicts(family, (n, n), 0.0, 2000)
    assert shown <= 0.06
    assert held >= 0.935 or told < 0.1


@pytest.mark.slow
@pytest.mark.parametrize("n", [3, 4])
def test_three_and_four_are_too_few(n: int) -> None:
    for family in FAMILIES:
        assert verdicts(family, (n, n), -0.2, 300) == (0, 0, 0)
