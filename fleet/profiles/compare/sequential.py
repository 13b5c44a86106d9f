"""The design of `fleet ab`: pairs in turns, looks at fixed counts, three answers.

The unit is a pair: one run of A and one of B, one right after the other, whose order changes from
pair to pair (ABBA), so that what drifts moves both. Signed ranks on logarithms assume no shape of
the noise. The chance of a wrong interval is split over all looks and over the family, what is
asked times the boards, so the intervals of all answers hold together: docs/compare.md.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

import numpy as np

from fleet.profiles.compare.verdict import CHANCE
from fleet.profiles.stats import ranks

LOOKS = (8, 14, 24, 40)  # pairs
SHARES = (0.4, 0.2, 0.2, 0.2)  # of the chance, for each look: at 8 pairs ranks are coarse
LIMIT = -0.03  # where no gate names one


class Answer(StrEnum):
    """What can be said of one metric on one board."""

    WORSE = "worse"
    FINE = "fine"
    UNDECIDED = "undecided"


@dataclass(frozen=True)
class Decision:
    """B against A after so many pairs: an answer, and the change as a share of A.

    `low` and `high` are those of the whole family at all looks together; None where so few
    pairs have none of that level.
    """

    pairs: int
    answer: Answer
    low: float | None
    mid: float | None
    high: float | None


def first_of(pair: int) -> str:
    """Which side the pair (from 0) begins with: ABBA."""
    return "AB"[pair % 2]


def next_look(pairs: int) -> int | None:
    """At how many pairs the next look is; None after the last one."""
    return next((look for look in LOOKS if look > pairs), None)


def decide(pairs: Sequence[tuple[float, float]], limit: float, family: int) -> Decision:
    """The answer for values of A and B, all above 0, at a look.

    `limit`: the share of A beyond which B is worse: below it where it is below 0 (a rate), above
    it otherwise (a time). *Worse*: the interval on the worse side of 0 and the middle beyond the
    limit; *fine*: the whole interval keeps the limit. `family`: how much is asked at once.
    """
    gaps = np.array([math.log(b / a) for a, b in pairs], dtype=float)
    look = next((n for n, count in enumerate(LOOKS) if count >= len(gaps)), len(LOOKS) - 1)
    found = ranks.centre(gaps, 1 - CHANCE * SHARES[look] / family) if len(gaps) else None
    if found is None:
        mid = math.expm1(float(np.median(gaps))) if len(gaps) else None
        return Decision(len(gaps), Answer.UNDECIDED, None, mid, None)
    low, mid, high = (math.expm1(bound) for bound in found)
    worse_end, better_end = (low, high) if limit < 0 else (-high, -low)
    bound, middle = -abs(limit), mid if limit < 0 else -mid
    answer = Answer.UNDECIDED
    if better_end < 0 and middle < bound:
        answer = Answer.WORSE
    elif worse_end > bound:
        answer = Answer.FINE
    return Decision(len(gaps), answer, low, mid, high)


def answer(pairs: Sequence[tuple[float, float]], limit: float, family: int) -> Decision:
    """The decision at the first look that makes one, else at the last look that was reached."""
    found = decide((), limit, family)
    for look in LOOKS:
        if len(pairs) >= look and found.answer is Answer.UNDECIDED:
            found = decide(pairs[:look], limit, family)
    return found
