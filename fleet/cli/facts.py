"""`fleet facts`: what a device is, from one round trip."""

from __future__ import annotations

import typer

from fleet.cli import output
from fleet.cli.common import end_devices, hosts_of, working_on
from fleet.cli.options import (
    AcceptNewOption,
    ExecutorOption,
    InventoryOption,
    JsonOption,
    LimitOption,
    ParallelOption,
)
from fleet.cli.results import show_errors
from fleet.engine.looking import look_at_facts
from fleet.engine.pool import on_every_device
from fleet.facts.view import summary
from fleet.model.facts import Facts


def register(root: typer.Typer) -> None:
    """Add `facts`."""
    root.command()(facts)


def facts(
    inventory: InventoryOption,
    limit: LimitOption = None,
    parallel: ParallelOption = None,
    accept_new: AcceptNewOption = False,
    executor: ExecutorOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show OS, SoC, FastRPC, disk and tools of devices. Reads only, one round trip each.

    Example: fleet facts -i inventories/lab.yaml --limit lab001 --json
    """
    hosts = hosts_of(inventory, limit)
    with working_on(executor, parallel) as remote:
        results = on_every_device(
            hosts,
            look_at_facts,
            lambda _: None,
            parallel=parallel or 16,
            accept_new=accept_new,
            executor=remote,
        )
    found = {
        one.host.name: each
        for one in results
        if isinstance(each := one.details.get("facts"), Facts)
    }
    if as_json:
        output.emit_json(
            [
                {
                    "host": one.host.name,
                    "outcome": one.outcome,
                    "round_trips": one.round_trips,
                    "error": one.error.as_dict() if one.error else None,
                    "facts": found[one.host.name].as_dict() if one.host.name in found else None,
                }
                for one in results
            ]
        )
    else:
        for name, each in found.items():
            output.table(name, ("fact", "value"), summary(each))
        show_errors(results)
    end_devices(results)
