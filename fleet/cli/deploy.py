"""`fleet plan`, `fleet deploy`, and the runs that a deploy can continue."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from fleet.cli import options as opt
from fleet.cli import output
from fleet.cli import rollout_options as rollout
from fleet.cli.common import end_devices, hosts_of, working_on
from fleet.cli.hints import know
from fleet.cli.live import listening
from fleet.cli.lockfile import before, lock_for, write_planned
from fleet.cli.measured import show_records
from fleet.cli.results import show_admin, show_devices, show_errors, show_plans
from fleet.cli.rollout_options import RolloutFlags
from fleet.config.lockfile import lock_path
from fleet.config.playbook import load_playbook
from fleet.engine.deploy.operation import Operation, Resources
from fleet.engine.options import DeployOptions
from fleet.engine.pool import DeviceResult
from fleet.engine.rollout.claim import claimed
from fleet.engine.rollout.deploying import continuation
from fleet.engine.rollout.inputs import Inputs, inputs_of
from fleet.engine.rollout.journal import Journal
from fleet.engine.rollout.lines import ResumeLine
from fleet.engine.rollout.resume import journal_path, known_runs, reopen, require_what_is_asked
from fleet.engine.transfer.context import options_of
from fleet.model.errors import InputError
from fleet.model.events import RolloutDone
from fleet.model.inventory import Host
from fleet.model.lockfile import Lock
from fleet.model.plain import to_plain
from fleet.model.playbook import Playbook
from fleet.profiles.runs import RunStore

RunOption = Annotated[
    bool | None,
    typer.Option(
        "--run/--no-run", help="Run the model after the deploy. Default: run if something changed."
    ),
]
WHEN = {None: "auto", True: "always", False: "never"}
OnlyOption = Annotated[
    Literal["system"] | None,
    typer.Option(
        help="Apply only this part of the playbook: system (FastRPC, packages, groups, rules, "
        "files)."
    ),
]
ResumeOption = Annotated[
    str | None,
    typer.Option(
        metavar="RUN",
        rich_help_panel=opt.CONTINUE,
        is_eager=True,
        help="Continue this run on the devices that failed, were unreachable or did not finish: "
        "a run id, as `fleet deploy` prints it, or `last`.",
    ),
]
RunsOption = Annotated[
    bool,
    typer.Option(
        "--runs",
        rich_help_panel=opt.CONTINUE,
        is_eager=True,
        help="List the runs of this computer with their progress.",
    ),
]
ForceOption = Annotated[
    bool,
    typer.Option(
        "--force-inputs",
        rich_help_panel=opt.CONTINUE,
        is_eager=True,
        help="With --resume: continue even if the playbook or files changed.",
    ),
]
LockedOption = Annotated[
    bool,
    typer.Option(
        "--locked",
        rich_help_panel=opt.LOCK,
        help="Fail unless the deploy matches fleet.lock exactly.",
    ),
]
FrozenOption = Annotated[
    bool,
    typer.Option(
        "--frozen",
        rich_help_panel=opt.LOCK,
        help="Use the builds and files in fleet.lock; download nothing.",
    ),
]


def plan(
    playbook: opt.Playbook,
    inventory: opt.Inventory,
    limit: opt.Limit = None,
    parallel: opt.Parallel = None,
    verify: opt.Verify = False,
    offline: opt.Offline = False,
    accept_new: opt.AcceptNew = False,
    admin: Annotated[
        bool,
        typer.Option(
            "--admin",
            help="Print only the commands that need root, for an administrator to run on "
            "the device.",
        ),
    ] = False,
    write_lock: Annotated[
        bool, typer.Option("--write-lock", help="Write the planned files to fleet.lock.")
    ] = False,
    lock_file: opt.LockFile = None,
    tune: opt.Tune = None,
    executor: opt.Executor = None,
    as_json: opt.Json = False,
) -> None:
    """Show what deploy would do, with every command that runs as root; change nothing.

    Example: fleet plan -i inventories/lab.yaml playbooks/tiny-genie.yaml
    """
    loaded = load_playbook(playbook)
    how = options_of([*loaded.tune, *(tune or ())])
    options = DeployOptions(
        verify=verify, offline=offline, accept_new=accept_new, parallel=parallel, transfer=how
    )
    if lock_file is not None and not write_lock:
        raise InputError("--lock-file has no effect without --write-lock", hint="add --write-lock")
    if not write_lock:
        _plan(loaded, inventory, limit, options, as_json, executor, admin=admin)
        return
    before(lock_path(playbook, lock_file), loaded.name, limit)
    hosts = hosts_of(inventory, limit)
    with _operation(loaded, hosts, options, executor, as_json) as operation:
        results, releases = operation.lock()
    if all(result.fine for result in results):
        write_planned(playbook, lock_file, operation, releases, limit)
    else:
        output.note("the lock file was not written: correct the errors below first")
    _show_planned(results, as_json, admin=admin)


def _plan(
    playbook: Playbook,
    inventory: opt.Inventory,
    limit: opt.Limit,
    options: DeployOptions,
    as_json: bool,
    executor: str | None,
    *,
    admin: bool = False,
) -> None:
    hosts = hosts_of(inventory, limit)
    with _operation(playbook, hosts, options, executor, as_json) as operation:
        waves = operation.waves()
        results = operation.plan()
    if not admin:
        rollout.show_waves(waves, playbook.rollout, as_json=as_json)
    _show_planned(results, as_json, admin=admin)


@contextmanager
def _operation(
    playbook: Playbook,
    hosts: Sequence[Host],
    options: DeployOptions,
    executor: str | None,
    as_json: bool,
    inputs: Inputs | None = None,
) -> Iterator[Operation]:
    with (
        listening(as_json=as_json, total=len(hosts)) as listener,
        working_on(executor, options.parallel) as remote,
    ):
        yield Operation(
            playbook,
            hosts,
            listener,
            options=options,
            inputs=inputs,
            run_id=claimed() if inputs else "",
            resources=Resources(executor=remote),
        )


def _show_planned(results: list[DeviceResult[Any]], as_json: bool, *, admin: bool) -> None:
    if as_json:
        for result in results:
            if result.plan is not None:
                output.emit_line({"event": "Plan", **to_plain(result.plan)})
    else:
        (show_admin if admin else show_plans)(results)
        show_errors([result for result in results if not (result.plan and result.plan.refused)])
    end_devices(results)


@dataclass(frozen=True)
class DeployFlags:
    """The options of `fleet deploy` as typed, in the order of its help."""

    dry_run: Annotated[bool, typer.Option("--dry-run", help="Same as `fleet plan`.")] = False
    run: RunOption = None
    only: OnlyOption = None
    parallel: opt.Parallel = None
    offline: opt.Offline = False
    accept_new: opt.AcceptNew = False
    allow_reboot: opt.AllowReboot = False
    resume: ResumeOption = None
    runs: RunsOption = False
    force_inputs: ForceOption = False
    rollout: RolloutFlags = field(default_factory=RolloutFlags)
    locked: LockedOption = False
    frozen: FrozenOption = False
    lock_file: opt.LockFile = None
    verify: opt.Verify = False
    tune: opt.Tune = None
    executor: opt.Executor = None

    def options(self, playbook: Playbook, lock: Lock | None = None) -> DeployOptions:
        """Return the options of the deploy, with the playbook's settings for the transfer."""
        return DeployOptions(
            run=WHEN[self.run],
            verify=self.verify,
            offline=self.offline,
            accept_new=self.accept_new,
            parallel=self.parallel,
            allow_reboot=self.allow_reboot,
            lock=lock,
            frozen=self.frozen,
            transfer=options_of([*playbook.tune, *(self.tune or ())]),
        )


