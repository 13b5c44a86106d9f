"""The design of `fleet ab`: alternating pairs, looks at fixed counts, three answers.

The unit is a pair: one run of A and one run of B, directly after each other. In each block of eight
pairs, half begin with A and half with B, so that drift affects both sides. The halves are drawn at
random, so that no periodic disturbance fits the order.

Signed ranks on logarithms assume no shape of the noise. They are bounded, so that a few extreme
pairs do not widen the interval.

The chance of a wrong interval is split over all looks and over the family (questions times boards),
so the intervals of all answers hold together. At the last look, boards with an answer pass their
part on to the others (Holm): docs/compare.md.
"""

from __future__ import annotations

import math
import random
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

import numpy as np
from numpy.typing import ArrayLike

from fleet.profiles.compare.verdict import CHANCE
from fleet.profiles.stats import ranks
from fleet.profiles.stats.trend import Floats

LOOKS = (8, 14, 24, 40)  # pairs
SHARES = (0.4, 0.2, 0.2, 0.2)  # of the chance, for each look; at 8 pairs ranks are coarse
DECIMALS = (0.001, 0.01, 0.1, 1.0, 10.0, 100.0)  # steps to which programs round their output
SLOW_LOOKS = (6, 10, 16, 24)  # sustained pairs
SLOW_SHARES = (0.65, 0.15, 0.1, 0.1)  # 6 pairs need 3.1 of the 4.9 %
NEAR = 1e-6  # of a step, or of a value
LIMIT = -0.03  # if no gate names a limit
BOARDS_CHANCE = 0.04  # of CHANCE; the summary line over several boards has the rest


@dataclass(frozen=True)
class Design:
    """The looks of a comparison, and the chance of a wrong interval that it may use.

    `shares` are the shares of `chance` for each look. `line` is the chance of the summary line over
    several boards.
    """

    looks: tuple[int, ...] = LOOKS
    shares: tuple[float, ...] = SHARES
    chance: float = CHANCE
    line: float = 0.0


USUAL = Design()


