"""Without rich a text with tags looks as with it; rich is the oracle."""

from __future__ import annotations

import random

import pytest
from rich.markup import escape as quoted
from rich.markup import render

from fleet.cli.output import escape, plain


@pytest.mark.parametrize("seed", range(20))
def test_it_is_what_rich_shows(seed: int) -> None:
    draw = random.Random(seed)
    for _ in range(200):
        words = "".join(draw.choices(["\\", "[", "]", "b", "/", "#", " ", ":x:", "[b]"], k=12))
        assert escape(words) == quoted(words)
        text = f"[bold]{escape(words)}[/] end"
        assert plain(text) == render(text, emoji=False).plain


def test_a_word_between_colons_stays() -> None:
    assert plain(f"[dim]{escape('error :warning: [ERROR]')}[/]") == "error :warning: [ERROR]"
