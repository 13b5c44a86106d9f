"""`fleet`: the command tree, and the only place that converts errors to exit codes."""

from __future__ import annotations

import builtins
import contextlib
import functools
import gc
import importlib
import sys
from collections.abc import Iterator, Sequence
from typing import Annotated, Any

import typer

from fleet.cli import hints, output, project
from fleet.cli.completion import table
from fleet.cli.options import App
from fleet.model.errors import CancelledError, FleetError
from fleet.model.home import ask_for_runs
from fleet.model.version import VERSION

# The words of 0.3 and their replacements, which the next version drops.

COMMANDS = {
    "unreserve": "reserve --end",
    "who": "reserve --list",
    "provision": "deploy --only system",
    "fsck": "status --verify",
    "resume --list": "deploy --runs",
    "resume": "deploy --resume",
    "adb list": "config phones",
    "adb connect": "config phones --connect",
    "adb pair": "config phones --pair",
    "adb": "config phones",
}
BEHIND = ("--resume", "--connect", "--pair")  # takes the old positional as value
BOARDS = {"inject": 2, "heal": 1, "exec": 1}  # old positionals, the first one a board
RENAMED = {
    "profiles export": {"--to": "--output"},
    "profiles list": {"--limit": "--newest"},
    "profiles report": {"-o": "--output"},
    "bundle pull": {"-o": "--output"},
    "bundle wrap-ep": {"-o": "--output"},
}
FORMATS = {"wide", "json", "yaml", "name"}  # `-o` with one of these is the format
VALUED = {
    "-i", "--inventory", "-l", "--limit", "-p", "--parallel", "-o", "--format", "--server", "--dir",
}  # fmt: skip


def renewed(words: list[str]) -> tuple[list[str], list[str]]:
    """Return a command line with the new words, and a remark for each old word."""
    pairs: list[tuple[str, str]] = []
    words = _command(words, pairs)
    words = _board(words, pairs)
    words = _options(words, pairs)
    return words, [
        f"`{old}` is now `{new}`; the next version drops the old name"
        for old, new in dict.fromkeys(pairs)
    ]


def _command(words: list[str], pairs: list[tuple[str, str]]) -> list[str]:
    """Return the words with an old command replaced. `resume --list` may have other words in
    between.
    """
    if words[:1] == ["resume"] and "--list" in words:
        words = ["resume", "--list", *(word for word in words[1:] if word != "--list")]
    for old, new in COMMANDS.items():
        first, rest = words[: len(old.split())], words[len(old.split()) :]
        if first == old.split():
            pairs.append((f"fleet {old}", f"fleet {new}"))
            if new.endswith(BEHIND) and (place := _positional(rest)) is not None:
                rest = [rest[place], *rest[:place], *rest[place + 1 :]]
            elif new.endswith(BEHIND):  # without its value; the parser reports that
                return [*new.split()[:-1], *rest, new.split()[-1]]
            return [*new.split(), *rest]
    return words


def _board(words: list[str], pairs: list[tuple[str, str]]) -> list[str]:
    """Return the words with the first board as an option: `lab exec lab001 -- ls`."""
    verb, rest = " ".join(words[1:2]), words[2:]
    options = rest[: rest.index("--")] if "--" in rest else rest
    place = _positional(rest)
    if words[:1] != ["lab"] or verb not in BOARDS or place is None:
        return words
    if any(word.startswith(("-l", "--limit")) for word in options):
        return words
    others = [*rest[:place], *rest[place + 1 :]]
    if BOARDS[verb] > 1 and _positional(others) is None:
        return words
    pairs.append((f"fleet lab {verb} BOARD", f"fleet lab {verb} -l BOARD"))
    return ["lab", verb, "-l", rest[place], *others]


def _positional(words: Sequence[str]) -> int | None:
    """Return the index of the first word that is neither an option nor a value of one; None if none
    is.
    """
    skipped = False
    for place, word in enumerate(words):
        if word == "--":
            return None
        if skipped or word.startswith("-"):
            skipped = not skipped and word in VALUED
            continue
        return place
    return None


