"""Failed runs of A and B: how many, and whether B fails more often by an exact test.

Survivors of a side that crashes say nothing about the crashes, so failures are a question of their
own. It asks only the tries in which exactly one side failed: if both fail equally often, each of
them is B by a coin.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from fleet.profiles.compare.sequential import Answer
from fleet.profiles.compare.verdict import CHANCE

_USED = 2 / 3  # of the chance that is left, at each look


@dataclass(frozen=True)
class Failures:
    """Failed runs of each side of one board. `answer` is fail if B fails more often for sure,
    undecided if B failed in more tries than A, else pass. `words`: B's most frequent problem.
    """

    a: int
    a_runs: int
    b: int
    b_runs: int
    answer: Answer
    words: str = ""

    @property
    def text(self) -> str:
        """`B failed 7 of 15 runs, A 0 of 15: it exited with status 1`."""
        why = f" ({self.words})" if self.words else ""
        return f"B failed {self.b} of {self.b_runs} runs, A {self.a} of {self.a_runs}{why}"


def failures(tries: Sequence[tuple[str | None, str | None]], boards: int) -> Failures:
    """Count and judge the tries of a board in their order.

    A try holds the problem of A's run and of B's: "" for a run that counts, None for no run.
    `boards` share the chance of a wrong answer.
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
    """Return the share of failing runs at which none of `runs` fails in 5 of 100 cases: the upper
    end of the exact one-sided 95 % interval.
    """
    return float(1 - 0.05 ** (1 / runs))


def more(only_b: Sequence[bool], boards: int) -> bool:
    """Return True if B fails more often, by binomial tests after 5, 10, 20, ... tries in which
    exactly one side failed (10, 20, ... for 20 boards). True stands for a failure of B.

    All looks together are wrong in at most CHANCE of the tables of so many boards.
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
    """Return the chance of `least` heads or more in so many throws of a coin."""
    return float(sum(math.comb(count, heads) for heads in range(least, count + 1)) / 2**count)
