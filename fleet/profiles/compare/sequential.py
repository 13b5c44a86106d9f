"""The design of `fleet ab`: pairs in turns, looks at fixed counts, three answers.

The unit is a pair: one run of A and one of B, one right after the other. Half of each eight pairs
begins with A and half with B, so that what drifts moves both, and the halves are drawn, so that no
period of a disturbance fits the order. Signed ranks on logarithms assume no shape of the noise;
they are bounded, so that few wild pairs do not widen the interval. The chance of a wrong interval
is split over all looks and over the family, what is asked times the boards, so the intervals of all
answers hold together; at the last look boards with an answer pass their part on (Holm):
docs/compare.md.
"""

from __future__ import annotations

import math
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

import numpy as np
from numpy.typing import ArrayLike

from fleet.profiles.compare.verdict import CHANCE
from fleet.profiles.stats import ranks
from fleet.profiles.stats.trend import Floats

LOOKS = (8, 14, 24, 40)  # pairs
SHARES = (0.4, 0.2, 0.2, 0.2)  # of the chance, for each look: at 8 pairs ranks are coarse
DECIMALS = (0.001, 0.01, 0.1, 1.0, 10.0, 100.0)  # to which programs round what they print
SLOW_LOOKS = (6, 10, 16, 24)  # sustained pairs
SLOW_SHARES = (0.65, 0.15, 0.1, 0.1)  # 6 pairs need 3.1 of the 4.9 %
NEAR = 1e-6  # of a step, or of a value
LIMIT = -0.03  # where no gate names one
BOARDS_CHANCE = 0.04  # of CHANCE, where a line over several boards has the rest


@dataclass(frozen=True)
class Design:
    """When a comparison looks, and which chance of a wrong interval it may use.

    `shares`: of `chance`, for each look. `line`: the chance of the line over several boards.
    """

    looks: tuple[int, ...] = LOOKS
    shares: tuple[float, ...] = SHARES
    chance: float = CHANCE
    line: float = 0.0


USUAL = Design()


def design_of(boards: int, *, sustained: bool = False) -> Design:
    """Return the design for so many boards.

    Several boards have 4 of the 4.9 %, so eight pairs still answer two questions. A sustained pair
    takes minutes: six of them answer one question, and the first look is there.
    """
    looks, shares = (SLOW_LOOKS, SLOW_SHARES) if sustained else (LOOKS, SHARES)
    mine = CHANCE if boards == 1 else BOARDS_CHANCE
    return Design(looks, shares, mine, CHANCE - mine)


class Answer(StrEnum):
    """The answer for one metric on one board: B keeps the limit, breaks it, or needs more runs."""

    FAIL = "fail"
    PASS = "pass"  # noqa: S105 - not a password
    UNDECIDED = "undecided"


@dataclass(frozen=True)
class Decision:
    """B against A after so many pairs: an answer, and the change as a share of A.

    `low` and `high` are those of the whole family at all looks together; None where so few
    pairs have none of that level. `step`: to which the values are rounded, where that is too
    coarse for their noise; the interval then is of all that they can have been.
    """

    pairs: int
    answer: Answer
    low: float | None
    mid: float | None
    high: float | None
    step: float = 0.0


def open_size(found: Decision, limit: float) -> bool:
    """Return True for a loss that is shown, of a size that is not: the interval holds the limit."""
    if found.answer is not Answer.FAIL or found.low is None or found.high is None:
        return False
    return found.high >= limit if limit < 0 else found.low <= limit


