"""`fleet status`, `fleet rollback`: what is on devices, and back to what was."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from fleet.cli import options as opt
from fleet.cli import output
from fleet.cli.common import DEFAULT_PARALLEL, end_devices, hosts_of
from fleet.cli.live import listening
from fleet.cli.results import emit, show_devices, show_errors
from fleet.engine import releases
from fleet.engine.pool import DeviceResult
from fleet.engine.status import DeviceStatus
from fleet.engine.status import status as device_status
from fleet.model.errors import InputError
from fleet.model.events import Event, Warned


def status(
    inventory: opt.Inventory,
    host: opt.Hosts = None,
    limit: opt.Limit = None,
    parallel: opt.Parallel = None,
    accept_new: opt.AcceptNew = False,
    drift: Annotated[
        Path | None,
        typer.Option(
            help="Show how the devices differ from this lock file, or from the lock file of "
            "this playbook."
        ),
    ] = None,
    lock_file: opt.LockFile = None,
    verify: opt.Verify = False,
    as_json: opt.Json = False,
) -> None:
    """Show what is deployed, and whether its files are complete. Reads only.

    Example: fleet status -i inventories/lab.yaml
    """
    hosts = hosts_of(inventory, limit, host)
    if drift is not None:
        from fleet.cli.drift import show_drift  # noqa: PLC0415 - what knows playbooks

        show_drift(hosts, drift, lock_file, parallel, accept_new, verify, as_json)
        return
    if lock_file is not None or verify:
        name = "--lock-file" if lock_file is not None else "--verify"
        raise InputError(f"{name} has no effect without --drift", hint="add --drift PLAYBOOK")
    results = device_status(
        hosts, _warn, parallel=parallel or DEFAULT_PARALLEL, accept_new=accept_new
    )
    if as_json:
        emit(results)
    else:
        _show_status(results)
    show_errors(results)
    end_devices(results)


_COLUMNS = (
    "device", "name", "release", "state", "since", "by", "last rate", "disk", "QAIRT",
    "rollback to", "emulated",
)  # fmt: skip
_DROPS = ("rollback to", "QAIRT", "disk", "emulated", "by", "name", "last rate", "since", "state")


def _warn(event: Event) -> None:
    """Print a warning about this computer; those about a device are not for this command."""
    if isinstance(event, Warned) and not event.host:
        output.note(f"warning: {event.text}")


def _show_status(results: Sequence[DeviceResult[DeviceStatus]]) -> None:
    rows: list[Sequence[object]] = []
    for result in results:
        device = result.value
        free = device.disk_free_bytes if device else None
        disk = None if free is None else f"{free / 1e9:.1f} GB"
        for item in device.deployed if device else ():
            since = item.since and item.since[:16].replace("T", " ") + "Z"
            shown = (item.name, item.id, item.state, since, item.by, item.rate)
            emulated = "yes" if device and device.emulated else "no"
            last = (item.origin.get("build_id"), item.previous or "-", emulated)
            rows.append((result.host.name, *shown, disk, *last))
        if device is None or not device.deployed:
            rows.append((result.host.name, "-", "-", result.outcome, *"-" * 3, disk, *"-" * 3))
    output.table("status", _COLUMNS, rows, _DROPS)
    for result in results:
        if result.text and result.error is None:
            output.say(f"{result.host.name}: {result.text}")


def rollback(
    name: Annotated[str, typer.Argument(help="Name of the release, as `fleet status` shows it.")],
    inventory: opt.Inventory,
    limit: opt.Limit = None,
    to: Annotated[
        str | None,
        typer.Option(
            help="Id of the release, or its first characters; default: the previous release."
        ),
    ] = None,
    parallel: opt.Parallel = None,
    as_json: opt.Json = False,
) -> None:
    """Switch back to the previous release if it opens an NPU session. Sends no files.

    Example: fleet rollback tiny-genie -i inventories/lab.yaml --limit lab001
    """
    hosts = hosts_of(inventory, limit)
    with listening(as_json=as_json, total=len(hosts)) as listener:
        results = releases.rollback(
            hosts, name, listener, to=to, parallel=parallel or DEFAULT_PARALLEL
        )
    if not as_json:
        show_devices(f"rollback {name}", results)
    end_devices(results)