def design_of(boards: int, *, sustained: bool = False) -> Design:
    """Return the design for this number of boards.

    Several boards use 4 of the 4.9 %, so eight pairs can still answer two questions. With
    `sustained`, a pair takes minutes; six pairs answer one question, and the first look is after
    six pairs.
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
    """B compared with A after `pairs` pairs: an answer, and the change as a share of A.

    `low` and `high` hold for the whole family at all looks together; they are None if so few pairs
    have no interval of that level. `step` is the rounding step of the values if it is too coarse
    for their noise; the interval then covers all values that they can have had before rounding.
    """

    pairs: int
    answer: Answer
    low: float | None
    mid: float | None
    high: float | None
    step: float = 0.0


def open_size(decision: Decision, limit: float) -> bool:
    """Return True if a loss is certain but its size is not: the interval contains the limit."""
    if decision.answer is not Answer.FAIL or decision.low is None or decision.high is None:
        return False
    return decision.high >= limit if limit < 0 else decision.low <= limit


def drawn(seed: str, design: Design = USUAL) -> str:
    """Return the side with which each pair begins, as a text of `A` and `B`.

    Of each eight pairs (as many as the first look has), a randomly drawn half begins with A. With a
    fixed order (ABBA), a disturbance with a period of 4 or 8 runs would affect one side only. A
    coin for each two pairs leaves 16 orders of the first look. Heat that locked to the runs then
    made 3.4 % of equal boards worse; with the 4,900 orders of two halves it was 0.9 %
    (docs/compare.md).
    """
    draw = random.Random(seed)  # noqa: S311 - no secret
    first, last = design.looks[0], design.looks[-1]
    blocks = ("".join(draw.sample("AB" * (first // 2), first)) for _ in range(last // first))
    return "".join(blocks)


def decide(
    values: Floats, limit: float, family: int, left: int = 0, design: Design = USUAL
) -> list[Decision]:
    """Return the answer of each board at a look.

    `values` has the shape (boards, pairs, 2) for A and B; all values are above 0. `limit` is the
    share of A beyond which B is worse: lower if `limit` is below 0 (a rate), higher otherwise (a
    time).

    The answer *fail* means that the interval is on the worse side of 0 and its middle is beyond the
    limit. The answer *pass* means that the whole interval keeps the limit. `family` is the number
    of questions that are asked together; `left` of them share the chance, all of them if `left` is
    0.
    """
    count = values.shape[1]
    level = 1 - design.chance * _share(count, family, design) / (left or family)
    return _decide(values, limit, level, count)


def _decide(values: Floats, limit: float, level: float, count: int) -> list[Decision]:
    """Return the answers at this level; `count` is the number of measured pairs of each board."""
    step = _coarse(values)
    half, (a, b) = step[:, None] / 2, np.moveaxis(values, 2, 0)
    bounds = ranks.centres(np.log(b / a), level)
    if bounds is None:
        mids = np.expm1(np.median(np.log(b / a), axis=1))
        return [Decision(count, Answer.UNDECIDED, None, float(mid), None) for mid in mids]
    if step.any():  # the values before rounding lie between these ends
        ends = (np.log((b + sign * half) / (a - sign * half)) for sign in (-1, 1))
        for place, gaps in zip((0, 2), ends, strict=True):
            widened = ranks.centres(gaps, level)
            assert widened is not None
            bounds[place] = widened[place]
    # Equal sides are rounded alike, so ranks can tell the direction.
    for board in np.flatnonzero(step):
        bounds[1, board] = mid = float(np.log(b[board] / a[board]).mean())
        if ranks.signed_rank(np.rint((b[board] - a[board]) / step[board])) <= 1 - level:
            place, nearer = (0, max) if mid > 0 else (2, min)
            bounds[place, board] = nearer(float(bounds[place, board]), math.copysign(NEAR, mid))
    return [
        Decision(count, _answer(low, mid, high, limit), low, mid, high, float(size))
        for (low, mid, high), size in zip(np.expm1(bounds).T.tolist(), step, strict=True)
    ]


def answers(values: Floats, limit: float, family: int, design: Design = USUAL) -> list[Decision]:
    """Return the decision of each board at the first look that decides, else at the last look."""
    decisions = [Decision(0, Answer.UNDECIDED, None, None, None)] * len(values)
    for look in design.looks:
        left = [n for n, board in enumerate(decisions) if board.answer is Answer.UNDECIDED]
        if not left or values.shape[1] < look:
            break
        at_look = decide(values[left, :look], limit, family, design=design)
        for n, decision in zip(left, at_look, strict=True):
            decisions[n] = decision
    return decisions


def useful_looks(family: int, design: Design) -> tuple[int, ...]:
    """Return the looks at which a family of this size can have an answer."""
    return tuple(look for look in design.looks if _share(look, family, design) > 0)


def over_boards(boards: ArrayLike, limit: float, gates: int, design: Design) -> Decision:
    """Return the single answer for all boards together, at the first look that decides.

    `boards` has the shape (boards, pairs, 2) for A and B; every board has the same number of pairs.
    The pairs of all boards are one sample, so the change is the middle over these boards. Boards
    that differ widen the interval.
    """
    values = np.asarray(boards, dtype=float)
    decision = Decision(0, Answer.UNDECIDED, None, None, None)
    for look, share in zip(design.looks, design.shares, strict=True):
        if values.shape[1] < look or decision.answer is not Answer.UNDECIDED:
            break
        level = 1 - design.line * share / gates
        (decision,) = _decide(values[:, :look].reshape(1, -1, 2), limit, level, look)
    return decision


def answer(
    pairs: Sequence[tuple[float, float]], limit: float, family: int, design: Design = USUAL
) -> Decision:
    """Return the decision for one board with these pairs of A and B."""
    return answers(np.array([pairs], dtype=float), limit, family, design)[0]


def settled(
    asked: Sequence[tuple[ArrayLike, float, Decision]], family: int, design: Design = USUAL
) -> list[Decision]:
    """Return the decisions of a family after Holm's correction.

    Decisions that *pass* leave their chance of being wrong about that to the others; so do those
    that *fail*. Each item of `asked` has the pairs of a board, the limit and the decision.

    Only decisions that are undecided at the last look can change. If the new level puts an end of
    the interval beyond the limit (or 0), that end becomes the limit (or 0), so the intervals still
    hold together.
    """
    decisions = [decision for *_, decision in asked]
    while True:
        left = {word: family - sum(item.answer is word for item in decisions) for word in Answer}
        before = decisions
        decisions = [
            _settled(np.asarray(values), limit, decision, (family, left, design))
            for (values, limit, _), decision in zip(asked, before, strict=True)
        ]
        if decisions == before:
            return decisions


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
    """Return the part of the chance for the look at this number of pairs.

    A look at which a family of this size has no interval passes its part to the last look.
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
    """Return the step to which the values of each board are rounded; 0 if it does not hide their
    noise.

    The step hides the noise if a quarter of the pairs, and at least three, differ by the same
    number of steps.

    The step is the gap between neighbouring values. It is therefore found for any timer (100 ms)
    and for rates that are made of rounded times (26 tokens in 2.6 or 2.7 s). The gaps of such rates
    grow with the rate, and the largest gap counts. The step is never below the true step.
    """
    ordered = np.sort(values.reshape(len(values), -1), axis=1)
    gaps = np.diff(ordered, axis=1)
    gaps[gaps <= NEAR * ordered[:, 1:]] = np.inf
    least = gaps.min(axis=1)
    step = np.where(gaps <= 1.5 * least[:, None], gaps, 0).max(axis=1)
    for size in DECIMALS:  # all values are equal: only the digits show the step
        whole = abs(ordered[:, 0] / size - np.rint(ordered[:, 0] / size)) < NEAR
        step[np.isinf(least) & whole] = size
    step[np.isinf(step)] = 0
    alike = max(3, math.ceil(values.shape[1] / 4)) - 1
    moved = np.rint((values[..., 1] - values[..., 0]) / np.where(step, step, 1)[:, None])
    moved.sort(axis=1)
    same = (moved[:, alike:] == moved[:, : moved.shape[1] - alike]).any(axis=1)
    return np.where(same, step, 0.0)


