"""The operations of the command line and the Python API: plan, deploy and run on many devices."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import TYPE_CHECKING

from msgspec import structs

from fleet.engine.deploy.apply import apply_and_look
from fleet.engine.deploy.drift import locked_plan, require_locked
from fleet.engine.deploy.plan import Planned, plan_device, plan_system, refuse, require_current
from fleet.engine.deploy.release_builder import Builder, ReleaseBuilder
from fleet.engine.deploy.switch import apply_plan
from fleet.engine.lease.lease import Lease
from fleet.engine.options import DeployOptions
from fleet.engine.pool import DeviceResult, PoolOptions, Remote, Value, Work, on_every_device
from fleet.engine.rollout.deploying import begin, roll_out, waves_of
from fleet.engine.rollout.driver import Ending
from fleet.engine.rollout.inputs import Inputs
from fleet.engine.rollout.journal import Journal
from fleet.engine.rollout.waves import Wave
from fleet.engine.run.measuring.validity import words_of
from fleet.engine.run.run import RunJob, run_device
from fleet.engine.run.verify import (
    NodeUse,
    ask_samples,
    ask_suite,
    prepare_nodes,
    prepare_samples,
    require_right,
    require_steady,
)
from fleet.engine.session import Session
from fleet.engine.system.provision import still_lacking
from fleet.engine.system.undo import UndoLog, undo_root
from fleet.engine.transfer.context import TransferContext, TransferOptions, options_of
from fleet.model.errors import InputError, WorkstationError
from fleet.model.events import DevicePlanned, Listener
from fleet.model.inventory import Host
from fleet.model.lockfile import LockedRelease
from fleet.model.plan import DevicePlan, PruneReleases
from fleet.model.playbook import Playbook, RunSpec
from fleet.model.record import Record
from fleet.profiles.runs import RunStore, new_run_id
from fleet.runtimes.store import RuntimeStore

if TYPE_CHECKING:
    from fleet.verify.tensors import PreparedSamples


@dataclass(frozen=True)
class Resources:
    """The stores of this workstation, None for the default ones; `executor`: on_every_device."""

    runtimes: RuntimeStore | None = None
    runs: RunStore | None = None
    executor: Executor | None = None


class Operation:
    """A playbook on hosts.

    Each method works on every host in parallel and never raises for a single host: the DeviceResult
    of the host has the error.
    """

    def __init__(
        self,
        playbook: Playbook,
        hosts: Sequence[Host],
        listener: Listener,
        *,
        options: DeployOptions | None = None,
        resources: Resources | None = None,
        builder: Builder | None = None,
        run_id: str = "",
        inputs: Inputs | None = None,
    ) -> None:
        """Prepare the work on `hosts`; nothing is sent yet.

        A worker passes `builder` and `run_id`. With `inputs` a
        deploy has a journal and can be resumed under its `run_id`.
        """
        self.playbook = playbook
        self.hosts = tuple(hosts)
        self.options = options or DeployOptions()
        if playbook.tune and self.options.transfer == TransferOptions():
            self.options = structs.replace(self.options, transfer=options_of(playbook.tune))
        self.transfer = TransferContext(self.options.transfer)
        self.run_id = run_id or new_run_id()
        self.inputs = inputs
        self.owed: frozenset[str] = frozenset()
        self.repeats = 1
        self.nodes: NodeUse | None = None
        self.ending = Ending("finished")
        resources = resources or Resources()
        self.runs = resources.runs or RunStore()
        self._listener = listener
        self._executor = resources.executor
        self.builder: Builder = builder or ReleaseBuilder(
            playbook,
            resources.runtimes or RuntimeStore(),
            listener,
            offline=self.options.offline,
            frozen=self.options.lock if self.options.frozen else None,
        )

    def plan(self) -> list[DeviceResult[None]]:
        """Plan the deploy of each device, and change nothing."""
        return self._everywhere(self._plan)

    def deploy(self) -> list[DeviceResult[None]]:
        """Deploy the playbook to the devices, then run it if that is wanted.

        Works in waves if the playbook has `rollout:`. `ending` tells how the deploy ended. Raises
        InputError for impossible waves, and FleetError if the journal cannot be written.
        """
        spec = self.playbook.rollout
        if spec is not None and self.afar and (spec.soak or spec.on_fail == "rollback"):
            raise InputError(
                "--executor does not support `soak` and `on_fail: rollback` of the playbook",
                hint="add --soak 0 --on-fail stop; or deploy without --executor",
            )
        self._check_samples()
        return self.go_on(begin(self, self._listener))

    @property
    def afar(self) -> bool:
        """True if the workers of a cluster do the work."""
        return isinstance(self._executor, Remote)

    def waves(self) -> tuple[Wave, ...]:
        """Return the waves in which a deploy would reach the devices."""
        return waves_of(self.playbook.rollout, self.hosts)

    def go_on(self, journal: Journal) -> list[DeviceResult[None]]:
        """Resume the deploy of a journal. `ending` tells how it ended."""
        results, self.ending = roll_out(self, journal, self._listener)
        return results

    def provision(self) -> list[DeviceResult[None]]:
        """Apply the system part alone: packages, groups, rules, units and files.

        Releases stay untouched. Raises InputError for a playbook without a system part.
        """
        if self.playbook.system.empty:
            raise InputError(
                f"{self.playbook.path} has neither `fastrpc:` nor `system:`, so `fleet "
                "deploy --only system` has nothing to do",
                hint="add `fastrpc: auto` or `system:` to the playbook; see docs/provisioning.md",
            )
        return self._everywhere(self._provision_alone)

    def lock(self) -> tuple[list[DeviceResult[None]], tuple[LockedRelease, ...]]:
        """Plan each device, and return the release to lock for each kind of device; change
        nothing.
        """
        results = self.plan()
        plans = [result.plan for result in results if result.plan is not None]
        releases = {
            (locked.target, locked.arch): locked
            for locked in (locked_plan(p, self.builder) for p in plans)
        }
        return results, tuple(releases[key] for key in sorted(releases))

    def run(self) -> list[DeviceResult[None]]:
        """Run the deployed release; a device that is not up to date fails. Raises InputError."""
        if self.playbook.run is None:
            raise InputError(
                f"{self.playbook.path} has no `run:` section",
                hint="add `run:` with a prompt; see docs/playbook.md",
            )
        return self._everywhere(self._run)

    def verify(self, repeats: int = 1, *, nodes: bool = False) -> list[DeviceResult[None]]:
        """Ask the suite and run the samples of the playbook on the deployed release.

        With `repeats` above 1, different answers to the same prompt are an error. With `nodes`,
        each node of the network is also compared with the reference. Raises InputError.
        """
        if self.playbook.suite is None and self.playbook.verify is None:
            raise InputError(
                f"{self.playbook.path} has neither `suite:` nor `verify:`, so `fleet verify` has "
                "nothing to check",
                hint="add --suite instruct (20 prompts for instruction models), or write `suite:`; "
                "see docs/verify.md",
            )
        self._check_samples()
        if repeats > 1 and self.afar:
            raise InputError(
                "--executor does not support --repeats", hint="work without --executor"
            )
        self.repeats = repeats
        self.nodes = prepare_nodes(self.builder) if nodes else None
        return self._everywhere(self._verify)

    def _check_samples(self) -> None:
        """Read the samples of `verify:`, so that a bad sample is an error before anything is sent.

        Raises InputError, also for workers of a cluster, which do not have the files.
        """
        if self._samples is not None and self.afar:
            raise InputError(
                "--executor does not support `verify:` of the playbook",
                hint="remove `verify:`, or work without --executor",
            )

    @cached_property
    def _samples(self) -> PreparedSamples | None:
        return prepare_samples(self.builder)

    def _everywhere(self, work: Work[None]) -> list[DeviceResult[None]]:
        return self.everywhere(work, self.hosts, self._listener)

    def everywhere(
        self,
        work: Work[Value],
        hosts: Sequence[Host],
        listener: Listener,
        *,
        admit: Callable[[Host], bool] | None = None,
        done: Callable[[DeviceResult[Value]], None] | None = None,
    ) -> list[DeviceResult[Value]]:
        """Run `work` as on_every_device does, with the PoolOptions of the operation."""
        options = PoolOptions(
            parallel=self.options.parallel or self.playbook.parallel,
            accept_new=self.options.accept_new,
            admit=admit,
            done=done,
            transfer=self.transfer,
            executor=self._executor,
        )
        return on_every_device(hosts, work, listener, options)

    def _planned(self, session: Session, result: DeviceResult[None]) -> Planned:
        planned = plan_device(session, self.builder, verify=self.options.verify)
        result.plan = planned.plan
        if self.options.lock is not None:
            require_locked(planned.plan, self.builder, self.options.lock)
        return planned

    def _plan(self, session: Session, result: DeviceResult[None]) -> None:
        plan = self._planned(session, result).plan
        refuse(plan)
        result.outcome = "unchanged" if plan.unchanged else "planned"
        result.text = f"release {plan.manifest.id}"

    def bring(self, session: Session, result: DeviceResult[None]) -> None:
        """Deploy to one device.

        A device of `owed` also gets the steps that its switch may have missed.
        """
        with Lease(session, f"deploy {self.playbook.name}", self.run_id) as lease:
            self._bring(session, result, lease)

    def _bring(self, session: Session, result: DeviceResult[None], lease: Lease) -> None:
        planned = self._planned(session, result)
        refuse(planned.plan)
        if not planned.plan.unchanged:
            self.builder.bring(planned.plan)
            lease.take()
            bare = planned.plan.facts.store is False and not planned.plan.system_steps
            if not bare and not lease.follows(planned.generation):
                # another deploy may have ended in between
                planned = self._planned(session, result)
        plan = first = planned.plan
        refuse(plan)
        self.builder.bring(plan)
        _warn(session, plan)
        if plan.system_steps:
            plan = self._provision(session, planned)
        if session.host.name in self.owed and plan.unchanged:
            owed = PruneReleases(plan.manifest.name, self.playbook.keep)
            plan = first = replace(plan, actions=(*first.actions, owed))
        session.emit(
            DevicePlanned(
                session.host.name,
                plan.manifest.id,
                plan.current,
                f"{plan.target} {plan.facts.soc.hexagon_arch or ''}".strip(),
                plan.facts.boot_id or "",
            )
        )
        gate = partial(self._ask, session, result, plan, "health")
        apply_plan(session, plan, self.run_id, gate=gate)
        plan = result.plan = replace(plan, actions=first.actions, system=first.system)
        result.outcome = "unchanged" if plan.unchanged else "changed"
        result.text = f"release {plan.manifest.id}"
        wanted = {"always": True, "never": False}.get(self.options.run, not plan.unchanged)
        if wanted and self.playbook.run is not None:
            try:
                self._measure(session, result, plan)
            except WorkstationError as error:
                error.message += (
                    f"; release {plan.manifest.id} is deployed, but fleet could not save its run"
                )
                raise
        if not plan.unchanged:
            self._ask(session, result, plan, "run")

    def _provision_alone(self, session: Session, result: DeviceResult[None]) -> None:
        spec = self.playbook.system
        with Lease(session, f"provision {self.playbook.name}", self.run_id) as lease:
            planned = plan_system(session, spec)
            refuse(planned.plan)
            if not planned.plan.unchanged:
                lease.take()
                planned = plan_system(session, spec)
                refuse(planned.plan)
            result.plan = planned.plan
            _warn(session, planned.plan)
            if not planned.plan.unchanged:
                left = self._apply(session, planned, lambda: plan_system(session, spec))
                still_lacking(left)
                refuse(left)
        result.outcome = "unchanged" if planned.plan.unchanged else "changed"
        result.text = f"{len(planned.plan.actions)} steps change the system"

    def _provision(self, session: Session, planned: Planned) -> DevicePlan:
        """Apply the system part, then plan the device again; every refusal counts."""
        verify = self.options.verify
        look = partial(plan_device, session, self.builder, verify=verify)
        plan = self._apply(session, planned, look)
        still_lacking(plan)
        refuse(plan)
        return plan

    def _apply(self, session: Session, planned: Planned, look: Callable[[], Planned]) -> DevicePlan:
        log = UndoLog(undo_root(self.runs), self.run_id, session.host.name)
        leave = self.options.allow_reboot
        return apply_and_look(session, planned, look, log, allow_reboot=leave).plan

    def _run(self, session: Session, result: DeviceResult[None]) -> None:
        plan = self._planned(session, result).plan
        require_current(plan)
        result.outcome = "ran"
        with Lease(session, f"run {self.playbook.name}", self.run_id):
            self._measure(session, result, plan)

    def _verify(self, session: Session, result: DeviceResult[None]) -> None:
        plan = self._planned(session, result).plan
        require_current(plan)
        result.outcome = "ok"
        with Lease(session, f"verify {self.playbook.name}", self.run_id):
            for _ in range(self.repeats):
                self._ask(session, result, plan)
        require_steady(result.records)

    def _ask(
        self, session: Session, result: DeviceResult[None], plan: DevicePlan, gate: str = ""
    ) -> None:
        """Ask the suite and run the samples that belong to `gate`, or all if it is "".

        The records go into the result. Raises AnswerError if a suite or the samples do not pass.
        """
        job = self._job(session, plan, self.playbook.run or RunSpec(self.builder.runner.name))
        suite, samples = self.playbook.suite, self.playbook.verify
        records: list[Record] = []
        if suite is not None and gate in {"", suite.gate}:
            records.append(ask_suite(job, suite.suite))
        if samples is not None and self._samples is not None and gate in {"", samples.gate}:
            records.append(ask_samples(job, self._samples, self.nodes))
        result.records += records
        answers = [record.suite for record in records if record.suite is not None]
        for each in answers:
            require_right(each, session.host.name)
        result.text = ", ".join(each.shown for each in answers) or result.text

    def _job(self, session: Session, plan: DevicePlan, run: RunSpec) -> RunJob:
        return RunJob(
            session, self.builder, plan, run, self.runs, self.run_id, session.identity,
            self.options.tags,
        )  # fmt: skip

    def _measure(self, session: Session, result: DeviceResult[None], plan: DevicePlan) -> None:
        run = self.playbook.run
        if run is None:
            return
        measured: list[Record] = []
        try:
            run_device(self._job(session, plan, run), measured)
        finally:
            result.records += measured
        bad = [record for record in measured if record.problems]
        if bad:
            result.outcome = "failed"
            result.text = f"{len(bad)} of {len(measured)} runs are not valid: " + "; ".join(
                sorted({words_of(problem) for record in bad for problem in record.problems})
            )


def _warn(session: Session, plan: DevicePlan) -> None:
    for finding in plan.findings:
        cure = finding.cure_on(session.host.name)
        session.warn(f"{finding.rule}: {finding.message}; try: {cure}")
