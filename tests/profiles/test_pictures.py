"""Pictures of letters: exact, in ASCII too, and no wider than the terminal."""

from __future__ import annotations

import pytest

from fleet.profiles.pictures import Bar, bars, known, sparkline


def test_each_value_is_a_letter_from_lowest_to_highest() -> None:
    assert sparkline([1, 2, 3, 4, 5, 6, 7, 8]) == "▁▂▃▄▅▆▇█"
    assert sparkline([0, 5], plain=True) == "_#"


def test_gaps_alike_and_nothing() -> None:
    assert sparkline([1, None, float("nan"), 2]) == "▁  █"
    assert len(set(sparkline([7, 7, 7]))) == 1
    assert sparkline([None]) == sparkline([]) == ""


def test_more_values_than_columns_are_pooled() -> None:
    drawn = sparkline([0] * 50 + [10] * 50, width=10)
    assert drawn == "▁▁▁▁▁█████"


def test_bars_are_as_long_as_their_numbers() -> None:
    lines = bars([Bar("a", 10), Bar("bb", 5)], width=40, plain=True)
    ones = [line.count("#") for line in lines]
    assert ones[0] == pytest.approx(2 * ones[1], abs=1)
    assert lines[0].startswith("a   10  #")


def test_the_interval_is_a_whisker() -> None:
    (line,) = bars([Bar("a", 10, 5, 10)], width=40, plain=True)
    assert line.count("|") == 2
    assert line.endswith("|")
    drawn = line.removeprefix("a  10  ")
    assert len(drawn) == 40 - len("a  10  ") - 0
    assert drawn.index("|") + 1 == pytest.approx(len(drawn) / 2, abs=1)
    assert set(drawn[drawn.index("|") + 1 : -1]) == {"-"}


@pytest.mark.parametrize("width", [1, 12, 29, 30, 40, 200])
@pytest.mark.parametrize("plain", [True, False])
def test_never_wider_than_the_terminal(width: int, plain: bool) -> None:
    found = [Bar("a-very-long-name-of-a-board" * 3, 10.123, 9, 11), Bar("b", 3)]
    for line in bars(found, width, plain=plain):
        assert len(line) <= max(width, 20)
        assert line.isascii() or not plain
    assert len(sparkline(list(range(500)), width)) == width


def test_negative_numbers_have_no_bar() -> None:
    assert bars([Bar("a", -1)], 80, plain=True) == ["a  -1"]


def test_what_a_stream_can_show() -> None:
    assert known("utf-8")
    assert not known("ascii")
    assert not known("latin-1")
    assert not known(None)
    assert not known("no-such")
