"""Cures that fleet applies itself under a lease: the shown plan is applied, and verified or undone.

Three operations exist: `provision` (FastRPC's packages, rules, group, loader link), `redeploy`
(with a playbook) and `rollback`. fleet/doctor/remedy.py chooses an operation and makes its plan. It
is carried out by the same code as a deploy.
"""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from fleet.doctor.examine import Round, diagnose
from fleet.doctor.remedy import FASTRPC, PROVISION, REDEPLOY, ROLLBACK, UNKNOWN_CAUSE
from fleet.engine.deploy.apply import apply_system
from fleet.engine.deploy.operation import Operation
from fleet.engine.deploy.plan import Planned, plan_system
from fleet.engine.deploy.releases import rollback
from fleet.engine.lease.lease import Lease
from fleet.engine.options import DeployOptions
from fleet.engine.pool import DeviceResult, PoolOptions, on_every_device
from fleet.engine.session import Session
from fleet.engine.system.undo import UndoLog, backwards, take_back, undo_root
from fleet.model.diagnosis import PROBLEM, Diagnosis, Remedy
from fleet.model.errors import DeviceError, FleetError
from fleet.model.events import Listener
from fleet.model.inventory import Host
from fleet.profiles.runs import RunStore, new_run_id


@dataclass
class Cure:
    """The remedy of one device and its outcome.

    `why` is the reason why nothing can be done, or why the remedy did not help, else ""; `hint` is
    what to do then. `outcome` is planned, healed, undone, failed or left.
    """

    host: Host
    remedy: Remedy
    why: str = ""
    hint: str = ""
    outcome: str = "planned"
    diagnosis: Diagnosis | None = None
    PLAIN: ClassVar[
        str
    ] = """target=host.name cause=remedy.cause remedy=remedy.operation steps=remedy.steps
        commands=remedy.commands why_not=why hint outcome"""


def plan_cures(hosts: Sequence[Host], diagnoses: Sequence[Diagnosis]) -> list[Cure]:
    """Return a cure for each device with a problem, from the plans that its diagnosis shows."""
    sick = {
        diagnosis.target: diagnosis.remedy or Remedy(refusal=UNKNOWN_CAUSE)
        for diagnosis in diagnoses
        if diagnosis.verdict == PROBLEM
    }
    return [Cure(h, sick[h.name], why=sick[h.name].refusal) for h in hosts if h.name in sick]


def apply_cures(
    cures: Sequence[Cure],
    how: Round,
    listener: Listener,
    *,
    runs: RunStore | None = None,
) -> None:
    """Apply the planned cures. Each Cure then has an outcome: healed, undone, failed or left."""
    todo = [cure for cure in cures if not cure.why]
    for cure in cures:
        if cure not in todo:
            cure.outcome = "left"
    _provision([cure for cure in todo if cure.remedy.operation == PROVISION], how, listener, runs)
    for cure in todo:
        if cure.remedy.operation == REDEPLOY and how.playbook is not None:
            options = DeployOptions(run="never", verify=True, accept_new=how.accept_new)
            redeploy = Operation(how.playbook, [cure.host], listener, options=options)
            _take(cure, redeploy.deploy()[0])
        elif cure.remedy.operation == ROLLBACK:
            _take(cure, rollback([cure.host], cure.remedy.release, listener)[0])
    _prove([cure for cure in todo if cure.outcome == "applied"], how, listener)


def _take(cure: Cure, result: DeviceResult[None]) -> None:
    cure.outcome = "applied" if result.fine else "failed"
    if result.error is not None:
        cure.why, cure.hint = result.error.message, result.error.hint or result.error.cure


def _provision(
    cures: Sequence[Cure], how: Round, listener: Listener, runs: RunStore | None
) -> None:
    if not cures:
        return
    run_id, by_name = new_run_id(), {cure.host.name: cure for cure in cures}
    root = undo_root(runs or RunStore())

    def work(session: Session, result: DeviceResult[None]) -> None:
        cure = by_name[session.host.name]
        with Lease(session, f"doctor --fix {cure.remedy.cause}", run_id) as lease:
            lease.take()
            planned = plan_system(session, FASTRPC)
            log = UndoLog(root, run_id, session.host.name)
            try:
                _require_same(cure.remedy, planned)
                apply_system(session, planned, log, allow_reboot=False)
                cure.diagnosis = diagnose(session, how)
                if cure.diagnosis.verdict == PROBLEM:
                    raise DeviceError("the device still has the problem", device=session.host.name)
            except FleetError as error:
                cure.why = error.message
                cure.why += f"; {_undo(session, log, planned)}"
                own = error.hint and log.command not in error.hint  # that undo is done
                cure.hint = error.hint if own else _look_again(session.host)
                cure.outcome, result.text = "undone", "the repair did not help"
                return
        cure.outcome, result.outcome = "healed", "changed"

    options = PoolOptions[None](parallel=how.parallel)
    for result in on_every_device([cure.host for cure in cures], work, listener, options):
        if result.error is not None:
            cure, error = by_name[result.host.name], result.error
            before = f"{cure.why}; " if cure.why else ""
            cure.outcome, cure.why = "failed", before + error.message
            log = UndoLog(root, run_id, cure.host.name)
            left = f"{log.command} (undoes what is left)" if log.path.is_file() else ""
            cure.hint = left or error.hint or error.cure


def _require_same(remedy: Remedy, planned: Planned) -> None:
    """Raise DeviceError unless the plan equals the shown one."""
    now = tuple(step.describe() for step in planned.plan.system_steps)
    if now != remedy.steps:
        raise DeviceError(
            "the device changed since fleet showed the steps",
            hint="fleet doctor --fix (shows the steps of now)",
        )


def _undo(session: Session, log: UndoLog, planned: Planned) -> str:
    """Undo the steps, and return what was undone. Raises DeviceError."""
    if not log.path.is_file():
        return "fleet changed nothing"
    steps = "; ".join(step.describe for step in backwards(log.read()))
    take_back(session, log, planned.become)
    return f"fleet restored the system to its earlier state (undone: {steps})"


def _look_again(host: Host) -> str:
    return f"fleet doctor -v --limit {shlex.quote(host.name)} (shows all checks and the fixes)"


def _prove(cures: Sequence[Cure], how: Round, listener: Listener) -> None:
    """Check the devices again whose release was changed."""
    by_name = {cure.host.name: cure for cure in cures}

    def work(session: Session, result: DeviceResult[None]) -> None:
        cure = by_name[session.host.name]
        cure.diagnosis = diagnose(session, how)
        healed = cure.diagnosis.verdict != PROBLEM
        cure.outcome = "healed" if healed else "failed"
        cure.why = "" if healed else "the device still has the problem"
        cure.hint = "" if healed else _look_again(session.host)
        result.outcome = "ok"

    if cures:
        on_every_device(
            [cure.host for cure in cures], work, listener, PoolOptions(parallel=how.parallel)
        )
