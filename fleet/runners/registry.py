"""The runners by name: our own, and those of other packages."""

from __future__ import annotations

from functools import cache
from importlib.metadata import EntryPoint, entry_points

from fleet.config.playbook import RUNNERS
from fleet.model.errors import InputError
from fleet.runners.base import Runner
from fleet.runners.exec import ExecRunner, RuntimeRunner
from fleet.runners.executorch import ExecutorchRunner
from fleet.runners.genai import GenaiRunner
from fleet.runners.genie import GenieRunner
from fleet.runners.litert import LitertRunner
from fleet.runners.llama_cpp import LlamaCppRunner
from fleet.runners.mllm import MllmRunner
from fleet.runners.ort import OrtRunner
from fleet.runners.qnn_net_run import NetRunRunner

GROUP = RUNNERS  # entry points of other packages: name = "module:object"
_MADE: tuple[Runner, ...] = (  # the names of OWN_RUNNERS, in its order
    *(GenieRunner(), NetRunRunner(), MllmRunner(), ExecutorchRunner(), LlamaCppRunner()),
    *(LitertRunner(), OrtRunner(), GenaiRunner(), ExecRunner()),
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
    """Names of all runners, those of other packages last; none of these is loaded for it."""
    return (*OWN, *(name for name in sorted(_others()) if name not in OWN))


def origin(name: str) -> str:
    """`fleet`, or the package that brings the runner."""
    if name in OWN:
        return "fleet"
    dist = _others()[name].dist
    return f"{dist.name} {dist.version}" if dist is not None else _others()[name].value


def runner(name: str) -> Runner:
    """The runner of that name. Raises InputError: unknown, or it cannot be loaded."""
    if name in OWN:
        return OWN[name]
    if name not in _others():
        raise InputError(
            f"'{name}' is not a runner that fleet knows",
            hint=f"set `runner:` in the playbook to one of: {', '.join(names())}",
        )
    try:
        found = _others()[name].load()
        made = found() if isinstance(found, type) else found
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
