"""Options that many commands share, and `-o`, which every command with `--json` has."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal

import typer
import typer.core

from fleet.cli import output

Inventory = Annotated[
    Path, typer.Option("--inventory", "-i", help="Inventory file (YAML).", show_default=False)
]
LIMIT_HELP = "Only these devices: names, groups, globs, '~regex', 'group[0:2]', '!not', '&and'."
Limit = Annotated[list[str] | None, typer.Option("--limit", "-l", help=LIMIT_HELP)]
Json = Annotated[
    bool,
    typer.Option(
        "--json",
        help="Print JSON instead of text.",
        callback=lambda value: value or output.shape in {"json", "yaml"},
    ),
]
Verbose = Annotated[bool, typer.Option("--verbose", "-v", help="Show every detail.")]
Parallel = Annotated[
    int | None, typer.Option("--parallel", "-p", min=1, help="Simultaneous devices.")
]
AcceptNew = Annotated[
    bool, typer.Option("--accept-new", help="Trust ssh host keys that were never seen before.")
]
Verify = Annotated[
    bool, typer.Option("--verify", help="Hash every file on the device (slow), not only its size.")
]
Offline = Annotated[bool, typer.Option("--offline", help="Download nothing; use stored runtimes.")]
Executor = Annotated[
    str | None, typer.Option(help="Let a dask cluster do the work: dask://SCHEDULER:PORT.")
]
Playbook = Annotated[Path, typer.Argument(help="Playbook file (YAML).")]
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


def _shape(context: typer.Context, value: str | None) -> None:
    if not context.resilient_parsing:
        output.shape = value or ""


_shaped = typer.Typer()


@_shaped.command()
def _of(
    shape: Annotated[
        Literal["wide", "json", "yaml", "name"] | None,
        typer.Option(
            "--format",
            "-o",
            help="How results are shown: every column, as data, or only the names.",
            callback=_shape,
            is_eager=True,
            expose_value=False,
        ),
    ] = None,
) -> None: ...


_SHAPE = typer.main.get_command(_shaped).params[0]
_own_params = typer.core.TyperCommand.get_params


def _params(command: typer.core.TyperCommand, context: Any) -> list[Any]:  # noqa: ANN401 - click's
    params = _own_params(command, context)
    named = {param.name for param in params}
    taken = any("-o" in param.opts for param in params)
    return [*params, _SHAPE] if "as_json" in named and not taken else params


typer.core.TyperCommand.get_params = _params  # type: ignore[method-assign,assignment]
