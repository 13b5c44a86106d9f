"""What the command line and the Python API do: plan, deploy, run on many devices."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from dataclasses import replace
from functools import cached_property, partial
from typing import TYPE_CHECKING

from msgspec import structs

from fleet.engine.applying import apply_and_look
from fleet.engine.drift import locked_plan, require_locked
from fleet.engine.lease.lease import Lease
from fleet.engine.measuring.validity import words_of
from fleet.engine.options import DeployOptions
from fleet.engine.planning import Planned, plan_device, plan_system, refuse, require_current
from fleet.engine.pool import DeviceResult, PoolOptions, Remote, Value, Work, on_every_device
from fleet.engine.provisioning import still_lacking
from fleet.engine.release_builder import ReleaseBuilder
from fleet.engine.releasing import apply_plan
from fleet.engine.rollout.deploying import begin, roll_out, waves_of
from fleet.engine.rollout.driver import Ending
from fleet.engine.rollout.inputs import Inputs
from fleet.engine.rollout.journal import Journal
from fleet.engine.rollout.waves import Wave
from fleet.engine.running import RunJob, Tee, Turn, keep_files, kit_of, record_of, run_device
from fleet.engine.session import Session
from fleet.engine.starting import Placed, execute, place
from fleet.engine.transfer.context import TransferContext, TransferOptions
from fleet.engine.transfer.tuning import options_of
from fleet.engine.undo import UndoLog
from fleet.engine.undoing import undo_root
from fleet.model.errors import AnswerError, InputError, WorkstationError
from fleet.model.events import DevicePlanned, Listener, RunDone, StepStarted
from fleet.model.inventory import Host
from fleet.model.lockfile import LockedRelease
from fleet.model.plain import to_plain
from fleet.model.plan import DevicePlan, PruneReleases
from fleet.model.playbook import Playbook, RunSpec
from fleet.model.record import Record
from fleet.model.suite import Suite, SuiteAnswer, SuiteQuestion, SuiteResult
from fleet.profiles.runs import RunStore, new_run_id
from fleet.runners.base import AsksSuites, Ended, Kit, Outcome, RunsSamples, Start
from fleet.runtimes.store import RuntimeStore
from fleet.verify.answers import judge_suite, unsteady

if TYPE_CHECKING:
    from fleet.verify.tensors import PreparedSamples
if TYPE_CHECKING:
    from fleet.verify.tensors import PreparedSamples


# The questions of a suite, asked on a device, with one record for all answers.

SAMPLED = "sampling: this runner cannot be told to take the most likely token"
_GREEDY_ALONE = ("llama.cpp",)  # its own default temperature is 0 in fleet


def ask_suite(job: RunJob, suite: Suite) -> Record:
    """Ask a suite and save a record with the checked answers.

    One session, if the runner has one for a suite; else one start for each question. A device
    that ends in the middle leaves answers that do not pass.
    """
    session, host = job.session, job.session.host.name
    kit = kit_of(job)
    asking = _Asking(job, kit, suite)
    text = f"{len(suite.questions)} prompts of the suite {suite.name}"
    session.emit(StepStarted(host, "verify", job.word or text))
    folder = job.store.folder(job.run_id, host, 0, name="suite")
    began, clock = time.gmtime(), time.monotonic()
    with (
        contextlib.closing(Tee(folder / "stdout.log", session, "stdout")) as out,
        contextlib.closing(Tee(folder / "stderr.log", session, "stderr")) as err,
    ):
        placed, ended, answers = asking.together(out, err) or asking.one_by_one(out, err)
    result = judge_suite(suite, answers)
    problems = _problems(ended, result)
    lost = keep_files(folder, {})
    marks = () if asking.greedy or not suite.greedy else (SAMPLED,)
    record = structs.replace(
        record_of(job, placed, Turn(0, False, ""), Outcome(marks=marks)),
        started=time.strftime("%Y-%m-%dT%H:%M:%SZ", began),
        seconds=round(time.monotonic() - clock, 3),
        status=ended.status,
        artifacts={path.name: str(path) for path in sorted(folder.iterdir())},
        problems=(*problems, *lost),
        marks=marks,
        suite=result,
    )
    record = job.store.save(folder, record)
    session.emit(RunDone(host, to_plain(record)))
    return record


def prepare_samples(builder: ReleaseBuilder) -> PreparedSamples | None:
    """Read the samples of the playbook, before a device is asked for anything.

    None if it has none. Raises SuiteError; InputError for a runner that runs no samples.
    """
    use, runner = builder.playbook.verify, builder.runner
    if use is None:
        return None
    if not isinstance(runner, RunsSamples):
        raise InputError(
            f"the runner {runner.name} does not run the samples of `verify:`",
            hint="use the runner ort, or remove `verify:` from the playbook",
        )
    run = builder.playbook.run or RunSpec(runner.name)
    from fleet.verify.tensors import prepare  # noqa: PLC0415 - numpy, with `verify:` alone

    ends = runner.ends(Kit(builder.bundle, run))
    return prepare(use, *(ends or (None, None)))


def ask_samples(job: RunJob, prepared: PreparedSamples) -> Record:
    """Run the samples on a device in one session, and save a record with what differs."""
    session, host, runner = job.session, job.session.host.name, job.builder.runner
    if not isinstance(runner, RunsSamples):
        raise TypeError(f"{runner.name} runs no samples")
    from fleet.verify.tensors import judge_samples  # noqa: PLC0415 - numpy, for this alone

    count = len(prepared.names)
    session.emit(StepStarted(host, "verify", job.word or f"{count} samples"))
    folder = job.store.folder(job.run_id, host, 0, name="samples")
    began, clock = time.gmtime(), time.monotonic()
    start = runner.run_samples(kit_of(job), prepared.archive)
    placed = place(start, job.plan.manifest, job.plan.facts.base_dir, f"{job.run_id}-samples")
    with (
        contextlib.closing(Tee(folder / "stdout.log", session, "stdout")) as out,
        contextlib.closing(Tee(folder / "stderr.log", session, "stderr")) as err,
    ):
        ended = execute(session, placed, out.take, err.take)
    archive, problem = runner.sample_outputs(start, ended)
    result = judge_samples(prepared, archive, problem)
    lost = keep_files(folder, {"outputs.npz": archive} if archive else {})
    record = structs.replace(
        record_of(job, placed, Turn(0, False, ""), Outcome()),
        started=time.strftime("%Y-%m-%dT%H:%M:%SZ", began),
        seconds=round(time.monotonic() - clock, 3),
        status=ended.status,
        artifacts={path.name: str(path) for path in sorted(folder.iterdir())},
        problems=(*((problem,) if problem else ()), *lost),
        suite=result,
    )
    record = job.store.save(folder, record)
    session.emit(RunDone(host, to_plain(record)))
    return record


def _problems(ended: Ended, result: SuiteResult) -> tuple[str, ...]:
    missing = sum("no answer" in fault for answer in result.answers for fault in answer.faults)
    if ended.status and missing:
        status = "in time" if ended.status in {124, 137} else f"(exit status {ended.status})"
        word = f"did not end {status}" if status == "in time" else f"failed {status}"
        return (f"failed: the program {word}; {missing} of {result.asked} prompts have no answer",)
    return ()


def require_right(result: SuiteResult, host: str) -> None:
    """Raise AnswerError if fewer answers pass than the suite asks for."""
    if result.holds:
        return
    low, high = result.interval()
    first = result.failing[0]
    raise AnswerError(
        f"only {result.shown} of {result.title} passed; {result.at_least} have to pass "
        f"(pass rate {result.passed / result.asked:.0%}, 95% interval {low:.0%} to {high:.0%}). "
        f"{first.name}: {first.faults[0]}",
        step="verify",
        hint=f"fleet verify --limit {host} (shows each answer)",
    )


def require_steady(records: Sequence[Record]) -> None:
    """Raise AnswerError if repeats of one device gave other answers to the same prompts."""
    for name in dict.fromkeys(record.suite.name for record in records if record.suite):
        mine = [record.suite for record in records if record.suite and record.suite.name == name]
        found = unsteady([(f"repeat {n + 1}", result) for n, result in enumerate(mine)])
        if found:
            raise AnswerError(
                f"the same inputs gave different answers: {'; '.join(found[:3])}"
                + (f" and {len(found) - 3} more" if len(found) > 3 else ""),
                step="verify",
                hint="set `sampling: greedy` in the suite; if it is, the device is not "
                "deterministic: fleet doctor (examines the device)",
            )


class _Asking:
    """One suite on one device. `greedy`: the runner was told to take the most likely token."""

    def __init__(self, job: RunJob, kit: Kit, suite: Suite) -> None:
        self._job, self._kit, self._suite = job, kit, suite
        self._runner = job.builder.runner
        self.greedy = self._runner.name in _GREEDY_ALONE

    def together(self, out: Tee, err: Tee) -> tuple[Placed, Ended, Sequence[SuiteAnswer]] | None:
        """Ask all questions in one session; None if the runner cannot."""
        if not isinstance(self._runner, AsksSuites):
            return None
        start = self._runner.ask(self._kit, self._suite)
        if start is None:
            return None
        self.greedy = True
        placed, ended = self._execute(start, "suite", out, err)
        return placed, ended, self._runner.answers(start, self._suite, ended)

    def one_by_one(self, out: Tee, err: Tee) -> tuple[Placed, Ended, Sequence[SuiteAnswer]]:
        """Start the runner once for each question."""
        answers: list[SuiteAnswer] = []
        for number, question in enumerate(self._suite.questions):
            kit = replace(self._kit, run=self._run(question))
            start = self._runner.start(kit)
            placed, ended = self._execute(start, f"q{number}", out, err)
            answers.append(_answer(question, self._runner.read(start, kit, ended), ended))
        return placed, ended, answers

    def _run(self, question: SuiteQuestion) -> RunSpec:
        if question.tokens:
            raise InputError(
                f"prompt {question.name} of the suite {self._suite.name} gives token ids, which "
                f"the runner {self._runner.name} does not take",
                hint="write `prompt:` with text, or use the runner genie",
            )
        return replace(self._job.run, prompt=question.prompt, max_tokens=question.max_tokens)

    def _execute(self, start: Start, word: str, out: Tee, err: Tee) -> tuple[Placed, Ended]:
        job = self._job
        work = f"{job.run_id}-{word}"
        placed = place(start, job.plan.manifest, job.plan.facts.base_dir, work)
        return placed, execute(job.session, placed, out.take, err.take)


def _answer(question: SuiteQuestion, outcome: Outcome, ended: Ended) -> SuiteAnswer:
    limit = any("token limit" in text for text in (*outcome.problems, *outcome.marks))
    faults = [text for text in outcome.problems if "token limit" not in text]
    return SuiteAnswer(
        question.name,
        outcome.text,
        faults=tuple(f"no answer: {text}" for text in faults),
        finish="token-limit" if limit else outcome.finish,
        generated_tokens=outcome.metrics.generated_tokens,
        seconds=round(ended.seconds, 3),
    )


class Operation:
    """A playbook on hosts. Each method talks to every host in parallel and never raises for
    one of them: its DeviceResult says what went wrong.
    """

    def __init__(
        self,
        playbook: Playbook,
        hosts: Sequence[Host],
        listener: Listener,
        *,
        options: DeployOptions | None = None,
        runtimes: RuntimeStore | None = None,
        runs: RunStore | None = None,
        executor: Executor | None = None,
        builder: ReleaseBuilder | None = None,
        run_id: str = "",
        inputs: Inputs | None = None,
    ) -> None:
        """`executor` as in on_every_device. A worker gives `builder` and `run_id`. With `inputs`
        a deploy is journaled, and can be resumed under its `run_id`.
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
        self.ending = Ending("finished")
        self.runs = runs or RunStore()
        self._listener = listener
        self._executor = executor
        self.builder = builder or ReleaseBuilder(
            playbook,
            runtimes or RuntimeStore(),
            listener,
            offline=self.options.offline,
            frozen=self.options.lock if self.options.frozen else None,
        )

    def plan(self) -> list[DeviceResult[None]]:
        """What deploy would do; nothing is changed."""
        return self._everywhere(self._plan)

    def deploy(self) -> list[DeviceResult[None]]:
        """Make the devices as the playbook says, then run it where that is wanted.

        In waves where the playbook has `rollout:`. `ending` says how it ended. Raises
        InputError for waves that cannot be made, FleetError where the journal is not written.
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
        """Which device a deploy would reach in which wave."""
        return waves_of(self.playbook.rollout, self.hosts)

    def go_on(self, journal: Journal) -> list[DeviceResult[None]]:
        """The rest of the deploy that a journal stands for."""
        results, self.ending = roll_out(self, journal, self._listener)
        return results

    def provision(self) -> list[DeviceResult[None]]:
        """Only the system: packages, groups, rules, units, files. No release is touched."""
        if self.playbook.system.empty:
            raise InputError(
                f"{self.playbook.path} has neither `fastrpc:` nor `system:`, so `fleet "
                "deploy --only system` has nothing to do",
                hint="add `fastrpc: auto` or `system:` to the playbook; see docs/provisioning.md",
            )
        return self._everywhere(self._provision_alone)

    def lock(self) -> tuple[list[DeviceResult[None]], tuple[LockedRelease, ...]]:
        """Plan, and what is to be locked for each kind of device; nothing is changed."""
        results = self.plan()
        plans = [result.plan for result in results if result.plan is not None]
        found = {
            (locked.target, locked.arch): locked
            for locked in (locked_plan(p, self.builder) for p in plans)
        }
        return results, tuple(found[key] for key in sorted(found))

    def run(self) -> list[DeviceResult[None]]:
        """Run what is deployed; a device that is not up to date fails and says so."""
        if self.playbook.run is None:
            raise InputError(
                f"{self.playbook.path} has no `run:` section",
                hint="add `run:` with a prompt; see docs/playbook.md",
            )
        return self._everywhere(self._run)

    def verify(self, repeats: int = 1) -> list[DeviceResult[None]]:
        """Ask the suite and run the samples of the playbook on what is deployed.

        With `repeats` the same again and again: other answers to the same prompts are an error.
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
        return self._everywhere(self._verify)

    def _check_samples(self) -> None:
        """Read the samples of `verify:`, so that a wrong one is an error before anything is sent.

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
        """`work` on these hosts, as the options say; see on_every_device."""
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
        """Deploy to one device; one of `owed` also gets what may be missing after its switch."""
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
        """The system first; then the device is asked again, and every refusal counts."""
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
        """Ask the suite and run the samples, of those for `gate` or "" for all; the records go to
        the result. Raises AnswerError if one of the two does not hold.
        """
        job = self._job(session, plan, self.playbook.run or RunSpec(self.builder.runner.name))
        suite, samples = self.playbook.suite, self.playbook.verify
        found: list[Record] = []
        if suite is not None and gate in {"", suite.gate}:
            found.append(ask_suite(job, suite.suite))
        if samples is not None and self._samples is not None and gate in {"", samples.gate}:
            found.append(ask_samples(job, self._samples))
        result.records += found
        answers = [record.suite for record in found if record.suite is not None]
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
