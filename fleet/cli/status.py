"""`fleet status`, `fleet rollback`: what is on devices, and back to what was."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from fleet.cli import options as opt
from fleet.cli import output
from fleet.cli.common import DEFAULT_PARALLEL, end_devices, hosts_of
from fleet.cli.live import listening
from fleet.cli.results import emit, show_devices, show_errors
from fleet.engine import releases
from fleet.engine.pool import DeviceResult
from fleet.model.errors import InputError


def status(
    inventory: opt.Inventory,
    host: opt.Hosts = None,
    limit: opt.Limit = None,
    parallel: opt.Parallel = None,
    accept_new: opt.AcceptNew = False,
    drift: Annotated[
        Path | None, typer.Option(help="Compare with this lock file, or that of this playbook.")
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
    results = releases.status(
        hosts, lambda _: None, parallel=parallel or DEFAULT_PARALLEL, accept_new=accept_new
    )
    if as_json:
        emit(results)
    else:
        _show_status(results)
    show_errors(results)
    end_devices(results)


def _show_status(results: list[DeviceResult]) -> None:
    rows: list[Sequence[object]] = []
    for result in results:
        deployed: Any = result.details.get("deployed") or []
        emulated = "yes" if result.details.get("emulated") else "no"
        for item in deployed:
            shown = [item["name"], item["id"], item["state"], item["origin"].get("build_id")]
            rows.append((result.host.name, *shown, item["previous"] or "-", emulated))
        if not deployed:
            rows.append((result.host.name, "-", "-", result.outcome, "-", "-", "-"))
    columns = ("device", "name", "release", "state", "QAIRT", "rollback to", "emulated")
    output.table("status", columns, rows)
    for result in results:
        if result.text and result.error is None:
            output.say(f"{result.host.name}: {result.text}")


def rollback(
    name: Annotated[str, typer.Argument(help="Name of the release, as `fleet status` shows it.")],
    inventory: opt.Inventory,
    limit: opt.Limit = None,
    to: Annotated[str | None, typer.Option(help="Release id; default: the previous.")] = None,
    parallel: opt.Parallel = None,
    as_json: opt.Json = False,
) -> None:
    """Switch back to the previous release, if it opens an NPU session. Sends nothing.

    Example: fleet rollback tiny-genie -i inventories/lab.yaml --limit lab001
    """
    hosts = hosts_of(inventory, limit)
    with listening(as_json=as_json) as listener:
        results = releases.rollback(
            hosts, name, listener, to=to, parallel=parallel or DEFAULT_PARALLEL
        )
    if not as_json:
        show_devices(f"rollback {name}", results)
    end_devices(results)