@opt.spread
def deploy(
    context: typer.Context,
    playbook: opt.Playbook,
    inventory: opt.Inventory,
    limit: opt.Limit = None,
    *,
    flags: DeployFlags,
    as_json: opt.Json = False,
) -> None:
    """Bring the devices to the state of the playbook, run the model and collect the profiles.

    Example: fleet deploy -i inventories/lab.yaml playbooks/tiny-genie.yaml --limit lab001
    Example: fleet deploy --resume last
    """
    if flags.resume or flags.runs or flags.force_inputs:
        return _earlier(context, flags, as_json=as_json)
    loaded = load_playbook(playbook)
    if flags.only:
        return _deploy_system(
            context, loaded, inventory, limit, flags.options(loaded), as_json=as_json
        )
    lock = lock_for(playbook, flags.lock_file, locked=flags.locked, frozen=flags.frozen)
    options, executor = flags.options(loaded, lock), flags.executor
    loaded = rollout.with_rollout(loaded, flags.rollout)
    if flags.dry_run:
        return _plan(loaded, inventory, limit, options, as_json, executor)
    file = lock_path(playbook, flags.lock_file) if lock else None
    inputs = inputs_of(playbook, inventory, limit, file)
    return _deploy(loaded, hosts_of(inventory, limit), options, executor, as_json, inputs)


def _deploy(
    playbook: Playbook,
    hosts: Sequence[Host],
    options: DeployOptions,
    executor: str | None,
    as_json: bool,
    inputs: Inputs,
) -> None:
    with (
        _operation(playbook, hosts, options, executor, as_json, inputs) as operation,
        output.interruptible(partial(_interrupted, operation.run_id)),
    ):
        results = operation.deploy()
    end_deploy(operation, results, as_json=as_json)


_OF_SYSTEM = {
    "playbook", "inventory", "limit", "only", "parallel", "accept_new", "allow_reboot", "as_json",
}  # fmt: skip


def _deploy_system(
    context: typer.Context,
    playbook: Playbook,
    inventory: Path,
    limit: list[str] | None,
    options: DeployOptions,
    *,
    as_json: bool,
) -> None:
    opt.refuse_others(context, "--only system", _OF_SYSTEM)
    hosts = hosts_of(inventory, limit)
    with _operation(playbook, hosts, options, None, as_json) as operation:
        results = operation.provision()
    if not as_json:
        show_devices(f"deploy {playbook.name}, only its system part", results)
    end_devices(results)


