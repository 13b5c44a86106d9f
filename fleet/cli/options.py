"""Options that many commands share; nothing is imported for them but typer."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer

from fleet.cli import project


def needed(name: str, given: Path | None = None) -> Path:
    """The file that was given, else that of the environment or the project. Raises InputError."""
    return given or project.needed(name)


def _file(name: str) -> Callable[[typer.Context, Path | None], Path | None]:
    def take(context: typer.Context, value: Path | None) -> Path | None:
        return value if context.resilient_parsing else needed(name, value)

    return take


def house(name: str) -> Callable[[typer.Context, Any], Any]:
    """A callback: the value of fleet.yaml for an option that was not given."""

    def take(context: typer.Context, value: Any) -> Any:  # noqa: ANN401 - of the option
        if value is not None or context.resilient_parsing:
            return value
        return project.of_project(name)

    return take


def _none() -> None:
    """The default of a file: `_file` asks further."""


Inventory = Annotated[
    Path,
    typer.Option(
        "--inventory",
        "-i",
        help="Inventory file (YAML). Default: that of fleet.yaml.",
        default_factory=_none,
        callback=_file("inventory"),
        envvar=project.VARIABLES["inventory"],
        show_default=False,
    ),
]
LIMIT_HELP = "Only these devices: names, groups, globs, '~regex', 'group[0:2]', '!not', '&and'."
Limit = Annotated[list[str] | None, typer.Option("--limit", "-l", help=LIMIT_HELP)]
Json = Annotated[bool, typer.Option("--json", help="Print JSON instead of text.")]
Parallel = Annotated[
    int | None,
    typer.Option(
        "--parallel", "-p", min=1, help="Simultaneous devices.", callback=house("parallel")
    ),
]
AcceptNew = Annotated[
    bool, typer.Option("--accept-new", help="Trust ssh host keys that were never seen before.")
]
Verify = Annotated[
    bool, typer.Option("--verify", help="Hash every file on the device (slow), not only its size.")
]
Offline = Annotated[bool, typer.Option("--offline", help="Download nothing; use stored runtimes.")]
Executor = Annotated[
    str | None,
    typer.Option(
        help="Let a dask cluster do the work: dask://SCHEDULER:PORT.", callback=house("executor")
    ),
]
Playbook = Annotated[
    Path,
    typer.Argument(
        help="Playbook file (YAML). Default: that of fleet.yaml.",
        default_factory=_none,
        callback=_file("playbook"),
        envvar=project.VARIABLES["playbook"],
        show_default=False,
    ),
]
LockFile = Annotated[
    Path | None, typer.Option(help="Lock file; default: fleet.lock beside the playbook.")
]
AllowReboot = Annotated[
    bool, typer.Option("--allow-reboot", help="Reboot devices where a change needs it.")
]
Records = Annotated[Path | None, typer.Option("--output", help="Folder for the results.")]
Store = Annotated[
    Path | None, typer.Option(help="Folder of results (--output of `fleet run`), or a .db file.")
]
