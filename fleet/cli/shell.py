"""`fleet shell`: a terminal on one device."""

from __future__ import annotations

from typing import Annotated

import typer

from fleet.cli import options as opt
from fleet.cli.common import only_host
from fleet.cli.live import SaidLines
from fleet.engine.everyday.shell import open_terminal


def shell(
    inventory: opt.Inventory,
    host: Annotated[
        str | None, typer.Argument(metavar="[HOST]", help="Name of a device in the inventory.")
    ] = None,
    limit: opt.Limit = None,
    lease: opt.Lease = False,
    accept_new: opt.AcceptNew = False,
    env: Annotated[
        bool,
        typer.Option("--env", help="Set PATH and the library paths of the live release."),
    ] = False,
    release: Annotated[
        str, typer.Option(help="Name of the release for --env, if the device has several.")
    ] = "",
) -> None:
    """Open a terminal on a device, over ssh with its pinned host key or over adb.

    Jump hosts and keys are those of the inventory. Takes no lease and says who holds the board.
    The exit code is that of the shell; 255 where ssh lost the connection.

    Example: fleet shell lab001 -i inventories/lab.yaml
    """
    device = only_host(inventory, [*filter(None, [host]), *(limit or ())], "a terminal")
    status = open_terminal(
        device,
        SaidLines().take,
        lease=lease,
        accept_new=accept_new,
        environment=release if env or release else None,
    )
    raise typer.Exit(status)
