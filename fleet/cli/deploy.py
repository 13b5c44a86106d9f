"""`fleet plan`, `fleet deploy`."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Sequence
from typing import Annotated

import typer

from fleet.cli import output
from fleet.cli.common import end_devices, hosts_of, working_on
from fleet.cli.live import listening
from fleet.cli.lockfile import before, lock_for, write_planned
from fleet.cli.measured import show_records
from fleet.cli.options import (
    AcceptNewOption,
    ExecutorOption,
    InventoryOption,
    JsonOption,
    LimitOption,
    LockFileOption,
    OfflineOption,
    ParallelOption,
    PlaybookArgument,
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
from fleet.cli.results import show_admin, show_devices, show_errors, show_plans
from fleet.cli.rollout import (
    CanaryOption,
    MaxFailedOption,
    MaxUnreachableOption,
    OnFailOption,
    SoakOption,
    WavesOption,
    show_waves,
    with_rollout,
)
from fleet.config.lockfile import lock_path
from fleet.config.playbook import load_playbook
from fleet.engine.operation import Operation
from fleet.engine.options import Options
from fleet.engine.pool import DeviceResult
from fleet.engine.rollout.inputs import Inputs, inputs_of
from fleet.model.errors import InputError
from fleet.model.inventory import Host
from fleet.model.playbook import Playbook
from fleet.profiles.runs import RunStore

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


def register(root: typer.Typer) -> None:
    """Add the commands of releases."""
    root.command()(plan)
    root.command()(deploy)


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
    carrier: CarrierOption = "auto",
    whole: WholeOption = False,
    executor: ExecutorOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show what deploy would do, with every command that runs as root; change nothing.

    Example: fleet plan -i inventories/lab.yaml playbooks/tiny-genie.yaml
    """
    pace = pace_of(carrier, None, None, whole, "auto")
    options = Options(
        verify=verify, offline=offline, accept_new=accept_new, parallel=parallel, pace=pace
    )
    if not write_lock:
        if lock_file is not None:
            raise InputError("--lock-file is given and not used", hint="add --write-lock")
        _plan(load_playbook(playbook), inventory, limit, options, as_json, executor, admin=admin)
        return
    before(lock_path(playbook, lock_file), load_playbook(playbook).name, limit)
    hosts = hosts_of(inventory, limit)
    with listening(as_json=as_json) as listener, working_on(executor, options.parallel) as remote:
        operation = Operation(
            load_playbook(playbook),
            hosts,
            listener,
            options=options,
            executor=remote,
        )
        results, releases = operation.lock()
    if all(one.fine for one in results):
        write_planned(playbook, lock_file, operation, releases, limit)
    else:
        output.note("the lock is not written: not every device can be deployed to")
    _show_planned(results, as_json, admin=admin)


def _plan(
    playbook: Playbook,
    inventory: InventoryOption,
    limit: LimitOption,
    options: Options,
    as_json: bool,
    executor: str | None,
    *,
    admin: bool = False,
) -> None:
    hosts = hosts_of(inventory, limit)
    with listening(as_json=as_json) as listener, working_on(executor, options.parallel) as remote:
        operation = Operation(
            playbook,
            hosts,
            listener,
            options=options,
            executor=remote,
        )
        waves = operation.waves()
        results = operation.plan()
    if not admin:
        show_waves(waves, playbook.rollout, as_json=as_json)
    _show_planned(results, as_json, admin=admin)


def _show_planned(results: list[DeviceResult], as_json: bool, *, admin: bool) -> None:
    if as_json:
        for one in results:
            if one.plan is not None:
                output.emit_line({"event": "Plan", **one.plan.as_dict()})
    else:
        (show_admin if admin else show_plans)(results)
        show_errors([one for one in results if not (one.plan and one.plan.refused)])
    end_devices(results)


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
    canary: CanaryOption = None,
    waves: WavesOption = None,
    max_failed: MaxFailedOption = None,
    max_unreachable: MaxUnreachableOption = None,
    soak: SoakOption = None,
    on_fail: OnFailOption = None,
    carrier: CarrierOption = "auto",
    bandwidth: BandwidthOption = None,
    per_hub: PerHubOption = None,
    whole: WholeOption = False,
    compress: CompressOption = "auto",
    relay: RelayOption = False,
    executor: ExecutorOption = None,
    as_json: JsonOption = False,
) -> None:
    """Make the devices as the playbook says, run it there, bring the profile back.

    Example: fleet deploy -i inventories/lab.yaml playbooks/tiny-genie.yaml --limit lab001
    """
    word = {None: "auto", True: "always", False: "never"}[run]
    lock = lock_for(playbook, lock_file, locked=locked, frozen=frozen)
    pace = pace_of(carrier, bandwidth, per_hub, whole, compress, relay)
    options = Options(word, verify, offline, accept_new, parallel, allow_reboot, lock, frozen, pace)
    loaded = with_rollout(
        load_playbook(playbook), canary, waves, max_failed, max_unreachable, soak, on_fail
    )
    if dry_run:
        _plan(loaded, inventory, limit, options, as_json, executor)
        return
    inputs = inputs_of(playbook, inventory, limit, lock_path(playbook, lock_file) if lock else None)
    _deploy(loaded, hosts_of(inventory, limit), inputs, options, executor, as_json=as_json)


def _deploy(
    loaded: Playbook,
    hosts: Sequence[Host],
    inputs: Inputs,
    options: Options,
    executor: str | None,
    *,
    as_json: bool,
) -> None:
    with listening(as_json=as_json) as listener, working_on(executor, options.parallel) as remote:
        operation = Operation(
            loaded, hosts, listener, options=options, executor=remote, inputs=inputs
        )
        results = with_way_back(operation, operation.deploy)
    end_deploy(operation, results, as_json=as_json)


def with_way_back(
    operation: Operation, work: Callable[[], list[DeviceResult]]
) -> list[DeviceResult]:
    """Do it; whoever ends it by Ctrl-C is told how to go on."""
    try:
        return work()
    except KeyboardInterrupt:
        output.advise(f"interrupted; go on with: fleet resume {operation.run_id}")
        raise


def end_deploy(operation: Operation, results: list[DeviceResult], *, as_json: bool) -> None:
    """Tables, how the rollout ended, and the exit code."""
    if not as_json:
        show_devices(f"deploy {operation.playbook.name}", results)
        if operation.playbook.rollout is not None and operation.ending.text:
            output.note(f"rollout: {operation.ending.text}")
        if operation.ending.word not in {"finished", "rolled back"}:
            output.advise(f"next: fleet resume {operation.run_id}")
        show_measured(operation, results)
    end_devices(results)


def show_measured(operation: Operation, results: list[DeviceResult]) -> None:
    """The table of runs, and where the records are."""
    records = [record.as_dict() for one in results for record in one.records]
    if records:
        show_records(f"{operation.playbook.name}: run {operation.run_id}", records)
        output.note(f"records: {operation.runs.root / operation.run_id}")
        other = operation.runs.root != RunStore().root
        store = f" --store {shlex.quote(str(operation.runs.root))}" if other else ""
        output.advise(f"next: fleet profiles show {operation.run_id}{store}")
    elif any(one.outcome == "unchanged" for one in results) and operation.playbook.run:
        output.advise("nothing changed, so nothing was run; measure again with: fleet run")
