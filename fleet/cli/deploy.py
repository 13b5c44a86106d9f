"""`fleet plan`, `fleet deploy`, `fleet status`, `fleet rollback`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from fleet.cli import output
from fleet.cli.common import (
    AcceptNewOption,
    InventoryOption,
    JsonOption,
    LimitOption,
    OfflineOption,
    ParallelOption,
    PlaybookArgument,
    end_with,
    hosts_of,
)
from fleet.cli.live import listening
from fleet.cli.lockfile import LockFileOption, before, lock_for, write_planned
from fleet.cli.results import show_admin, show_devices, show_errors, show_plans, show_records
from fleet.config.lockfile import load_lock, lock_path
from fleet.config.playbook import load_playbook
from fleet.engine import releases
from fleet.engine.drift import drift as compare_with_lock
from fleet.engine.operation import Operation, Options
from fleet.engine.pool import DeviceResult
from fleet.model.errors import InputError
from fleet.model.inventory import Host

VerifyOption = Annotated[
    bool, typer.Option("--verify", help="Hash every file on the device, believe no size.")
]
RunOption = Annotated[
    bool | None,
    typer.Option("--run/--no-run", help="Run after it. Default: where something changed."),
]
RebootOption = Annotated[
    bool, typer.Option("--allow-reboot", help="Reboot devices where the plan says so.")
]
LockedOption = Annotated[
    bool, typer.Option("--locked", help="Deploy only what fleet.lock says, else fail.")
]
FrozenOption = Annotated[
    bool, typer.Option("--frozen", help="The builds and files of the lock; fetch nothing.")
]
DEFAULT_PARALLEL = 16


def register(root: typer.Typer) -> None:
    """Add the commands of releases."""
    root.command()(plan)
    root.command()(deploy)
    root.command()(status)
    root.command()(rollback)


def plan(
    playbook: PlaybookArgument,
    inventory: InventoryOption,
    limit: LimitOption = None,
    parallel: ParallelOption = None,
    verify: VerifyOption = False,
    offline: OfflineOption = False,
    accept_new: AcceptNewOption = False,
    admin: Annotated[
        bool, typer.Option("--admin", help="Only the commands for root, ready to copy.")
    ] = False,
    write_lock: Annotated[
        bool, typer.Option("--write-lock", help="Write what was planned into fleet.lock.")
    ] = False,
    lock_file: LockFileOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show what deploy would do, with every command that runs as root; change nothing.

    Example: fleet plan -i inventories/lab.yaml playbooks/tiny-genie.yaml
    """
    options = Options(verify=verify, offline=offline, accept_new=accept_new, parallel=parallel)
    if not write_lock:
        if lock_file is not None:
            raise InputError("--lock-file is given and not used", hint="add --write-lock")
        _plan(playbook, inventory, limit, options, as_json, admin=admin)
        return
    before(lock_path(playbook, lock_file), load_playbook(playbook).name, limit)
    with listening(as_json=as_json) as listener:
        operation = Operation(
            load_playbook(playbook), hosts_of(inventory, limit), listener, options=options
        )
        results, releases = operation.lock()
    if all(one.fine for one in results):
        write_planned(playbook, lock_file, operation, releases, limit)
    else:
        output.note("the lock is not written: not every device can be deployed to")
    _show_planned(results, as_json, admin=admin)


def _plan(
    playbook: PlaybookArgument,
    inventory: InventoryOption,
    limit: LimitOption,
    options: Options,
    as_json: bool,
    *,
    admin: bool = False,
) -> None:
    with listening(as_json=as_json) as listener:
        operation = Operation(
            load_playbook(playbook), hosts_of(inventory, limit), listener, options=options
        )
        results = operation.plan()
    _show_planned(results, as_json, admin=admin)


def _show_planned(results: list[DeviceResult], as_json: bool, *, admin: bool) -> None:
    if as_json:
        for one in results:
            if one.plan is not None:
                output.emit_line({"event": "Plan", **one.plan.as_dict()})
    else:
        (show_admin if admin else show_plans)(results)
        show_errors([one for one in results if not (one.plan and one.plan.refused)])
    _end(results)


def deploy(
    playbook: PlaybookArgument,
    inventory: InventoryOption,
    limit: LimitOption = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="As `fleet plan`.")] = False,
    run: RunOption = None,
    parallel: ParallelOption = None,
    verify: VerifyOption = False,
    offline: OfflineOption = False,
    accept_new: AcceptNewOption = False,
    allow_reboot: RebootOption = False,
    locked: LockedOption = False,
    frozen: FrozenOption = False,
    lock_file: LockFileOption = None,
    as_json: JsonOption = False,
) -> None:
    """Make the devices as the playbook says, run it there, bring the profile back.

    Example: fleet deploy -i inventories/lab.yaml playbooks/tiny-genie.yaml --limit lab001
    """
    word = {None: "auto", True: "always", False: "never"}[run]
    lock = lock_for(playbook, lock_file, locked=locked, frozen=frozen)
    options = Options(
        word, verify, offline, accept_new, parallel, allow_reboot, lock=lock, frozen=frozen
    )
    if dry_run:
        _plan(playbook, inventory, limit, options, as_json)
        return
    with listening(as_json=as_json) as listener:
        operation = Operation(
            load_playbook(playbook), hosts_of(inventory, limit), listener, options=options
        )
        results = operation.deploy()
    if not as_json:
        show_devices(f"deploy {operation.playbook.name}", results)
        show_measured(operation, results)
    _end(results)


def show_measured(operation: Operation, results: list[DeviceResult]) -> None:
    """The table of runs, and where the records are."""
    records = [record.as_dict() for one in results for record in one.records]
    if records:
        show_records(f"{operation.playbook.name}: run {operation.run_id}", records)
        output.note(f"records: {operation.runs.root / operation.run_id}")
        output.note(f"next: fleet profiles show {operation.run_id}")
    elif any(one.outcome == "unchanged" for one in results) and operation.playbook.run:
        output.note("nothing changed, so nothing was run; measure again with: fleet run")


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
        _drift(hosts, drift, lock_file, parallel, accept_new, verify, as_json)
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
    _end(results)


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


def _drift(
    hosts: tuple[Host, ...],
    of: Path,
    given: Path | None,
    parallel: int | None,
    accept_new: bool,
    verify: bool,
    as_json: bool,
) -> None:
    if of.suffix == ".lock":
        lock, target = load_lock(of), None
    else:
        playbook = load_playbook(of)
        lock, target = load_lock(lock_path(of, given)).of(playbook.name), playbook.runtime.target
    results = compare_with_lock(
        hosts,
        lock,
        lambda _: None,
        target=target,
        verify=verify,
        parallel=parallel or DEFAULT_PARALLEL,
        accept_new=accept_new,
    )
    if as_json:
        output.emit_json(
            [{"host": one.host.name, "outcome": one.outcome, **one.details} for one in results]
        )
    else:
        rows = [(one.host.name, one.outcome, one.text) for one in results]
        output.table(f"drift from {lock.name}", ("device", "outcome", ""), rows)
    show_errors(results)
    _end(results)


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
    with listening(as_json=as_json) as listener:
        results = releases.rollback(
            hosts_of(inventory, limit),
            name,
            listener,
            to=to,
            parallel=parallel or DEFAULT_PARALLEL,
        )
    if not as_json:
        show_devices(f"rollback {name}", results)
    _end(results)


def _end(results: list[DeviceResult]) -> None:
    end_with([one.error for one in results], all(one.fine for one in results))
