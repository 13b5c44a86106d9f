"""Student's t and Fisher's F against printed tables."""

from __future__ import annotations

import pytest

from fleet.profiles.stats.trend import beta_part, f_tail, t_quantile, t_tails


@pytest.mark.parametrize(
    ("level", "df", "t"),
    [(0.95, 1, 12.7062), (0.95, 4, 2.7764), (0.99, 8, 3.3554), (0.9, 29, 1.6991), (0.5, 5, 0.7267)],
)
def test_quantiles_of_t(level: float, df: int, t: float) -> None:
    assert t_quantile(level, df) == pytest.approx(t, abs=5e-5)
    assert t_tails(t, df) == pytest.approx(1 - level, abs=5e-5)
    assert t_tails(-t, df) == t_tails(t, df)


@pytest.mark.parametrize(
    ("f", "over", "under"), [(4.2565, 2, 9), (161.4476, 1, 1), (2.5336, 5, 30)]
)
def test_five_percent_points_of_f(f: float, over: int, under: int) -> None:
    assert f_tail(f, over, under) == pytest.approx(0.05, abs=1e-5)


def test_ends() -> None:
    assert (beta_part(0, 2, 3), beta_part(1, 2, 3)) == (0, 1)
    assert beta_part(0.5, 4, 4) == pytest.approx(0.5)
    assert t_tails(float("inf"), 3) == 0
    assert t_tails(0, 3) == 1
    assert f_tail(float("inf"), 2, 3) == 0
