"""The parts of the variance of values: between groups and within groups."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np


def between(groups: Sequence[Sequence[float]]) -> float | None:
    """Return the share of the variance that lies between groups, from 0 to 1; 0 for equal values.

    The method is one-way analysis of variance with random effects (Searle, Variance Components,
    1992, 3.6), for groups that may differ in size. With few groups the result is rough: with three
    groups, an estimate of 0.5 may be far off. Returns None if there is one group, or if no group
    has two values.
    """
    counts = np.array([len(group) for group in groups], dtype=float)
    whole, many = counts.sum(), len(groups)
    if many < 2 or whole <= many:
        return None
    means = np.array([np.mean(group) for group in groups])
    middle = float(counts @ means) / whole
    inside = sum(float(np.sum((np.asarray(group) - np.mean(group)) ** 2)) for group in groups)
    inside /= whole - many
    among = float(counts @ (means - middle) ** 2) / (many - 1)
    size = (whole - float(counts @ counts) / whole) / (many - 1)
    effect = max(0.0, (among - inside) / size)
    return effect / (effect + inside) if effect else 0.0
