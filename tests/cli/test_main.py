"""The command tree: one module for one command, all of them for help."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
import typer

from fleet.cli.main import MODULES, OLD_WORDS, PANELS, build, listed, renewed

MOST = 32  # words that a head can hold


def commands(word: str = "") -> set[str]:
    return set(typer.main.get_command(build(word)).commands)  # type: ignore[attr-defined]


def test_each_word_is_brought_by_its_module() -> None:
    assert commands() == set(MODULES)
    assert len(MODULES) <= MOST


@pytest.mark.parametrize("word", MODULES)
def test_a_command_brings_itself_only(word: str) -> None:
    assert commands(word) == {word}


def test_the_help_lists_what_there_is_in_the_order_of_its_panels() -> None:
    for made in (build(), listed()):
        tree = typer.main.get_command(made)
        shown = tree.list_commands(typer.Context(tree))  # type: ignore[attr-defined]
        assert list(shown) == list(MODULES)
    assert next(iter(PANELS)) == "Every day"


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("lock evk-1 --for 1h", "reserve evk-1 --for 1h"),
        ("inventory check x.yaml", "config check x.yaml"),
        ("schema playbook", "config schema playbook"),
        ("bench --whole", "serve bench --whole"),
        ("deploy p.yaml --carrier ssh --whole", "deploy p.yaml --tune carrier=ssh --tune whole"),
        ("push --bandwidth=5MB/s -- --whole", "push --tune bandwidth=5MB/s -- --whole"),
        ("fsck --bandwidth 5MB/s", "fsck --bandwidth 5MB/s"),
        ("deploy p.yaml", "deploy p.yaml"),
    ],
)
def test_old_words_say_the_new_one_once(old: str, new: str) -> None:
    words, said = renewed(old.split())
    assert words == new.split()
    assert (said == []) is (old == new)
    assert renewed(words) == (words, [])


def test_every_new_word_is_a_command() -> None:
    for new in OLD_WORDS.values():
        first, *rest = new.split()
        command = typer.main.get_command(build(first)).commands[first]  # type: ignore[attr-defined]
        assert set(rest) <= set(getattr(command, "commands", ()))


def test_the_help_of_deploy_fits() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "fleet", "deploy", "--help"], capture_output=True, text=True,
        check=True, env={**os.environ, "COLUMNS": "80"},
    )  # fmt: skip
    lines = done.stdout.splitlines()
    assert len(lines) <= 100
    assert max(map(len, lines)) <= 80


@pytest.mark.parametrize(
    ("command", "usage"),
    [("deploy", "[PLAYBOOK]"), ("push", "SOURCES...")],
)
def test_arguments_are_shown_as_they_are_called(command: str, usage: str) -> None:
    """typer 0.29 writes `{playbook}` even where an argument has a name of its own."""
    tree = typer.main.get_command(build())
    found = tree.get_command(typer.Context(tree), command)  # type: ignore[attr-defined]
    assert " ".join(found.collect_usage_pieces(typer.Context(found))) == f"[OPTIONS] {usage}"


def test_what_is_no_command_brings_all() -> None:
    assert commands("--help") == commands("pusch") == commands()
