"""How often an answer of this score was right, on logs that the patterns had not seen.

Fitted on first runs only (tests/triage/data/first_runs.jsonl): a score on logs from which the
patterns were written says nothing. Agreement told right from wrong first: two patterns that agree
were right in all but few. What was then said is held against how often that was right over all
first runs: an isotonic fit, its steps drawn as ramps, and never above what was seen.
"""

from __future__ import annotations

from bisect import bisect
from collections.abc import Sequence
from dataclasses import replace

from fleet.model.diagnosis import Ranked

_ALONE = ((0.0, 0.0), (0.3, 0.45), (0.6, 0.68), (0.8, 0.73), (1.0, 0.76))
_AGREED = ((0.0, 0.0), (0.3, 0.45), (0.6, 0.72), (0.8, 0.84), (0.92, 0.92), (1.0, 0.95))
# Isotonic over 762 answers, drawn as ramps. Up to 0.73 said, the shares right were 0.48 to 0.70;
# from 0.7535 on 0.91, whether one pattern spoke or two; of the 95 between (one pattern, one line)
# 0.85, and they stay below 0.8, from where on nothing need be asked.
_OBSERVED = (
    *((0.0, 0.0), (0.3, 0.27), (0.37, 0.48), (0.42, 0.57), (0.6, 0.59), (0.7, 0.62)),
    *((0.725, 0.69), (0.7355, 0.735), (0.7465, 0.77), (0.751, 0.79), (0.7535, 0.9)),
    *((0.76, 0.905), (0.84, 0.91), (1.0, 0.92)),
)


def calibrated(ranked: tuple[Ranked, ...]) -> tuple[Ranked, ...]:
    """With the share of right ones as the confidence; together they are not above 1."""
    left = 1.0
    found = []
    for cause in ranked:
        points = _AGREED if cause.agreeing > 1 else _ALONE
        share = min(observed(_between(points, cause.confidence)), left)
        left -= share
        found.append(replace(cause, confidence=share))
    return tuple(found)


def observed(share: float) -> float:
    """What was right of the answers of first runs that said so much."""
    return _between(_OBSERVED, share)


def scored(share: float) -> float:
    """The score for which `observed` says so much: that is kept, so that a later fit can use it."""
    return _between([(said, score) for score, said in _OBSERVED], share)


def _between(points: Sequence[tuple[float, float]], score: float) -> float:
    """On the line between the points beside it."""
    after = min(max(bisect(points, (score, 1.0)), 1), len(points) - 1)
    (left, low), (right, high) = points[after - 1], points[after]
    return low + (high - low) * (score - left) / (right - left)
