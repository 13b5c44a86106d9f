"""The command tree: one module for one command, all of them for help."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
import typer

from fleet.cli.main import COMMANDS, MODULES, PANELS, build, listed, renewed
from fleet.cli.options import CONTINUE, LOCK, RARE, WAVES
from tests.docs.tree import commands as commands_of_the_tree

MOST = 26  # words that a head can hold


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
        ("fsck --bandwidth 5MB/s", "status --verify --bandwidth 5MB/s"),
        ("who evk-1", "reserve --list evk-1"),
        ("unreserve evk-1 --force", "reserve --end evk-1 --force"),
        ("provision p.yaml -l evk-1", "deploy --only system p.yaml -l evk-1"),
        ("resume last", "deploy --resume last"),
        ("resume -p 3 last --json", "deploy --resume last -p 3 --json"),
        ("resume --json --list", "deploy --runs --json"),
        ("resume --json", "deploy --json --resume"),
        ("adb list --server x:1", "config phones --server x:1"),
        ("adb connect --server x:1 y:2", "config phones --connect y:2 --server x:1"),
        ("adb pair y:2", "config phones --pair y:2"),
        ("lab inject lab002 no-node --dir d", "lab inject -l lab002 no-node --dir d"),
        ("lab heal --dir d lab002", "lab heal -l lab002 --dir d"),
        ("lab exec lab001 -- ls -l /dev", "lab exec -l lab001 -- ls -l /dev"),
        (
            "profiles export last --to x --format csv",
            "profiles export last --output x --format csv",
        ),
        ("profiles list --limit=0", "profiles list --newest 0"),
        ("profiles list -- --limit=0", "profiles list -- --limit=0"),
        ("profiles report last -o x.html", "profiles report last --output x.html"),
        ("bundle pull aihub:x -o net", "bundle pull aihub:x --output net"),
        ("profiles report last -o json", "profiles report last -o json"),
        ("lab inject no-node -l lab002", "lab inject no-node -l lab002"),
        ("lab exec -l lab001 -- lab002", "lab exec -l lab001 -- lab002"),
        ("lab exec -- ls", "lab exec -- ls"),
        ("status -l evk-1", "status -l evk-1"),
        ("deploy p.yaml", "deploy p.yaml"),
    ],
)
def test_old_words_say_the_new_one_once(old: str, new: str) -> None:
    words, said = renewed(old.split())
    assert words == new.split()
    assert (said == []) is (old == new)
    assert renewed(words) == (words, [])


def test_every_new_word_is_a_command() -> None:
    for new in COMMANDS.values():
        first, *rest = new.split()
        command = typer.main.get_command(build(first)).commands[first]  # type: ignore[attr-defined]
        if rest and rest[0] in getattr(command, "commands", ()):
            command = command.commands[rest.pop(0)]
        options = {name for param in command.params for name in param.opts}
        assert set(rest) <= {*options, "system"}, new


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
    """typer writes `{playbook}` even where an argument has a name of its own."""
    tree = typer.main.get_command(build())
    found = tree.get_command(typer.Context(tree), command)  # type: ignore[attr-defined]
    assert " ".join(found.collect_usage_pieces(typer.Context(found))) == f"[OPTIONS] {usage}"


def test_what_is_no_command_brings_all() -> None:
    assert commands("--help") == commands("pusch") == commands()


def test_devices_are_limited_and_first_only_where_nothing_else_can_stand_there() -> None:
    """The grammar of docs/commands.md."""
    for name, command in commands_of_the_tree():
        params = {param.name: param for param in command.params}
        given = [param for param in command.params if not param.opts[0].startswith("-")]
        devices = [param for param in given if param.name == "host"]
        if "inventory" in params and not name.startswith("config"):
            assert "-l" in params["limit"].opts, name
        if devices:
            assert given == devices, f"{name}: a device and something else"
        if "limit" in params:
            assert params["limit"].opts == ["--limit", "-l"], name


def test_o_is_the_format_everywhere_and_json_is_short_for_it() -> None:
    for name, command in commands_of_the_tree():
        params = command.get_params(typer.Context(command))
        short = [param for param in params if "-o" in param.opts]
        assert all(param.opts == ["--format", "-o"] for param in short), name
        assert len(short) == sum("--json" in param.opts for param in params), name


def test_the_help_of_deploy_shows_the_options_of_every_day_first() -> None:
    (deploy,) = (command for name, command in commands_of_the_tree() if name == "deploy")
    panels = dict.fromkeys(
        getattr(param, "rich_help_panel", None) or "Options" for param in deploy.params
    )
    assert list(panels) == ["Options", CONTINUE, WAVES, LOCK, RARE]
    every_day = [p.opts[0] for p in deploy.params if getattr(p, "rich_help_panel", None) is None]
    assert len(every_day) <= 12
    assert {"--inventory", "--limit", "--dry-run", "--run"} <= set(every_day)
