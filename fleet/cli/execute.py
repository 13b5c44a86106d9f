"""`fleet exec`: one command on many devices."""

from __future__ import annotations

from typing import Annotated

import typer

from fleet.cli import options as opt
from fleet.cli import rollout_options as rollout
from fleet.cli.common import DEFAULT_PARALLEL, end_devices, hosts_of
from fleet.cli.live import SaidLines
from fleet.cli.results import emit, show_errors, tell_holders
from fleet.engine.executing import Executing, execute_everywhere
from fleet.model.deadline import parse_duration


def exec_(
    command: Annotated[
        list[str],
        typer.Argument(
            help="A shell command in quotes, or -- and then a program with its arguments."
        ),
    ],
    inventory: opt.Inventory,
    limit: opt.Limit = None,
    timeout: Annotated[
        str, typer.Option(help="Stop the command after this time: 90s, 5m.")
    ] = "60s",
    lease: opt.Lease = False,
    canary: rollout.Canary = None,
    waves: rollout.Waves = None,
    max_failed: rollout.MaxFailed = None,
    parallel: opt.Parallel = None,
    accept_new: opt.AcceptNew = False,
    as_json: opt.Json = False,
) -> None:
    """Run a command on devices. Each line of its output begins with the device name.

    Takes no lease and says who holds a board.

    Example: fleet exec 'uname -a' -i inventories/lab.yaml --limit lab001
    """
    job = Executing(tuple(command), parse_duration(timeout), lease)
    spec = rollout.spec_of(None, canary, waves, max_failed)
    results = execute_everywhere(
        job,
        hosts_of(inventory, limit),
        (lambda _: None) if as_json else SaidLines().take,
        parallel=parallel or DEFAULT_PARALLEL,
        accept_new=accept_new,
        spec=spec,
    )
    if as_json:
        emit(results, "text", "seconds", "error")
    else:
        tell_holders(results)
        show_errors(results)
    end_devices(results)
