"""Defaults of the command line, from the environment and from the project's fleet.yaml."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fleet.model.errors import FleetError, InputError

if TYPE_CHECKING:
    from fleet.config.project import Project

VARIABLES = {"inventory": "FLEET_INVENTORY", "playbook": "FLEET_PLAYBOOK"}
HOW = {"inventory": "-i FILE", "playbook": "PLAYBOOK"}
_announced: list[Callable[[str], None]] = []


def announce(to: Callable[[str], None]) -> None:
    """Register the function that gets the name of a fleet.yaml of a parent folder, once."""
    _announced[:] = [to]


def current() -> Project | None:
    """Return the project of the working folder, None without one.

    Raises InputError for a fleet.yaml that is not trusted or has errors.
    """
    from fleet.config.nearest import find  # noqa: PLC0415 - not needed by every command

    path = find(Path.cwd())
    if path is None:
        return None
    from fleet.config.project import load  # noqa: PLC0415 - YAML

    project = load(path)
    if path.parent != Path.cwd() and _announced:
        _announced.pop()(f"using {os.path.relpath(path)}")
    return project


def runs() -> Path | None:
    """Return the folder of the project's runs; None outside a project."""
    project = current()
    return None if project is None else project.runs


def of_project(name: str) -> Any:  # noqa: ANN401 - the type of the key's value
    """Return a value of fleet.yaml, a path relative to the working folder; None without a value."""
    value = getattr(current(), name, None)
    return Path(os.path.relpath(value)) if isinstance(value, Path) else value


def supplied(name: str) -> Path | None:
    """Return the inventory or playbook of the environment, else of the project."""
    path = os.environ.get(VARIABLES[name])
    return Path(path) if path else of_project(name)


def needed(name: str) -> Path:
    """Return the file of `supplied`. Raises InputError if there is none."""
    path = supplied(name)
    if path is None:
        project = current()
        where = f"{project.file} names none" if project else "there is no fleet.yaml"
        cure = (
            f"add `{name}: FILE` to it" if project else f"fleet init (writes the {name} and more)"
        )
        raise InputError(
            f"no {name} is given, {VARIABLES[name]} is not set, and {where}",
            hint=f"{cure}; or give one: {HOW[name]}",
        )
    return path


def to_paste(name: str) -> list[str]:
    """Return the words that a command typed here needs; none if the project supplies the value."""
    path = os.environ.get(VARIABLES.get(name, ""))
    if path:
        return [path]
    try:
        return [] if name in VARIABLES and of_project(name) else [name.upper()]
    except FleetError:  # an error in fleet.yaml is reported when the file is used
        return [name.upper()]
