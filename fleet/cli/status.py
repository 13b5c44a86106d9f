"""`fleet status`, `fleet rollback`: what is on devices, and back to what was."""

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
    LockFileOption,
    ParallelOption,
    VerifyOption,
)
from fleet.cli.results import show_devices, show_errors
from fleet.engine import releases
from fleet.engine.pool import DeviceResult
from fleet.model.errors import InputError


def register(root: typer.Typer) -> None:
    """Add the commands on what is deployed."""
    root.command()(status)
    root.command()(rollback)


def status(
    inventory: InventoryOption,
    limit: LimitOption = None,
    parallel: ParallelOption = None,
    accept_new: AcceptNewOption = False,
    drift: Annotated[
        Path | None,
        typer.Option("--drift", help="Compare with the lock of this playbook, or this lock."),
    ] = None,
    lock_file: LockFileOption = None,
    verify: VerifyOption = False,
    as_json: JsonOption = False,
) -> None:
    """Show what is deployed, and whether it is whole. Reads only.

    Example: fleet status -i inventories/lab.yaml
    """
    hosts = hosts_of(inventory, limit)
    if drift is not None:
        from fleet.cli.drift import show_drift  # noqa: PLC0415 - what knows playbooks

        show_drift(hosts, drift, lock_file, parallel, accept_new, verify, as_json)
        return
    if lock_file is not None or verify:
        name = "--lock-file" if lock_file is not None else "--verify"
        raise InputError(f"{name} is given and not used", hint="add --drift PLAYBOOK")
    results = releases.status(
        hosts, lambda _: None, parallel=parallel or DEFAULT_PARALLEL, accept_new=accept_new
    )
    if as_json:
        output.emit_json(
            [{"host": one.host.name, "outcome": one.outcome, **one.details} for one in results]
        )
    else:
        _show_status(results)
    show_errors(results)
    end_devices(results)


def _show_status(results: list[DeviceResult]) -> None:
    rows = []
    for one in results:
        found = one.details.get("deployed", [])
        for item in found if isinstance(found, list) else []:
            origin = item["origin"]
            rows.append(
                (
                    one.host.name,
                    item["name"],
                    item["id"],
                    item["state"],
                    origin.get("build_id"),
                    item["previous"] or "-",
                    "yes" if one.details.get("emulated") else "no",
                )
            )
        if not found:
            rows.append((one.host.name, "-", "-", one.outcome, "-", "-", "-"))
    columns = ("device", "name", "release", "state", "QAIRT", "rollback to", "emulated")
    output.table("status", columns, rows)
    for one in results:
        if one.text and one.error is None:
            output.say(f"{one.host.name}: {one.text}")


def rollback(
    name: Annotated[str, typer.Argument(help="Release name, as `fleet status` shows it.")],
    inventory: InventoryOption,
    limit: LimitOption = None,
    to: Annotated[str | None, typer.Option("--to", help="Release id; default: the last.")] = None,
    parallel: ParallelOption = None,
    as_json: JsonOption = False,
) -> None:
    """Switch back to the release before, after opening an NPU session with it. No upload.

    Example: fleet rollback tiny-genie -i inventories/lab.yaml --limit lab001
    """
    hosts = hosts_of(inventory, limit)
    with listening(as_json=as_json) as listener:
        results = releases.rollback(
            hosts,
            name,
            listener,
            to=to,
            parallel=parallel or DEFAULT_PARALLEL,
        )
    if not as_json:
        show_devices(f"rollback {name}", results)
    end_devices(results)
