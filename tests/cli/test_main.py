"""The command tree: one module for one command, all of them for help."""

from __future__ import annotations

import pytest
import typer

from fleet.cli.main import MODULES, OLD_WORDS, PANELS, build


def commands(word: str = "") -> set[str]:
    return set(typer.main.get_command(build(word)).commands)  # type: ignore[attr-defined]


def test_each_module_has_the_commands_that_it_says() -> None:
    assert commands() == {name for names in MODULES.values() for name in names}


@pytest.mark.parametrize("module", MODULES)
def test_a_command_brings_its_module_only(module: str) -> None:
    for name in MODULES[module]:
        assert commands(name) == set(MODULES[module])


def test_each_command_has_its_place_in_the_help() -> None:
    shown = [name for names in PANELS.values() for name in names]
    assert sorted(shown) == sorted(commands() - set(OLD_WORDS))
    tree = typer.main.get_command(build())
    assert list(tree.list_commands(typer.Context(tree))) == shown  # type: ignore[attr-defined]


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
