"""What this command line need not say: of the environment, and of the project's fleet.yaml."""

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
    """Have the next fleet.yaml that is taken from a folder above named to `to`, once."""
    _announced[:] = [to]


def current() -> Project | None:
    """Return the project that the working folder is in.

    Raises InputError for a fleet.yaml that is not trusted, or has faults.
    """
    from fleet.config.nearest import find  # noqa: PLC0415 - not for every word

    path = find(Path.cwd())
    if path is None:
        return None
    from fleet.config.project import load  # noqa: PLC0415 - YAML

    found = load(path)
    if path.parent != Path.cwd() and _announced:
        _announced.pop()(f"using {os.path.relpath(path)}")
    return found


def runs() -> Path | None:
    """Where the project keeps its runs; None outside of one."""
    project = current()
    return None if project is None else project.runs


def of_project(name: str) -> Any:  # noqa: ANN401 - what the key holds
    """A value of fleet.yaml, a path as seen from here; None outside of a project."""
    value = getattr(current(), name, None)
    return Path(os.path.relpath(value)) if isinstance(value, Path) else value


def supplied(name: str) -> Path | None:
    """The inventory or playbook of the environment, else of the project."""
    said = os.environ.get(VARIABLES[name])
    return Path(said) if said else of_project(name)


def needed(name: str) -> Path:
    """As `supplied`. Raises InputError where nothing names one."""
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
    """What a command lacks that is typed here; nothing where the project supplies it."""
    said = os.environ.get(VARIABLES.get(name, ""))
    if said:
        return [said]
    try:
        return [] if name in VARIABLES and of_project(name) else [name.upper()]
    except FleetError:  # of fleet.yaml; it is told when it is used
        return [name.upper()]
