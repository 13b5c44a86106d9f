"""`fleet push`: sends files and folders to devices."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fleet.cli import options as opt
from fleet.cli import output
from fleet.cli.common import DEFAULT_PARALLEL, end_devices, hosts_of
from fleet.cli.results import show_devices
from fleet.content.sources import SourceFiles
from fleet.model.manifest import KEEP, check_name
from fleet.transport.base import WORTH_BYTES
from fleet.transport.early import begun, sharing

if TYPE_CHECKING:
    from fleet.engine.transfer.context import TransferOptions


def push(
    sources: Annotated[list[Path], typer.Argument(help="Files and folders.", show_default=False)],
    inventory: opt.Inventory,
    name: Annotated[
        str | None, typer.Option(help="Name on the device; default: name of the file.")
    ] = None,
    limit: opt.Limit = None,
    keep: Annotated[
        int,
        typer.Option(
            min=2, help="Number of versions to keep on the device; older versions are deleted."
        ),
    ] = KEEP,
    tune: opt.Tune = None,
    parallel: opt.Parallel = None,
    verify: opt.Verify = False,
    accept_new: opt.AcceptNew = False,
    as_json: opt.Json = False,
) -> None:
    """Send files or folders to devices: verified, resumable, and activated atomically.

    The files are in `current/NAME/` of the base folder; `fleet rollback` goes back.

    Example: fleet push -i inventories/lab.yaml ./prompts --limit lab001
    """
    wanted, tuned = name or sources[0].resolve().stem, _tuned(tune)
    hosts = hosts_of(inventory, limit)
    check_name(wanted)
    files = SourceFiles(sources).start()
    parallel = parallel or DEFAULT_PARALLEL
    bulk = files.late_bytes() >= WORTH_BYTES and not (tuned and tuned.carrier == "paramiko")
    # The command has been checked; connections to boards begin here.
    with begun(() if accept_new else hosts, parallel, bulk=bulk) as transports:
        with sharing():  # loading the engine takes as long as a board takes to answer
            from fleet.cli.live import listening  # noqa: PLC0415
            from fleet.engine.deploy.push import Push, PushOptions  # noqa: PLC0415

        options = PushOptions(
            verify=verify, accept_new=accept_new, parallel=parallel, keep=keep, transfer=tuned
        )
        with listening(as_json=as_json, ready=False, total=len(hosts)) as listener:
            work = Push(wanted, files, hosts, listener, options)
            results = work.push(meanwhile=None if as_json else output.load, begun=transports)
    if not as_json:
        show_devices(f"push {wanted}", results)
        if any(result.outcome == "changed" for result in results):
            place = next(result.plan for result in results if result.plan).facts.base_dir
            output.note(f"the files are on the devices in {place}/current/{wanted}/")
    end_devices(results)


def _tuned(words: list[str] | None) -> TransferOptions | None:
    if not words:
        return None
    from fleet.engine.transfer.context import options_of  # noqa: PLC0415 - much of the engine

    return options_of(words)
