"""`fleet logs`: the logs of devices."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import typer

from fleet.cli import options as opt
from fleet.cli import output
from fleet.cli.common import DEFAULT_PARALLEL, end_devices, hosts_of
from fleet.cli.results import emit, show_errors, tell_holders
from fleet.engine.everyday.logs import KINDS, LogQuery, read_logs
from fleet.model.deadline import parse_duration

Kind = StrEnum("Kind", list(KINDS))  # type: ignore[misc]


def logs(
    inventory: opt.Inventory,
    host: opt.Hosts = None,
    limit: opt.Limit = None,
    kind: Annotated[
        list[Kind] | None,
        typer.Option(help="Show only this log. Default: journal or logcat, dmesg, service."),
    ] = None,
    since: Annotated[
        str | None, typer.Option(help="Show only lines of the last 90s, 10m, 2h.")
    ] = None,
    lines: Annotated[
        int,
        typer.Option(
            "--lines",
            "-n",
            min=1,
            max=10_000,
            help="At most this many lines of each log.",
        ),
    ] = 50,
    parallel: opt.Parallel = None,
    accept_new: opt.AcceptNew = False,
    as_json: opt.Json = False,
) -> None:
    """Show the journal, the kernel messages, logcat and the service log of devices.

    If a log cannot be read, prints the reason that the device gives. The log of a service has no
    times, so --since does not cut it. Takes no lease, and prints who holds a board.

    Example: fleet logs -i inventories/lab.yaml --limit lab001 --since 10m
    """
    seconds = parse_duration(since) if since else None
    query = LogQuery(tuple(kind or ()), lines, seconds)
    many = parallel or DEFAULT_PARALLEL
    results = read_logs(
        query, hosts_of(inventory, limit, host), parallel=many, accept_new=accept_new
    )
    if as_json:
        emit(results, "text", "error")
    else:
        for result in results:
            logs = result.value
            for source, text in logs.lines if logs else ():
                output.say(f"{result.host.name} {source}: {text}")
            for source, text in logs.unread if logs else ():
                output.note(f"{result.host.name} {source}: {text}")
        tell_holders(results)
        show_errors(results)
    end_devices(results)
