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


def questions(found: Sequence[float], chance: float) -> list[int]:
    """Among how many questions Holm judges each: it is shown where p is `chance` over that.

    An interval of the level 1 - chance / questions says the same as the corrected p.
    """
    order = sorted(range(len(found)), key=lambda n: found[n])
    among, left = [0] * len(found), len(found)
    for n in order:
        among[n] = left
        if found[n] * left <= chance:
            left -= 1
    return among