def _options(words: list[str], pairs: list[tuple[str, str]]) -> list[str]:
    """Return the words with old options replaced, up to `--`."""
    names = RENAMED.get(" ".join(words[:2]), {})
    new: list[str] = []
    rest = iter(words)
    for word in rest:
        name, equals, value = word.partition("=")
        if word == "--":
            new += [word, *rest]
        elif name not in names:
            new.append(word)
        else:
            value = value if equals else next(rest, "")
            kept = name == "-o" and value in FORMATS
            pairs += [] if kept else [(name, names[name])]
            new += [name if kept else names[name], value]
    return new


# Each word with its module: a command is the function with that name, a group is the module's
# `app`. Only the module of the typed word is imported: the whole tree takes half a second.
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
    "trust": ("inventory", "trust"),
    "phones": ("phones", "phones"),
    "session": ("session", "session"),
}
NO_RUN = {"-h", "--help", "--dry-run", "--resume", "--runs", "--only"}  # no run begins


class CommandTree(typer.core.TyperGroup):
    """The command group, which lists commands in the order of the panels, not of the modules."""

    def list_commands(self, ctx: object) -> list[str]:  # noqa: ARG002
        """Return the names in the order of the help."""
        return [name for name in MODULES if name in self.commands]


def build(word: str = "", then: str = "") -> typer.Typer:
    """Return the command tree for `word`, and `then` below it; the whole tree if `word` is no
    command.
    """
    tree = _root()
    if word == "--version":
        return tree
    for panel, words in PANELS.items():
        for name in words.keys() & {word} if word in MODULES else words:
            entry = _config(then) if name == "config" else _entry(name)
            if isinstance(entry, typer.Typer):
                tree.add_typer(entry, name=name, rich_help_panel=panel)
            else:
                tree.command(name, rich_help_panel=panel)(entry)
    return tree


def _config(then: str) -> typer.Typer:
    about = "Check and list inventories, write lock files, show schemas, list phones."
    group = App(no_args_is_help=True, help=about)
    for name in [then] if then in CONFIG else CONFIG:
        module, function = CONFIG[name]
        command = getattr(importlib.import_module(f"fleet.cli.{module}"), function)
        group.command(name)(command)
    return group


def _entry(word: str) -> Any:  # noqa: ANN401 - a function whose signature typer reads, or a group
    module = importlib.import_module(f"fleet.cli.{MODULES[word]}")
    python = f"{word}_" if word in vars(builtins) else word.replace("-", "_")
    function = getattr(module, python, None)
    return module.app if function is None else function


def listed() -> typer.Typer:
    """Return the tree of commands with their help from the table, without importing a command."""
    tree, commands = _root(), table()["commands"]
    for panel, words in PANELS.items():
        for name in words:
            about = commands[name]["help"]
            tree.command(name, help=about, rich_help_panel=panel)(_nothing)
    return tree


def _nothing() -> None:
    """Do nothing, in place of a command that was not typed."""


def _parser(word: str) -> Any:  # noqa: ANN401 - typer contains its own click
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
    """Create the run of a deploy early, so that it exists even if fleet is killed while loading
    modules.
    """
    options = {word.partition("=")[0] for word in words}
    if words[:1] != ["deploy"] or options & NO_RUN:
        yield
        return
    from fleet.engine.rollout import claim  # noqa: PLC0415 - only for a deploy

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
    """Run the command line; print a FleetError as one message, and exit with its code."""
    ask_for_runs(project.runs)
    project.announce(_taken)
    sys.argv[1:], remarks = renewed(sys.argv[1:])
    try:
        for text in () if "--json" in sys.argv else remarks:
            output.note(text)
        with _begun(sys.argv[1:]):
            word, then, *_ = (*sys.argv[1:3], "", "")
            tree = build(word, then) if word in MODULES or word == "--version" else listed()
            tree()
    except FleetError as error:
        output.show_error(error)
        sys.exit(error.exit_code)
    except (KeyboardInterrupt, SystemExit) as left:  # typer makes the former the latter
        stopped = CancelledError.exit_code
        if not isinstance(left, SystemExit) or left.code == stopped:
            output.show_interrupted()
            sys.exit(stopped)
        raise
    finally:
        gc.freeze()  # a garbage collection before the end would take 15 ms
