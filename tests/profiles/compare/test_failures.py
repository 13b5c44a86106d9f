"""Failed runs of A and B: counted, and judged by an exact test."""

from __future__ import annotations

import pytest

from fleet.profiles.compare.sequential import Answer, failures, more
from fleet.profiles.compare.verdict import CHANCE


def wrong(tries: int, boards: int) -> float:
    """How often `more` says True within so many throws of a coin: each path once, by its look."""
    alive: dict[tuple[bool, ...], float] = {(): 1.0}
    crossed = 0.0
    for _ in range(tries):
        nearer: dict[tuple[bool, ...], float] = {}
        for path, share in alive.items():
            for toss in (True, False):
                if more((*path, toss), boards):
                    crossed += share / 2
                else:
                    nearer[(*path, toss)] = share / 2
        alive = nearer
    return crossed


def test_looks_together_keep_the_chance() -> None:
    assert 0.03 < wrong(10, 1) <= CHANCE
    assert 0 < wrong(10, 4) <= CHANCE / 4


@pytest.mark.parametrize(("boards", "least"), [(1, 5), (4, 7), (20, 10)])
def test_so_many_failures_of_b_alone_decide(boards: int, least: int) -> None:
    assert more([True] * least, boards)
    assert not more([True] * (least - 1), boards)
    assert more([True] * 50, boards), "what was shown stays shown"
    assert not more([True, False] * 50, boards)


@pytest.mark.parametrize(
    ("tries", "answer", "counts"),
    [
        ([("", "")] * 8, Answer.PASS, (0, 8, 0, 8)),
        ([("", "")] * 8 + [("", "crash")], Answer.UNDECIDED, (0, 9, 1, 9)),
        ([("", "crash")] * 5, Answer.FAIL, (0, 5, 5, 5)),
        ([("crash", "")] * 9, Answer.PASS, (9, 9, 0, 9)),  # A fails: that is not B's loss
        ([("crash", "crash")] * 9, Answer.PASS, (9, 9, 9, 9)),
        ([(None, "crash")] * 5, Answer.FAIL, (0, 0, 5, 5)),  # B went first; A was not reached
        ([("", None)] * 9, Answer.PASS, (0, 9, 0, 0)),
    ],
)
def test_counts_and_answer(
    tries: list[tuple[str | None, str | None]], answer: Answer, counts: tuple[int, int, int, int]
) -> None:
    found = failures(tries, 1)
    assert (found.answer, (found.a, found.a_runs, found.b, found.b_runs)) == (answer, counts)


def test_the_text_names_the_most_frequent_problem_of_b() -> None:
    found = failures([("", "status 1"), ("", "no output"), ("gone", "status 1"), ("", "")], 1)
    assert found.text == "B failed 3 of 4 runs, A 1 of 4 (status 1)"
