"""`fleet push`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from fleet.cli import output
from fleet.cli.common import DEFAULT_PARALLEL, end_devices, hosts_of
from fleet.cli.live import listening
from fleet.cli.options import (
    AcceptNewOption,
    InventoryOption,
    JsonOption,
    LimitOption,
    ParallelOption,
    VerifyOption,
)
from fleet.cli.pace import (
    BandwidthOption,
    CarrierOption,
    CompressOption,
    PerHubOption,
    RelayOption,
    WholeOption,
    pace_of,
)
from fleet.cli.results import show_devices
from fleet.engine.pushing import KEEP, Push, PushOptions


def register(root: typer.Typer) -> None:
    """Add the command."""
    root.command()(push)


def push(
    sources: Annotated[list[Path], typer.Argument(help="Files and folders.", show_default=False)],
    inventory: InventoryOption,
    name: Annotated[
        str | None, typer.Option("--name", help="Release name; default: that of the source.")
    ] = None,
    limit: LimitOption = None,
    keep: Annotated[int, typer.Option("--keep", min=2, help="Releases to keep.")] = KEEP,
    carrier: CarrierOption = "auto",
    bandwidth: BandwidthOption = None,
    per_hub: PerHubOption = None,
    whole: WholeOption = False,
    compress: CompressOption = "auto",
    relay: RelayOption = False,
    parallel: ParallelOption = None,
    verify: VerifyOption = False,
    accept_new: AcceptNewOption = False,
    as_json: JsonOption = False,
) -> None:
    """Bring files or a folder to devices: verified, resumed, switched in one rename.

    They stand in `current/NAME/` of the base folder; `fleet rollback` goes back.

    Example: fleet push -i inventories/lab.yaml ./prompts --limit lab001
    """
    wanted = name or sources[0].resolve().stem
    options = PushOptions(
        verify=verify,
        accept_new=accept_new,
        parallel=parallel or DEFAULT_PARALLEL,
        keep=keep,
        pace=pace_of(carrier, bandwidth, per_hub, whole, compress, relay),
    )
    with listening(as_json=as_json, ready=False) as listener:
        work = Push(wanted, sources, hosts_of(inventory, limit), listener, options)
        results = work.push(meanwhile=None if as_json else output.load)
    if not as_json:
        show_devices(f"push {wanted}", results)
        if any(one.outcome == "changed" for one in results):
            place = next(one.plan.facts.base_dir for one in results if one.plan is not None)
            output.note(f"there: {place}/current/{wanted}/")
    end_devices(results)
