"""`fleet reserve`, `fleet unreserve`, `fleet who`: boards that people share."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from fleet.cli import options as opt
from fleet.cli import output
from fleet.cli.common import DEFAULT_PARALLEL, end_devices, hosts_of, named_hosts
from fleet.cli.results import emit, show_errors
from fleet.engine import reserving
from fleet.engine.pool import DeviceResult
from fleet.model.deadline import parse_duration


def reserve(
    inventory: opt.Inventory,
    host: opt.Hosts = None,
    limit: opt.Limit = None,
    duration: Annotated[str, typer.Option("--for", help="How long: 30m, 2h, 3d.")] = "1h",
    reason: Annotated[
        str,
        typer.Option(
            "--reason", "-r", help="Why you reserve the board; other users see this text."
        ),
    ] = "",
    parallel: opt.Parallel = None,
    as_json: opt.Json = False,
) -> None:
    """Reserve boards for a time. Other users can then read, but not deploy or run.

    Example: fleet reserve evk-07 -i inventories/evks.yaml --for 2h --reason "camera tests"
    """
    seconds, hosts = _seconds(duration), named_hosts(inventory, limit, host)
    results = reserving.reserve(hosts, seconds, reason, parallel=parallel or DEFAULT_PARALLEL)
    _show("reserve", results, as_json)


def unreserve(
    inventory: opt.Inventory,
    host: opt.Hosts = None,
    limit: opt.Limit = None,
    force: Annotated[
        bool,
        typer.Option("--force", help="Also end reservations and running deploys of other users."),
    ] = False,
    parallel: opt.Parallel = None,
    as_json: opt.Json = False,
) -> None:
    """End your reservation of boards; with --force, also reservations and deploys of other users.

    Example: fleet unreserve evk-07 -i inventories/evks.yaml
    """
    hosts = named_hosts(inventory, limit, host)
    results = reserving.release(hosts, force=force, parallel=parallel or DEFAULT_PARALLEL)
    _show("unreserve", results, as_json)


def who(
    inventory: opt.Inventory,
    host: opt.Hosts = None,
    limit: opt.Limit = None,
    parallel: opt.Parallel = None,
    accept_new: opt.AcceptNew = False,
    as_json: opt.Json = False,
) -> None:
    """Show who uses or reserved each board, until when and why. Reads only, one round trip each.

    Example: fleet who -i inventories/evks.yaml
    """
    hosts = hosts_of(inventory, limit, host)
    results = reserving.who(hosts, parallel=parallel or DEFAULT_PARALLEL, accept_new=accept_new)
    _show("who", results, as_json)


def _seconds(text: str) -> float:
    """A duration, which may also be in days."""
    days = text.strip().removesuffix("d")
    return float(days) * 86400 if days != text.strip() and days.isdigit() else parse_duration(text)


def _show(title: str, results: list[DeviceResult[Any]], as_json: bool) -> None:
    if as_json:
        emit(results, "text", "round_trips", "error")
    else:
        rows = [(r.host.name, r.outcome, "see below" if r.error else r.text) for r in results]
        output.table(title, ("device", "outcome", "holder"), rows)
        show_errors(results)
    end_devices(results)
