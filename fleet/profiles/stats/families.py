"""Many questions at once: the more are asked, the more of them chance answers."""

from __future__ import annotations

from collections.abc import Sequence


def holm(found: Sequence[float]) -> list[float]:
    """p of each, so corrected that *any* false alarm among all is as rare as for one (Holm).

    For what is decided by: a gate, a verdict.
    """
    order = sorted(range(len(found)), key=lambda n: found[n])
    corrected, worst = [1.0] * len(found), 0.0
    for place, n in enumerate(order):
        worst = max(worst, min(1.0, found[n] * (len(found) - place)))
        corrected[n] = worst
    return corrected


def benjamini_hochberg(found: Sequence[float]) -> list[float]:
    """p of each, so corrected that of all that are *shown* only so few are false.

    For what is looked through: a matrix. Finds more than Holm where much differs.
    """
    order = sorted(range(len(found)), key=lambda n: found[n], reverse=True)
    corrected, best = [1.0] * len(found), 1.0
    for place, n in enumerate(order):
        best = min(best, found[n] * len(found) / (len(found) - place))
        corrected[n] = best
    return corrected
