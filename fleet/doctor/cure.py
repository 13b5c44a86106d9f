"""Cures that fleet can apply itself: planned, shown, applied under a lease, proven, undone.

Only causes whose file says `apply:` have one, and only three operations exist: `provision`
(FastRPC's packages, rules, group, loader link), `redeploy` (with the playbook that the user
names) and `rollback`. The same code as deploy carries them out.
"""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import dataclass

from fleet.doctor.examine import Round, diagnose
from fleet.engine.applying import apply_system
from fleet.engine.leasing import Lease
from fleet.engine.operation import Operation
from fleet.engine.options import DeployOptions
from fleet.engine.planning import Planned, plan_system
from fleet.engine.pool import DeviceResult, PoolOptions, on_every_device
from fleet.engine.releases import rollback
from fleet.engine.session import Session
from fleet.engine.undo import UndoLog, backwards, take_back
from fleet.engine.undoing import undo_root
from fleet.model.diagnosis import PROBLEM, Diagnosis
from fleet.model.errors import DeviceError, FleetError
from fleet.model.events import Listener
from fleet.model.inventory import Host
from fleet.model.playbook import Playbook
from fleet.model.system import SystemSpec
from fleet.profiles.runs import RunStore, new_run_id

_FASTRPC = SystemSpec(fastrpc="auto")


@dataclass
class Cure:
    """What would be done for one device. `why` says why nothing can be done, or why it did not
    help, "" otherwise; `hint` what to do then.
    """

    host: Host
    cause: str = ""
    remedy: str = ""
    name: str = ""
    steps: tuple[str, ...] = ()
    commands: tuple[str, ...] = ()
    why: str = ""
    hint: str = ""
    outcome: str = "planned"
    diagnosis: Diagnosis | None = None

    def as_dict(self) -> dict[str, object]:
        """Plain data for JSON."""
        return {
            "target": self.host.name,
            "cause": self.cause,
            "remedy": self.remedy,
            "steps": list(self.steps),
            "commands": list(self.commands),
            "why_not": self.why,
            "hint": self.hint,
            "outcome": self.outcome,
        }


def plan_cures(
    hosts: Sequence[Host],
    found: Sequence[Diagnosis],
    listener: Listener,
    playbook: Playbook | None = None,
    *,
    parallel: int = 16,
) -> list[Cure]:
    """A cure for each device with a problem; nothing is changed."""
    sick = {diagnosis.target: diagnosis for diagnosis in found if diagnosis.verdict == PROBLEM}
    cures = {h.name: _chosen(h, sick[h.name], playbook) for h in hosts if h.name in sick}

    def work(session: Session, result: DeviceResult[None]) -> None:
        cure = cures[session.host.name]
        plan = plan_system(session, _FASTRPC).plan
        refused = [finding for finding in plan.findings if finding.refuses]
        cure.steps = tuple(step.describe() for step in plan.system_steps)
        cure.commands = tuple(step.as_shell() for step in plan.system_steps if step.needs_root)
        if refused:
            cure.why = f"{refused[0].message}; {refused[0].cure}"
        elif not cure.steps:
            cure.why = "FastRPC is already set up; use one of the commands above"
        result.outcome = "ok"

    asked = [cure.host for cure in cures.values() if cure.remedy == "provision"]
    for result in (
        on_every_device(asked, work, listener, PoolOptions(parallel=parallel)) if asked else ()
    ):
        if result.error is not None:
            cures[result.host.name].why = result.error.message
    return list(cures.values())


def _chosen(host: Host, diagnosis: Diagnosis, playbook: Playbook | None) -> Cure:
    """The remedy of the first cause; others may be wrong about the device."""
    if not diagnosis.causes:
        return Cure(host, why="fleet does not know the cause of the problem")
    first = diagnosis.causes[0]
    remedies = [fix.apply for fix in first.fixes if fix.apply]
    cure = Cure(host, first.cause.id)
    for remedy in remedies:
        if remedy == "provision":
            cure.remedy = remedy
        elif remedy == "redeploy" and playbook is not None and _damaged(diagnosis):
            cure.remedy, cure.steps = (
                remedy,
                (f"deploy {playbook.name} and check the hash of every file",),
            )
        elif remedy == "rollback" and (name := _damaged(diagnosis, previous=True)):
            cure.remedy, cure.name = remedy, name
            cure.steps = (
                (f"test the previous release of {name} on the NPU, then switch back to it"),
            )
        if cure.remedy:
            return cure
    if "redeploy" in remedies and _damaged(diagnosis):
        cure.why = "fleet needs the playbook to deploy again: fleet doctor --fix --playbook FILE"
    else:
        cure.why = "run the commands above yourself; fleet does not run them for you"
    return cure


def _damaged(diagnosis: Diagnosis, *, previous: bool = False) -> str:
    """The name of the release that is damaged (and has a previous one); "" when none is."""
    for check in diagnosis.checks:
        if previous and check.facts.get("release.previous") != "yes":
            continue
        if check.facts.get("release") == "damaged":
            return check.facts["release.name"]
    return ""


def apply_cures(
    cures: Sequence[Cure],
    how: Round,
    listener: Listener,
    playbook: Playbook | None = None,
    *,
    runs: RunStore | None = None,
) -> None:
    """Apply what was planned; each Cure then has an outcome: healed, undone, failed, left."""
    todo = [cure for cure in cures if not cure.why and cure.remedy]
    for cure in cures:
        if cure not in todo:
            cure.outcome = "left"
    _provision([cure for cure in todo if cure.remedy == "provision"], how, listener, runs)
    for cure in todo:
        if cure.remedy == "redeploy" and playbook is not None:
            options = DeployOptions(run="never", verify=True, accept_new=how.accept_new)
            _take(cure, Operation(playbook, [cure.host], listener, options=options).deploy()[0])
        elif cure.remedy == "rollback":
            _take(cure, rollback([cure.host], cure.name, listener)[0])
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
        with Lease(session, f"doctor --fix {cure.cause}", run_id) as lease:
            lease.take()
            planned = plan_system(session, _FASTRPC)
            log = UndoLog(root, run_id, session.host.name)
            try:
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


def _undo(session: Session, log: UndoLog, planned: Planned) -> str:
    """What fleet took back. Raises DeviceError."""
    if not log.path.is_file():
        return "fleet changed nothing"
    steps = "; ".join(step.describe for step in backwards(log.read()))
    take_back(session, log, planned.become)
    return f"fleet restored the system to its earlier state (undone: {steps})"


def _look_again(host: Host) -> str:
    return f"fleet doctor -v --limit {shlex.quote(host.name)} (shows all checks and the fixes)"


def _prove(cures: Sequence[Cure], how: Round, listener: Listener) -> None:
    """Look again at devices whose release was changed."""
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
