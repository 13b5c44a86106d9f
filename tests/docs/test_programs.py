"""The table of docs/platforms.md is what `make test-programs` saw, and names every runner."""

from __future__ import annotations

from fleet.runners.registry import OWN
from tests.programs import seen


def test_the_page_has_the_table_of_what_was_seen() -> None:
    text = seen.PAGE.read_text("utf-8")
    assert text == seen.page(text), "python -m tests.programs.seen writes it"


def test_each_runner_with_a_program_of_others_ran_or_says_why_not() -> None:
    assert {row["runner"] for row in seen.all_seen()} == set(OWN) - {"exec"}
    for row in seen.all_seen():
        assert bool(row["never"]) != bool(row["when"] and row["on"] and row["showed"]), row


def test_every_pair_of_a_program_and_a_qairt_was_seen() -> None:
    pairs = seen.everything()["pairs"]
    words = " ".join(pairs)
    names = ("litert", "t2t-run", "genai", "libGenie", "executor", "net-run", "qnn of", "llama.cpp")
    assert [name for name in names if name not in words] == []
    assert all(sorted(found) == sorted(seen.VERSIONS) for found in pairs.values()), pairs


def test_the_times_of_each_runner_were_held_against_another_clock() -> None:
    clocks = seen.everything()["clocks"]
    assert {row["runner"] for row in clocks} >= {"executorch", "genai", "llama.cpp", "litert"}
    assert max(row["apart"] for row in clocks) <= 0.02
