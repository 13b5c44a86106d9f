"""`fleet provision` and `fleet undo`: the system of devices, without releases."""

from __future__ import annotations

from typing import Annotated

import typer

from fleet.cli.common import DEFAULT_PARALLEL, end_devices, hosts_of
from fleet.cli.live import listening
from fleet.cli.options import (
    AcceptNewOption,
    InventoryOption,
    JsonOption,
    LimitOption,
    ParallelOption,
    PlaybookArgument,
)
from fleet.cli.results import show_devices
from fleet.config.playbook import load_playbook
from fleet.engine import undoing
from fleet.engine.operation import Operation
from fleet.engine.options import Options
from fleet.engine.pool import DeviceResult


def register(root: typer.Typer) -> None:
    """Add the commands on systems."""
    root.command()(provision)
    root.command()(undo)


def provision(
    playbook: PlaybookArgument,
    inventory: InventoryOption,
    limit: LimitOption = None,
    parallel: ParallelOption = None,
    accept_new: AcceptNewOption = False,
    allow_reboot: Annotated[
        bool, typer.Option("--allow-reboot", help="Reboot devices where the plan says so.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Only the system part of a playbook: FastRPC, packages, groups, rules, files. No release.

    Example: fleet provision -i inventories/evks.yaml playbooks/nemotron-iq9075.yaml
    """
    options = Options(accept_new=accept_new, parallel=parallel, allow_reboot=allow_reboot)
    loaded, hosts = load_playbook(playbook), hosts_of(inventory, limit)
    with listening(as_json=as_json) as listener:
        operation = Operation(loaded, hosts, listener, options=options)
        results = operation.provision()
    _show(f"provision {operation.playbook.name}", results, as_json=as_json)


def undo(
    run_id: Annotated[str, typer.Argument(help="Run id as deploy shows it, or `last`.")],
    inventory: InventoryOption,
    limit: LimitOption = None,
    parallel: ParallelOption = None,
    as_json: JsonOption = False,
) -> None:
    """Take back what a deploy did to the system of devices: packages, groups, rules, files.

    Example: fleet undo last -i inventories/evks.yaml --limit evk-07
    """
    hosts = hosts_of(inventory, limit)
    with listening(as_json=as_json) as listener:
        results = undoing.undo(hosts, run_id, listener, parallel=parallel or DEFAULT_PARALLEL)
    _show(f"undo {run_id}", results, as_json=as_json)


def _show(title: str, results: list[DeviceResult], *, as_json: bool) -> None:
    if not as_json:
        show_devices(title, results)
    end_devices(results)
