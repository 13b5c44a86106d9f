"""`fleet reserve`: reservations of boards that people share."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from fleet.cli import options as opt
from fleet.cli import output
from fleet.cli.common import DEFAULT_PARALLEL, end_devices, hosts_of, named_hosts
from fleet.cli.results import emit, show_errors
from fleet.engine.lease import reservations
from fleet.engine.pool import DeviceResult
from fleet.model.deadline import parse_duration

ForOption = Annotated[str, typer.Option("--for", help="How long: 30m, 2h, 3d.")]
ReasonOption = Annotated[
    str,
    typer.Option("--reason", "-r", help="Why you reserve the board; other users see this text."),
]
ListOption = Annotated[
    bool,
    typer.Option(
        "--list",
        help="Only show who uses or reserved each board, until when and why: one round trip each.",
    ),
]
EndOption = Annotated[bool, typer.Option("--end", help="End your reservation of the boards.")]
ForceOption = Annotated[
    bool,
    typer.Option(
        "--force",
        help="With --end: also end reservations and running deploys of other users.",
    ),
]


def reserve(
    context: typer.Context,
    inventory: opt.Inventory,
    host: opt.Hosts = None,
    limit: opt.Limit = None,
    duration: ForOption = "1h",
    reason: ReasonOption = "",
    listed: ListOption = False,
    end: EndOption = False,
    force: ForceOption = False,
    parallel: opt.Parallel = None,
    accept_new: opt.AcceptNew = False,
    as_json: opt.Json = False,
) -> None:
    """Reserve boards for a time, show who uses which board (--list), or end it (--end).

    Other users can read a reserved board, but not deploy to it or run on it.

    Example: fleet reserve evk-07 -i inventories/evks.yaml --for 2h --reason "camera tests"
    Example: fleet reserve --list -i inventories/evks.yaml
    Example: fleet reserve --end evk-07 -i inventories/evks.yaml
    """
    many = parallel or DEFAULT_PARALLEL
    if listed:
        opt.refuse_others(context, "--list", {*_ALWAYS, "listed", "accept_new"})
        hosts = hosts_of(inventory, limit, host)
        _show("who", reservations.who(hosts, parallel=many, accept_new=accept_new), as_json)
        return
    if end:
        opt.refuse_others(context, "--end", {*_ALWAYS, "end", "force"})
    else:
        needs = {"force": "--end", "accept_new": "--list"}
        opt.refuse_others(context, "", {*_ALWAYS, "duration", "reason"}, needs)
    hosts = named_hosts(inventory, limit, host)
    if end:
        results = reservations.release(hosts, force=force, parallel=many)
    else:
        results = reservations.reserve(hosts, _seconds(duration), reason, parallel=many)
    _show("reserve --end" if end else "reserve", results, as_json)


_ALWAYS = {"inventory", "host", "limit", "parallel", "as_json"}


def _seconds(text: str) -> float:
    """Return the seconds of a duration, which may also be in days."""
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