def drawn(seed: str, design: Design = USUAL) -> str:
    """Return which side each pair begins with: of each eight pairs (as many as the first look has)
    a drawn half begins with A.

    A fixed order (ABBA) would give a disturbance of period 4 or 8 runs to one side only. A coin for
    each two pairs leaves 16 orders of the first look; heat that locks to the runs then made 3.4 %
    of equal boards worse, 0.9 % with the 4,900 orders of two halves (docs/compare.md).
    """
    draw = random.Random(seed)  # noqa: S311 - no secret
    first, last = design.looks[0], design.looks[-1]
    blocks = ("".join(draw.sample("AB" * (first // 2), first)) for _ in range(last // first))
    return "".join(blocks)


def decide(
    values: Floats, limit: float, family: int, left: int = 0, design: Design = USUAL
) -> list[Decision]:
    """The answer of each board at a look. `values`: boards, pairs, A and B; all above 0.

    `limit`: the share of A beyond which B is worse: below it where it is below 0 (a rate), above
    it otherwise (a time). *Fail*: the interval on the worse side of 0 and the middle beyond the
    limit; *pass*: the whole interval keeps the limit. `family`: how much is asked at once, of
    which `left` share the chance, all where it is 0.
    """
    count = values.shape[1]
    level = 1 - design.chance * _share(count, family, design) / (left or family)
    return _decide(values, limit, level, count)


def _decide(values: Floats, limit: float, level: float, count: int) -> list[Decision]:
    """The answers at this level; `count`: how many pairs each board has measured."""
    step = _coarse(values)
    half, (a, b) = step[:, None] / 2, np.moveaxis(values, 2, 0)
    found = ranks.centres(np.log(b / a), level)
    if found is None:
        mids = np.expm1(np.median(np.log(b / a), axis=1))
        return [Decision(count, Answer.UNDECIDED, None, float(mid), None) for mid in mids]
    if step.any():  # what A and B were before they were rounded lies between these
        ends = (np.log((b + sign * half) / (a - sign * half)) for sign in (-1, 1))
        for place, gaps in zip((0, 2), ends, strict=True):
            widened = ranks.centres(gaps, level)
            assert widened is not None
            found[place] = widened[place]
    for board in np.flatnonzero(step):  # equal sides are rounded alike: that much ranks can tell
        found[1, board] = mid = float(np.log(b[board] / a[board]).mean())
        if ranks.signed_rank(np.rint((b[board] - a[board]) / step[board])) <= 1 - level:
            place, nearer = (0, max) if mid > 0 else (2, min)
            found[place, board] = nearer(float(found[place, board]), math.copysign(NEAR, mid))
    return [
        Decision(count, _answer(low, mid, high, limit), low, mid, high, float(size))
        for (low, mid, high), size in zip(np.expm1(found).T.tolist(), step, strict=True)
    ]


def answers(values: Floats, limit: float, family: int, design: Design = USUAL) -> list[Decision]:
    """The decision of each board at the first look that makes one, else at the last it reached."""
    found = [Decision(0, Answer.UNDECIDED, None, None, None)] * len(values)
    for look in design.looks:
        left = [n for n, board in enumerate(found) if board.answer is Answer.UNDECIDED]
        if not left or values.shape[1] < look:
            break
        at_look = decide(values[left, :look], limit, family, design=design)
        for n, decision in zip(left, at_look, strict=True):
            found[n] = decision
    return found


def useful_looks(family: int, design: Design) -> tuple[int, ...]:
    """Return the looks at which so large a family can have an answer."""
    return tuple(look for look in design.looks if _share(look, family, design) > 0)


def over_boards(boards: ArrayLike, limit: float, gates: int, design: Design) -> Decision:
    """Return the one answer for all boards together, at the first look that makes one.

    `boards`: boards, pairs, A and B; every board has as many pairs. All pairs of all boards are one
    sample, so the change is the middle of these boards, and boards that differ widen the interval.
    """
    values = np.asarray(boards, dtype=float)
    found = Decision(0, Answer.UNDECIDED, None, None, None)
    for look, share in zip(design.looks, design.shares, strict=True):
        if values.shape[1] < look or found.answer is not Answer.UNDECIDED:
            break
        level = 1 - design.line * share / gates
        (found,) = _decide(values[:, :look].reshape(1, -1, 2), limit, level, look)
    return found


def answer(
    pairs: Sequence[tuple[float, float]], limit: float, family: int, design: Design = USUAL
) -> Decision:
    """That of one board, whose pairs of A and B these are."""
    return answers(np.array([pairs], dtype=float), limit, family, design)[0]


def settled(
    asked: Sequence[tuple[ArrayLike, float, Decision]], family: int, design: Design = USUAL
) -> list[Decision]:
    """The decisions of a family, by Holm's way: those that *pass* leave their chance to be wrong
    about that to the others, those that *fail* too. `asked`: the pairs of a board, its limit and
    its decision.

    Only what is undecided at the last look changes. An end that its own level puts beyond the limit
    (or 0) is then that limit, so the intervals go on to hold together.
    """
    found = [decision for *_, decision in asked]
    while True:
        left = {word: family - sum(item.answer is word for item in found) for word in Answer}
        before = found
        found = [
            _settled(np.asarray(values), limit, decision, (family, left, design))
            for (values, limit, _), decision in zip(asked, before, strict=True)
        ]
        if found == before:
            return found


def _settled(
    values: Floats,
    limit: float,
    decision: Decision,
    shared: tuple[int, Mapping[Answer, int], Design],
) -> Decision:
    family, left, design = shared
    low, high = decision.low, decision.high
    if decision.answer is not Answer.UNDECIDED or decision.pairs < design.looks[-1]:
        return decision
    assert low is not None
    assert high is not None
    for word, end in ((Answer.PASS, limit), (Answer.FAIL, math.copysign(NEAR, limit))):
        (again,) = decide(values[None, : design.looks[-1]], limit, family, left[word], design)
        if again.answer is word:
            if (word is Answer.PASS) == (limit < 0):
                low = max(low, end)
            else:
                high = min(high, end)
            return replace(decision, answer=word, low=low, high=high)
    return decision


def _answer(low: float, mid: float, high: float, limit: float) -> Answer:
    if limit > 0:
        low, mid, high, limit = -high, -mid, -low, -limit
    if high < 0 and mid < limit:
        return Answer.FAIL
    return Answer.PASS if low > limit else Answer.UNDECIDED


def _share(pairs: int, family: int, design: Design) -> float:
    """The part of the chance for the look at so many pairs.

    A look at which so large a family has no interval leaves its part to the last one.
    """
    parts = [
        part if ranks.least_signed_rank(look) <= design.chance * part / family else 0.0
        for look, part in zip(design.looks, design.shares, strict=True)
    ]
    parts[-1] += 1 - sum(parts)
    return next(
        (part for look, part in zip(design.looks, parts, strict=True) if look >= pairs), 0.0
    )


def _coarse(values: Floats) -> Floats:
    """Return the step to which the values of a board are rounded, where it hides their noise; else
    0. It does where a quarter of the pairs, and three of them, differ by the same number of steps.

    The step is the gap between neighbours among the values, so it is found for any timer (100 ms)
    and for rates that are made of rounded times (26 tokens in 2.6 or 2.7 s): gaps then grow with
    the rate, and the largest of them counts. It is never below the true step.
    """
    ordered = np.sort(values.reshape(len(values), -1), axis=1)
    gaps = np.diff(ordered, axis=1)
    gaps[gaps <= NEAR * ordered[:, 1:]] = np.inf
    least = gaps.min(axis=1)
    step = np.where(gaps <= 1.5 * least[:, None], gaps, 0).max(axis=1)
    for size in DECIMALS:  # all values are one: only its digits tell
        whole = abs(ordered[:, 0] / size - np.rint(ordered[:, 0] / size)) < NEAR
        step[np.isinf(least) & whole] = size
    step[np.isinf(step)] = 0
    alike = max(3, math.ceil(values.shape[1] / 4)) - 1
    moved = np.rint((values[..., 1] - values[..., 0]) / np.where(step, step, 1)[:, None])
    moved.sort(axis=1)
    same = (moved[:, alike:] == moved[:, : moved.shape[1] - alike]).any(axis=1)
    return np.where(same, step, 0.0)