def _earlier(context: typer.Context, flags: DeployFlags, *, as_json: bool) -> None:
    """List the runs, or continue a run: its playbook, inventory and options are in its journal.

    The exit code is 0 for a finished run and 1 for one that was rolled back. `last` is the run that
    began last. If its playbook or files have changed since, the exit code is 2.
    """
    if flags.runs:
        opt.refuse_others(context, "--runs", {"runs", "as_json"})
        _show_runs(RunStore(), as_json=as_json)
        return
    if flags.resume is None:
        raise InputError("--force-inputs has no effect without --resume", hint="add --resume RUN")
    opt.refuse_others(context, "--resume", {"resume", "force_inputs", "parallel", "as_json"})
    _resume(flags.resume, flags.parallel, force=flags.force_inputs, as_json=as_json)


def _interrupted(run_id: str) -> str:
    return f"the deploy was interrupted; continue with: fleet deploy --resume {run_id}"


def end_deploy(operation: Operation, results: list[DeviceResult[Any]], *, as_json: bool) -> None:
    """Show the tables and how the rollout ended, and exit with the code of the devices."""
    if not as_json:
        show_devices(f"deploy {operation.playbook.name}", results)
        if operation.playbook.rollout is not None and operation.ending.text:
            output.note(f"rollout: {operation.ending.text}")
        if operation.ending.word not in {"finished", "rolled back"}:
            command = continuation(operation.run_id, results)
            first = (
                "remove the causes of the refusals, then: "
                if "--resume" not in command
                else "next: "
            )
            output.advise(f"{first}{command}")
        show_measured(operation, results)
    end_devices(results)


def show_measured(operation: Operation, results: list[DeviceResult[Any]]) -> None:
    """Show the table of runs, and where the records are."""
    records = [to_plain(r) for result in results for r in result.records if r.suite is None]
    if any(record.suite for result in results for record in result.records):
        from fleet.cli.verify import show_answers  # noqa: PLC0415 - only with `suite:`

        show_answers(results)
    if records:
        show_records(f"{operation.playbook.name}: run {operation.run_id}", records)
        output.note(f"results are in: {operation.runs.root / operation.run_id}")
        other = operation.runs.root != RunStore().root
        store = f" --store {shlex.quote(str(operation.runs.root))}" if other else ""
        output.advise(f"next: fleet profiles show {operation.run_id}{store}")
    elif any(result.outcome == "unchanged" for result in results) and operation.playbook.run:
        output.advise(
            "nothing changed, so fleet did not run the model; to measure again: fleet run"
        )


def _resume(run_id: str, parallel: int | None, *, force: bool, as_json: bool) -> None:
    runs = RunStore()
    journal = Journal.reopen(journal_path(run_id, runs))
    know(*_begun_with(journal))
    if journal.state.complete:
        if run_id == "last" and not (journal.state.rolling or force):
            require_what_is_asked(journal, runs)
        _show_complete(journal, as_json=as_json)
        if journal.state.rolling:
            raise typer.Exit(1)
        return
    with listening(as_json=as_json, total=len(journal.state.devices)) as listener:
        operation = reopen(journal, listener, runs=runs, force=force, parallel=parallel)
        journal.write(ResumeLine(forced=force))
        with output.interruptible(partial(_interrupted, operation.run_id)):
            results = operation.go_on(journal)
    end_deploy(operation, results, as_json=as_json)


def _begun_with(journal: Journal) -> list[str]:
    """Return the words of the deploy that wrote the journal; an empty list if its inputs are
    damaged.
    """
    header = journal.state.header
    if (inputs := header.inputs) is None:
        return []
    words = ["deploy", str(inputs.playbook), "--inventory", str(inputs.inventory)]
    words += [word for pattern in inputs.limit for word in ("--limit", str(pattern))]
    if inputs.lock_file is not None:
        words += [
            "--frozen" if header.options.frozen else "--locked",
            "--lock-file",
            str(inputs.lock_file),
        ]
    return words


def _show_complete(journal: Journal, *, as_json: bool) -> None:
    state, run_id = journal.state, journal.state.header.run
    if as_json:
        done = RolloutDone("", run_id, state.word, state.text, tuple(state.rows()))
        output.emit_line(done)
    elif state.rolling:
        output.say(f"run {run_id} was rolled back: {state.text or state.rolling}")
    else:
        output.say(f"run {run_id} is finished: {len(state.devices)} devices, nothing to do")


def _show_runs(runs: RunStore, *, as_json: bool) -> None:
    records = [to_plain(run) for run in known_runs(runs)]
    if as_json:
        output.emit_json(records)
        return
    rows = [
        (r["run"], r["name"], r["state"], f"{r['done']}/{r['devices']}", r["text"]) for r in records
    ]
    output.table("runs", ("run", "name", "state", "done", ""), rows)
