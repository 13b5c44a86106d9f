"""The command tree of fleet, walked."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import Any

import typer
import typer.main

from fleet.cli.main import app

Command = Any  # typer brings its own click


@cache
def commands() -> tuple[tuple[str, Command], ...]:
    """(`runtime fetch`, command) for every leaf."""
    return tuple(_walk("", typer.main.get_command(app)))


def _walk(path: str, command: Command) -> Iterator[tuple[str, Command]]:
    children = getattr(command, "commands", None)
    if children is None:
        yield path.strip(), command
        return
    for name, child in children.items():
        if child.hidden:  # the old word of a command
            continue
        yield from _walk(f"{path} {name}", child)


def options(command: Command) -> list[tuple[str, str]]:
    """(names, help) of every option that the help shows."""
    found = []
    for param in command.get_params(typer.Context(command)):
        names = sorted((*param.opts, *param.secondary_opts), key=len)
        if names[0].startswith("-") and not param.hidden and param.name != "help":
            found.append((" / ".join(names), getattr(param, "help", "") or ""))
    return found


def arguments(command: Command) -> list[str]:
    """Names of the positional arguments."""
    return [p.name.upper() for p in command.params if not any(o.startswith("-") for o in p.opts)]
