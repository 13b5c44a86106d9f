"""Corrections for many questions, worked by hand."""

from __future__ import annotations

import pytest

from fleet.profiles.stats.families import benjamini_hochberg, holm


def test_holm() -> None:
    assert holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])
    assert holm([0.6, 0.5]) == [1.0, 1.0]
    assert holm([]) == []


def test_benjamini_hochberg() -> None:
    found = benjamini_hochberg([0.01, 0.04, 0.03, 0.005])
    assert found == pytest.approx([0.02, 0.04, 0.04, 0.02])
    assert benjamini_hochberg([]) == []
