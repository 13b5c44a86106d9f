"""`fleet`: the command tree, and the one place where errors become exit codes."""

from __future__ import annotations

import builtins
import contextlib
import functools
import gc
import importlib
import sys
from collections.abc import Iterator
from typing import Annotated, Any

import typer

from fleet.cli import hints, oldwords, output, project
from fleet.cli.completion import table
from fleet.cli.options import App
from fleet.model.errors import FleetError
from fleet.model.home import ask_for_runs
from fleet.model.version import VERSION

# Each word with the module that brings it: a command is its function of that name, a group its
# `app`. Only the module of the word that was typed is imported: the whole tree takes half a second.
# At most 26 words: docs/commands.md has the grammar, tests/cli/test_main.py the number.
PANELS = {
    "Every day": {
        "plan": "deploy", "deploy": "deploy", "run": "run", "status": "status",
        "doctor": "doctor", "profiles": "profiles",
    },
    "On devices": {
        "exec": "execute", "shell": "shell", "get": "get", "push": "push", "logs": "logs",
        "facts": "facts",
    },
    "Share and go back": {"reserve": "reserve", "rollback": "status", "undo": "undo"},
    "Compare and serve": {"ab": "ab", "verify": "verify", "serve": "serve"},
    "Prepare": {
        "init": "init", "trust": "trust", "runtime": "runtime", "bundle": "bundle",
        "config": "", "lab": "lab", "demo": "demo", "selftest": "selftest",
    },
}  # fmt: skip
MODULES = {word: module for words in PANELS.values() for word, module in words.items()}
CONFIG = {  # the commands below `config`, each with its module and function
    "check": ("inventory", "check"),
    "list": ("inventory", "list_hosts"),
    "lock": ("lockfile", "lock_file"),
    "schema": ("inventory", "schema"),
    "runners": ("runners", "runners"),
    "trust": ("trusted", "trust"),
    "phones": ("phones", "phones"),
}
NO_RUN = {"-h", "--help", "--dry-run", "--resume", "--runs", "--only"}  # a deploy that begins none


class CommandTree(typer.core.TyperGroup):
    """The commands in the order of their panels, not of the modules that bring them."""

    def list_commands(self, ctx: object) -> list[str]:  # noqa: ARG002
        """Names, as the help shows them."""
        return [name for name in MODULES if name in self.commands]


def build(word: str = "", then: str = "") -> typer.Typer:
    """The command tree: what `word`, and `then` below it, needs; all where that is no command."""
    tree = _root()
    if word == "--version":
        return tree
    for panel, words in PANELS.items():
        for name in words.keys() & {word} if word in MODULES else words:
            found = _config(then) if name == "config" else _found(name)
            if isinstance(found, typer.Typer):
                tree.add_typer(found, name=name, rich_help_panel=panel)
            else:
                tree.command(name, rich_help_panel=panel)(found)
    return tree


def _config(then: str) -> typer.Typer:
    about = "Check and list inventories, write lock files, show schemas, list phones."
    group = App(no_args_is_help=True, help=about)
    for name in [then] if then in CONFIG else CONFIG:
        module, function = CONFIG[name]
        found = getattr(importlib.import_module(f"fleet.cli.{module}"), function)
        group.command(name)(found)
    return group


def _found(word: str) -> Any:  # noqa: ANN401 - a function whose signature typer reads, or a group
    module = importlib.import_module(f"fleet.cli.{MODULES[word]}")
    python = f"{word}_" if word in vars(builtins) else word.replace("-", "_")
    function = getattr(module, python, None)
    return module.app if function is None else function


def listed() -> typer.Typer:
    """The commands with what the help says of each, out of the table: nothing is imported."""
    tree, commands = _root(), table()["commands"]
    for panel, words in PANELS.items():
        for name in words:
            about = commands[name]["help"]
            tree.command(name, help=about, rich_help_panel=panel)(_nothing)
    return tree


def _nothing() -> None:
    """What stands in for a command that was not typed."""


def _parser(word: str) -> Any:  # noqa: ANN401 - typer brings its own click
    return typer.main.get_command(build(word))


hints.parse_with({word: functools.partial(_parser, word) for word in MODULES})


def _root() -> typer.Typer:
    tree = App(
        name="fleet",
        cls=CommandTree,
        help="Deploy, run and profile models on fleets of Qualcomm NPU devices.",
        no_args_is_help=True,
        rich_markup_mode="rich",
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    tree.callback()(root)
    return tree


def __getattr__(name: str) -> typer.Typer:
    if name == "app":
        return build()
    raise AttributeError(name)


def _version(value: bool) -> None:
    if value:
        typer.echo(f"fleet {VERSION}")
        raise typer.Exit


def root(
    version: Annotated[
        bool, typer.Option("--version", help="Show the version.", callback=_version, is_eager=True)
    ] = False,
) -> None:
    """Deploy, run and profile models on fleets of Qualcomm NPU devices."""


def _taken(text: str) -> None:
    if "--json" not in sys.argv and output.shape not in {"json", "yaml"}:
        output.note(text)


@contextlib.contextmanager
def _begun(words: list[str]) -> Iterator[None]:
    """Have a deploy leave a run even where it is killed while its modules are loaded."""
    options = {word.partition("=")[0] for word in words}
    if words[:1] != ["deploy"] or options & NO_RUN:
        yield
        return
    from fleet.engine.rollout import claim  # noqa: PLC0415 - for a deploy only

    claim.claim_early()
    try:
        yield
    except KeyboardInterrupt:
        raise
    except BaseException:
        claim.drop_early()
        raise
    claim.drop_early()


def main() -> None:
    """Run the command line; every FleetError becomes one message and its exit code."""
    ask_for_runs(project.runs)
    project.announce(_taken)
    sys.argv[1:], said = oldwords.renewed(sys.argv[1:])
    try:
        for text in () if "--json" in sys.argv else said:
            output.note(text)
        with _begun(sys.argv[1:]):
            word, then, *_ = (*sys.argv[1:3], "", "")
            tree = build(word, then) if word in MODULES or word == "--version" else listed()
            tree()
    except FleetError as error:
        output.show_error(error)
        sys.exit(error.exit_code)
    except KeyboardInterrupt:
        sys.exit(130)
    finally:
        gc.freeze()  # looking for garbage in what ends anyway would take 15 ms
