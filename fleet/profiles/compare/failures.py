"""The failed runs of A and B, and an exact test of whether B fails more often.

The runs that survive say nothing about the crashes, so failures are judged separately. The test
uses only the tries in which exactly one side failed. If both sides fail equally often, the failing
side of each such try is A or B with equal chance.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from fleet.profiles.compare.sequential import Answer
from fleet.profiles.compare.verdict import CHANCE

_USED = 2 / 3  # the share of the remaining chance that each look uses


@dataclass(frozen=True)
class Failures:
    """The failed runs of each side of one board.

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
