"""`fleet undo`: restores the system of devices to its state before a deploy, but not the
releases.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from typing import Annotated

import typer

from fleet.cli import options as opt
from fleet.cli import output
from fleet.cli.common import DEFAULT_PARALLEL, end_devices, hosts_of
from fleet.cli.live import listening
from fleet.cli.results import show_devices
from fleet.engine.system import undo as undoing
from fleet.model.errors import InputError


def undo(
    run_id: Annotated[str, typer.Argument(help="Run id, as `fleet deploy` prints it, or `last`.")],
    inventory: opt.Inventory,
    limit: opt.Limit = None,
    parallel: opt.Parallel = None,
    yes: Annotated[
        bool, typer.Option("--yes", "-y", help="Do not ask before the system is changed.")
    ] = False,
    as_json: opt.Json = False,
) -> None:
    """Undo what a deploy did to the system of devices: packages, groups, rules, files.

    Example: fleet undo last -i inventories/evks.yaml --limit evk-07
    """
    hosts = hosts_of(inventory, limit)
    run_id, changed = undoing.changed_by(run_id, hosts)
    if changed and not yes:
        _ask(run_id, changed)
    with listening(as_json=as_json, total=len(hosts)) as listener:
        results = undoing.undo(hosts, run_id, listener, parallel=parallel or DEFAULT_PARALLEL)
    if not as_json:
        show_devices(f"undo {run_id}", results)
    end_devices(results)


def _ask(run_id: str, changed: Mapping[str, Sequence[str]]) -> None:
    """Show the changes to undo and ask. Raises InputError if there is no terminal to ask on."""
    if not sys.stdin.isatty():
        raise InputError(
            "fleet cannot ask before it undoes changes of the system: standard input is not a "
            "terminal",
            hint=f"fleet undo {run_id} --yes",
        )
    for host, steps in changed.items():
        output.note(f"{host}: fleet would undo these steps:")
        for step in steps:
            output.note(f"  - {step}")
    if not typer.confirm(f"Undo these steps on {len(changed)} device(s)?", err=True):
        raise typer.Exit(1)
