"""The runners by name: those of fleet, and those of other packages."""

from __future__ import annotations

import json
import sys
from dataclasses import fields
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from importlib.resources import as_file, files
from typing import Any

from fleet.config.runners import GROUP, TABLE, RunnerFacts
from fleet.config.shape import keys_of
from fleet.model.errors import InputError
from fleet.runners.base import Runner
from fleet.runners.exec import ExecRunner, RuntimeRunner
from fleet.runners.executorch import ExecutorchRunner
from fleet.runners.genai import GenaiRunner
from fleet.runners.genie import GenieRunner
from fleet.runners.geniex import GeniexRunner
from fleet.runners.litert import LitertRunner
from fleet.runners.llama_cpp import LlamaCppRunner
from fleet.runners.mllm import MllmRunner
from fleet.runners.options import Options
from fleet.runners.ort import OrtRunner
from fleet.runners.qnn_net_run import NetRunRunner

_MADE: tuple[Runner, ...] = (  # in the order in which they are listed
    *(GenieRunner(), NetRunRunner(), MllmRunner(), ExecutorchRunner(), LlamaCppRunner()),
    *(LitertRunner(), OrtRunner(), GenaiRunner(), GeniexRunner(), ExecRunner()),
)
RUNTIME: Runner = RuntimeRunner()  # of a playbook without a bundle; no playbook names it
OWN: dict[str, Runner] = {made.name: made for made in _MADE}
_MEMBERS = (
    "kinds", "runtime", "layout", "python", "windows", "check", "files", "health", "start", "read",
)  # fmt: skip


@cache
def _others() -> dict[str, EntryPoint]:
    return {entry.name: entry for entry in entry_points(group=GROUP)}


def names() -> tuple[str, ...]:
    """Return the names of all runners, those of other packages last; loads none of these."""
    return (*OWN, *(name for name in sorted(_others()) if name not in OWN))


def origin(name: str) -> str:
    """Return `fleet`, or the package that provides the runner."""
    if name in OWN:
        return "fleet"
    dist = _others()[name].dist
    return f"{dist.name} {dist.version}" if dist is not None else _others()[name].value


def runner(name: str) -> Runner:
    """Return the runner of that name. Raises InputError if it is unknown or cannot be loaded."""
    if name in OWN:
        return OWN[name]
    if name not in _others():
        raise InputError(
            f"'{name}' is not a runner that fleet knows",
            hint=f"set `runner:` in the playbook to one of: {', '.join(names())}",
        )
    try:
        loaded = _others()[name].load()
        made = loaded() if isinstance(loaded, type) else loaded
    except Exception as error:
        raise InputError(
            f"runner '{name}' of {origin(name)} cannot be loaded: {type(error).__name__}: {error}",
            hint="correct or uninstall the Python package that provides the runner",
        ) from error
    if not isinstance(made, Runner):
        lacking = [member for member in ("name", *_MEMBERS) if not hasattr(made, member)]
        raise InputError(
            f"the class of the runner '{name}' from {origin(name)} does not have the members "
            f"{', '.join(lacking)}",
            hint="derive this class from fleet.runners.Defaults (docs/runners.md)",
        )
    return made


def described() -> dict[str, dict[str, Any]]:
    """Return the facts of fleet's runners for playbooks: the content of fleet/data/runners.json."""
    members = [field.name for field in fields(RunnerFacts)]
    return {made.name: {name: getattr(made, name) for name in members} for made in _MADE}


def options_of(instance: Runner) -> dict[str, Any]:
    """Return the names and defaults of a runner's options; None for a required option.

    A runner of another package without a member `options` has those of the class `...Options` in
    its module. This is the form before 0.3, which the next version does not support.
    """
    model = getattr(instance, "options", None) or _model_beside(instance)
    if model is None:
        return {}
    return {name: None if key.needed else key.default for name, key in keys_of(model).items()}


def _model_beside(instance: Runner) -> type[Options] | None:
    module = sys.modules.get(type(instance).__module__)
    for value in vars(module).values() if module else ():
        if isinstance(value, type) and issubclass(value, Options) and value is not Options:
            own = value.__module__ == type(instance).__module__
            if own and value.__name__.endswith("Options"):
                return value
    return None


if __name__ == "__main__":
    with as_file(files("fleet") / "data" / TABLE) as table:
        table.write_text(json.dumps(described(), indent=1) + "\n", "utf-8")
