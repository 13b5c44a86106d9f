"""Corrections for many questions at once: with more questions, chance answers more of them."""

from __future__ import annotations

from collections.abc import Sequence


def holm(p_values: Sequence[float]) -> list[float]:
    """Return the corrected p of each question (Holm).

    After the correction, *any* false alarm among all questions is as rare as for one question. Use
    it for decisions: a gate, a verdict.
    """
    order = sorted(range(len(p_values)), key=lambda n: p_values[n])
    corrected, worst = [1.0] * len(p_values), 0.0
    for place, n in enumerate(order):
        worst = max(worst, min(1.0, p_values[n] * (len(p_values) - place)))
        corrected[n] = worst
    return corrected


def questions(p_values: Sequence[float], chance: float) -> list[int]:
    """Return the number of questions among which Holm judges each one.

    A change is shown if its p is at most `chance` divided by that number. An interval of the level
    1 - chance / questions gives the same answer as the corrected p.
    """
    order = sorted(range(len(p_values)), key=lambda n: p_values[n])
    among, left = [0] * len(p_values), len(p_values)
    for n in order:
        among[n] = left
        if p_values[n] * left <= chance:
            left -= 1
    return among
