"""`fleet lock`, `fleet unlock`, `fleet who`: boards that are shared."""

from __future__ import annotations

from typing import Annotated

import typer

from fleet.cli import output
from fleet.cli.common import DEFAULT_PARALLEL, end_devices, hosts_of
from fleet.cli.options import (
    AcceptNewOption,
    InventoryOption,
    JsonOption,
    LimitOption,
    ParallelOption,
)
from fleet.cli.results import show_errors
from fleet.engine import reserving
from fleet.engine.pool import DeviceResult
from fleet.model.deadline import parse_duration

HostsArgument = Annotated[
    list[str], typer.Argument(metavar="HOST...", help="Hosts: names, groups, globs.")
]


def register(root: typer.Typer) -> None:
    """Add the commands of leases."""
    root.command()(lock)
    root.command()(unlock)
    root.command()(who)


def lock(
    host: HostsArgument,
    inventory: InventoryOption,
    duration: Annotated[str, typer.Option("--for", help="How long: 30m, 2h, 3d.")] = "1h",
    reason: Annotated[str, typer.Option("--reason", "-r", help="Shown to others.")] = "",
    parallel: ParallelOption = None,
    as_json: JsonOption = False,
) -> None:
    """Reserve boards: others can read, but not deploy or run, until then.

    Example: fleet lock evk-07 -i inventories/evks.yaml --for 2h --reason "camera tests"
    """
    seconds = _seconds(duration)
    hosts = hosts_of(inventory, host)
    results = reserving.reserve(hosts, seconds, reason, parallel=parallel or DEFAULT_PARALLEL)
    _show("lock", results, as_json)


def unlock(
    host: HostsArgument,
    inventory: InventoryOption,
    force: Annotated[
        bool, typer.Option("--force", help="Break what others hold; a writer stops.")
    ] = False,
    parallel: ParallelOption = None,
    as_json: JsonOption = False,
) -> None:
    """End your reservation of boards; with --force that of others and deploys under way.

    Example: fleet unlock evk-07 -i inventories/evks.yaml
    """
    hosts = hosts_of(inventory, host)
    results = reserving.release(hosts, force=force, parallel=parallel or DEFAULT_PARALLEL)
    _show("unlock", results, as_json)


def who(
    inventory: InventoryOption,
    host: Annotated[
        list[str] | None, typer.Argument(metavar="[HOST]...", help="As --limit.")
    ] = None,
    limit: LimitOption = None,
    parallel: ParallelOption = None,
    accept_new: AcceptNewOption = False,
    as_json: JsonOption = False,
) -> None:
    """Show who holds the boards, until when and what for. Reads only, one round trip each.

    Example: fleet who -i inventories/evks.yaml
    """
    hosts = hosts_of(inventory, [*(host or []), *(limit or [])])
    results = reserving.who(hosts, parallel=parallel or DEFAULT_PARALLEL, accept_new=accept_new)
    _show("who", results, as_json)


def _seconds(text: str) -> float:
    """As everywhere, and days."""
    days = text.strip().removesuffix("d")
    return float(days) * 86400 if days != text.strip() and days.isdigit() else parse_duration(text)


def _show(title: str, results: list[DeviceResult], as_json: bool) -> None:
    if as_json:
        output.emit_json(
            [
                {
                    "host": one.host.name,
                    "outcome": one.outcome,
                    "text": one.text,
                    "round_trips": one.round_trips,
                    "error": one.error.as_dict() if one.error else None,
                    **one.details,
                }
                for one in results
            ]
        )
    else:
        rows = [
            (one.host.name, one.outcome, "see below" if one.error else one.text) for one in results
        ]
        output.table(title, ("device", "outcome", "holder"), rows)
        show_errors(results)
    end_devices(results)
