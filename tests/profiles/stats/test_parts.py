"""The share of a variance that lies between groups, against samples whose share is known."""

from __future__ import annotations

import numpy as np
import pytest

from fleet.profiles.stats.difference import between


@pytest.mark.parametrize("share", [0.0, 0.3, 0.8])
def test_the_share_that_was_put_in(share: float) -> None:
    rng = np.random.default_rng(1)
    effects = share**0.5 * rng.standard_normal(400)
    groups = [
        list(effect + (1 - share) ** 0.5 * rng.standard_normal(3 + n % 4))
        for n, effect in enumerate(effects)
    ]
    assert between(groups) == pytest.approx(share, abs=0.06)


def test_ends_and_what_cannot_be_known() -> None:
    assert between([[1.0, 1.0], [2.0, 2.0]]) == 1.0
    assert between([[1.0, 1.0], [1.0, 1.0]]) == 0.0
    assert between([[1.0, 2.0, 3.0]]) is None
    assert between([[1.0], [2.0]]) is None
