"""`fleet`: the command tree, and the one place where errors become exit codes."""

from __future__ import annotations

import builtins
import functools
import gc
import importlib
import sys
from typing import Annotated, Any

import typer

from fleet.cli import hints, output, project
from fleet.model.errors import FleetError
from fleet.model.home import ask_for_runs
from fleet.model.version import VERSION

# One module a group: a command is its function of that name, a group its `app`. Only the module
# of the command that was typed is imported: the whole tree takes half a second.
MODULES = {
    "demo": ("demo",),
    "init": ("init",),
    "inventory": ("inventory", "schema"),
    "facts": ("facts",),
    "runtime": ("runtime",),
    "bundle": ("bundle",),
    "deploy": ("plan", "deploy"),
    "resume": ("resume",),
    "push": ("push",),
    "execute": ("exec",),
    "shell": ("shell",),
    "get": ("get",),
    "logs": ("logs",),
    "doctor": ("doctor",),
    "selftest": ("selftest",),
    "status": ("status", "rollback"),
    "fsck": ("fsck",),
    "provision": ("provision", "undo"),
    "lockfile": ("lock-file",),
    "run": ("run",),
    "serve": ("serve",),
    "ab": ("ab",),
    "bench": ("bench",),
    "runners": ("runners",),
    "profiles": ("profiles",),
    "trust": ("trust",),
    "adb": ("adb",),
    "reserve": ("reserve", "unreserve", "who", "lock", "unlock"),
    "lab": ("lab",),
}

PANELS = {
    "Prepare": (
        "demo", "init", "inventory", "trust", "runtime", "bundle", "runners", "schema", "adb",
        "lab",
    ),
    "Look": (
        "facts", "plan", "lock-file", "status", "fsck", "doctor", "selftest", "exec", "shell",
        "get", "logs",
    ),
    "Change devices": ("deploy", "resume", "push", "rollback", "provision", "undo"),
    "Run and measure": ("run", "ab", "serve", "bench", "profiles"),
    "Share devices": ("who", "reserve", "unreserve"),
}  # fmt: skip
OLD_WORDS = {"lock": "reserve", "unlock": "unreserve"}  # they go with the next version


def _usage(argument: typer.core.TyperArgument, context: object) -> list[str]:  # noqa: ARG001
    """`PLAYBOOK`, `[HOST]...`: typer 0.29 writes `{playbook}`, which nobody would type."""
    name = argument.metavar or str(argument.name).upper()
    if not argument.required and not name.startswith("["):
        name = f"[{name}]"
    return [name + "..." * (argument.nargs != 1 and not name.endswith("..."))]


typer.core.TyperArgument.get_usage_pieces = _usage  # type: ignore[method-assign,assignment]


class CommandTree(typer.core.TyperGroup):
    """The commands in the order of their panels, not of the modules that bring them."""

    def list_commands(self, ctx: object) -> list[str]:  # noqa: ARG002
        """Names, as the help shows them."""
        return [name for names in PANELS.values() for name in names if name in self.commands]


def build(word: str = "") -> typer.Typer:
    """The command tree: what `word` needs, all of it where that is no command."""
    wanted = [name for name, commands in MODULES.items() if word in commands]
    panels = {name: panel for panel, names in PANELS.items() for name in names}
    tree = _root()
    for name in wanted or (() if word == "--version" else MODULES):
        module = importlib.import_module(f"fleet.cli.{name}")
        for command in MODULES[name]:
            new = OLD_WORDS.get(command, command)
            python = f"{new}_" if new in vars(builtins) else new.replace("-", "_")
            function = getattr(module, python, None)
            if command != new:
                tree.command(command, hidden=True)(_renamed(function, command, new))
            elif callable(function):
                tree.command(command, rich_help_panel=panels[command])(function)
            else:
                tree.add_typer(module.app, name=command, rich_help_panel=panels[command])
    return tree


def _renamed(function: Any, old: str, new: str) -> Any:  # noqa: ANN401 - typer reads its signature
    """The command under its old word, which says so where people read."""

    @functools.wraps(function)
    def work(**values: object) -> None:
        if not values["as_json"]:
            output.note(f"`fleet {old}` is now `fleet {new}`; the next version drops the old name")
        function(**values)

    return work


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


hints.parse_with(
    {word: functools.partial(_parser, word) for words in MODULES.values() for word in words}
)


def _root() -> typer.Typer:
    tree = typer.Typer(
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


def main() -> None:
    """Run the command line; every FleetError becomes one message and its exit code."""
    ask_for_runs(project.runs)
    try:
        _built(sys.argv[1] if len(sys.argv) > 1 else "")()
    except FleetError as error:
        output.show_error(error)
        sys.exit(error.exit_code)
    except KeyboardInterrupt:
        sys.exit(130)
    finally:
        gc.freeze()  # looking for garbage in what ends anyway would take 15 ms
