"""`fleet get`: copies files from devices to this computer."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from fleet.cli import options as opt
from fleet.cli import output
from fleet.cli.common import DEFAULT_PARALLEL, end_devices, hosts_of
from fleet.cli.live import listening
from fleet.cli.results import show_errors, tell_holders
from fleet.engine.everyday.get import Fetching, fetch_everywhere


def get(
    remote: Annotated[
        str, typer.Argument(help="File or folder on the devices; ~/ is the user's home folder.")
    ],
    local: Annotated[Path, typer.Argument(help="Folder on this computer.", show_default=False)],
    inventory: opt.Inventory,
    limit: opt.Limit = None,
    lease: opt.Lease = False,
    parallel: opt.Parallel = None,
    accept_new: opt.AcceptNew = False,
    as_json: opt.Json = False,
) -> None:
    """Copy a file or folder from devices to this computer, and verify each file by its hash.

    From several devices it goes to LOCAL/DEVICE/. A file that changes meanwhile, vanishes or
    cannot be read is named; the others still arrive, and the exit code is 1. Links on the devices
    are not followed. Run an interrupted command again to resume it.

    Example: fleet get /etc/os-release found -i inventories/lab.yaml
    """
    hosts = hosts_of(inventory, limit)
    job = Fetching(remote, local, apart=len(hosts) > 1, lease=lease)
    with listening(as_json=as_json) as listener:
        results = fetch_everywhere(
            job, hosts, listener, parallel=parallel or DEFAULT_PARALLEL, accept_new=accept_new
        )
    if not as_json:
        rows = [(r.host.name, r.outcome, "see below" if r.error else r.text) for r in results]
        output.table("get", ("device", "outcome", ""), rows)
        tell_holders(results)
        show_errors(results)
    end_devices(results)
