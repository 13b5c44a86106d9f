"""`fleet`: the command tree, and the one place where errors become exit codes."""

from __future__ import annotations

import gc
import importlib
import sys
from functools import partial
from typing import Annotated, Any

import typer

from fleet.cli import hints, output
from fleet.model.errors import FleetError
from fleet.model.version import VERSION

# One module a group, with its commands; each has `register(root)`. Only the module of the
# command that was typed is imported: the whole tree takes half a second.
MODULES = {
    "init": ("init",),
    "inventory": ("inventory", "schema"),
    "facts": ("facts",),
    "runtime": ("runtime",),
    "bundle": ("bundle",),
    "deploy": ("plan", "deploy"),
    "resume": ("resume",),
    "push": ("push",),
    "doctor": ("doctor",),
    "status": ("status", "rollback"),
    "provision": ("provision", "undo"),
    "lockfile": ("lock-file",),
    "run": ("run",),
    "serve": ("serve",),
    "bench": ("bench",),
    "runners": ("runners",),
    "profiles": ("profiles",),
    "trust": ("trust",),
    "adb": ("adb",),
    "lock": ("lock", "unlock", "who"),
    "lab": ("lab",),
}

PANELS = {
    "Prepare": (
        "init", "inventory", "trust", "runtime", "bundle", "runners", "schema", "adb", "lab",
    ),
    "Look": ("facts", "plan", "lock-file", "status", "doctor"),
    "Change devices": ("deploy", "resume", "push", "rollback", "provision", "undo"),
    "Run and measure": ("run", "serve", "bench", "profiles"),
    "Share devices": ("who", "lock", "unlock"),
}  # fmt: skip


class Tree(typer.core.TyperGroup):
    """The commands in the order of their panels, not of the modules that bring them."""

    def list_commands(self, ctx: object) -> list[str]:  # noqa: ARG002
        """Names, as the help shows them."""
        return [one for names in PANELS.values() for one in names if one in self.commands]


def build(word: str = "") -> typer.Typer:
    """The command tree: what `word` needs, all of it where that is no command."""
    found = [name for name, commands in MODULES.items() if word in commands]
    tree = _root()
    for name in found or (() if word == "--version" else MODULES):
        importlib.import_module(f"fleet.cli.{name}").register(tree)
    panels = {name: panel for panel, names in PANELS.items() for name in names}
    for command in tree.registered_commands:
        name = command.name or str(getattr(command.callback, "__name__", ""))
        command.rich_help_panel = panels[name]
    for group in tree.registered_groups:
        group.rich_help_panel = panels[group.name or ""]
    return tree


def _built(word: str) -> typer.Typer:
    """As `build`. Imports leave no garbage, and looking for it would take a tenth of the start."""
    gc.disable()
    try:
        return build(word)
    finally:
        gc.freeze()
        gc.enable()


def _parser(word: str) -> Any:  # noqa: ANN401 - typer brings its own click
    return typer.main.get_command(build(word))


hints.parse_with({word: partial(_parser, word) for words in MODULES.values() for word in words})


def _root() -> typer.Typer:
    tree = typer.Typer(
        name="fleet",
        cls=Tree,
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


def main() -> None:
    """Run the command line; every FleetError becomes one message and its exit code."""
    try:
        _built(sys.argv[1] if len(sys.argv) > 1 else "")()
    except FleetError as error:
        output.show_error(error)
        sys.exit(error.exit_code)
    except KeyboardInterrupt:
        sys.exit(130)
    finally:
        gc.freeze()  # looking for garbage in what ends anyway would take 15 ms