_USED = 2 / 3  # the share of the remaining chance that each look uses


@dataclass(frozen=True)
class Failures:
    """The failed runs of each side of one board.

    The runs that survive say nothing about the crashes, so failures are judged separately.

    `answer` is fail if B certainly fails more often, undecided if B failed in more tries than A,
    and pass otherwise. `words` is the most frequent problem of B.
    """

    a: int
    a_runs: int
    b: int
    b_runs: int
    answer: Answer
    words: str = ""

    @property
    def text(self) -> str:
        """A line such as `B failed 7 of 15 runs, A 0 of 15: it exited with status 1`."""
        why = f" ({self.words})" if self.words else ""
        return f"B failed {self.b} of {self.b_runs} runs, A {self.a} of {self.a_runs}{why}"


def failures(tries: Sequence[tuple[str | None, str | None]], boards: int) -> Failures:
    """Count and judge the tries of a board, in their order.

    A try has the problem of A's run and that of B's run: "" for a run that counts, None for no run.
    The chance of a wrong answer is divided by `boards`.
    """
    a, b = ([both[n] for both in tries if both[n] is not None] for n in (0, 1))
    only_b = [bool(right) for left, right in tries if bool(left) != bool(right)]
    answer = Answer.PASS
    if more(only_b, boards):
        answer = Answer.FAIL
    elif sum(only_b) > len(only_b) - sum(only_b):
        answer = Answer.UNDECIDED
    words = Counter(filter(None, b)).most_common(1)
    return Failures(
        sum(map(bool, a)), len(a), sum(map(bool, b)), len(b), answer, words[0][0] if words else ""
    )


def unseen_share(runs: int) -> float:
    """Return the largest plausible share of failing runs if none of `runs` failed.

    With this share, no run fails in 5 of 100 cases: it is the upper end of the exact one-sided 95 %
    interval.
    """
    return float(1 - 0.05 ** (1 / runs))


def more(only_b: Sequence[bool], boards: int) -> bool:
    """Return True if B fails more often than A.

    If both sides fail equally often, the failing side of each try in which exactly one side failed
    is A or B with equal chance.

    The binomial tests are made after 5, 10, 20, ... tries in which exactly one side failed (10, 20,
    ... for 20 boards). True in `only_b` stands for a failure of B. All looks together are wrong in
    at most CHANCE of the tables with this number of boards.
    """
    left = CHANCE / boards
    look = math.ceil(-math.log2(left * _USED))
    while look <= len(only_b):
        part = left * _USED
        least = next(count for count in range(look + 2) if _tail(look, count) <= part)
        if sum(only_b[:look]) >= least:
            return True
        left -= _tail(look, least)
        look *= 2
    return False


def _tail(count: int, least: int) -> float:
    """Return the chance of at least `least` heads in `count` throws of a coin."""
    return float(sum(math.comb(count, heads) for heads in range(least, count + 1)) / 2**count)
