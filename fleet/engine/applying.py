"""Carrying out the actions of a plan, one after the other."""

from __future__ import annotations

import contextlib

from fleet.engine.become import Become
from fleet.engine.planning import Planned, ask_state
from fleet.engine.provisioning import accounts, came, carry_out
from fleet.engine.rebooting import boot_id, wait_for_reboot
from fleet.engine.session import Session
from fleet.engine.starting import place, probe
from fleet.engine.transfer.upload import Upload
from fleet.engine.undo import UndoLog
from fleet.model.errors import (
    ConnectionLostError,
    DeadlineError,
    DeviceError,
    FleetError,
)
from fleet.model.events import StepStarted, Warned
from fleet.model.facts import Facts
from fleet.model.manifest import Manifest
from fleet.model.plan import (
    Action,
    DevicePlan,
    ProbeHealth,
    PruneReleases,
    SendBlobs,
    StageRelease,
    SwitchRelease,
)
from fleet.ops.release import resumed, switch_and_prune, switch_command
from fleet.ops.shell import device_script
from fleet.ops.staging import stage_command, stage_input
from fleet.ops.system.steps_files import PlaceFiles
from fleet.ops.system.steps_packages import InstallPackages
from fleet.ops.system.steps_users import Reboot, Reconnect
from fleet.runners.base import Start

STEPS: dict[type[Action], str] = {
    SendBlobs: "send",
    StageRelease: "stage",
    ProbeHealth: "health",
    SwitchRelease: "switch",
    PruneReleases: "prune",
}


def apply_plan(session: Session, plan: DevicePlan, run_id: str) -> None:
    """Do what the plan says of releases. The first error ends it; `current` is old or new,
    never between.
    """
    for action in plan.release_steps:
        step = STEPS[type(action)]
        session.emit(StepStarted(session.host.name, step, action.describe(), action.bytes))
        try:
            _do(session, plan, action, run_id)
        except FleetError as error:
            error.step = error.step or step
            error.device = error.device or session.host.name
            raise


def _prune_of(plan: DevicePlan, switch: SwitchRelease) -> PruneReleases | None:
    """The pruning that follows a switch; it goes in the same round trip."""
    steps = plan.release_steps
    after = steps[steps.index(switch) + 1 :]
    return next((one for one in after if isinstance(one, PruneReleases)), None)


def _do(session: Session, plan: DevicePlan, action: Action, run_id: str) -> None:
    base = plan.facts.base_dir
    match action:
        case SendBlobs():
            Upload(session, plan.facts, plan.manifest).send(action.blobs)
        case StageRelease():
            session.ask(
                stage_command(plan.facts, action.manifest, run_id),
                "stage",
                stdin=stage_input(plan.facts, action.manifest),
                mutates=True,
            )
        case ProbeHealth():
            check_health(session, action.manifest, base, run_id)
        case SwitchRelease():
            _switch(session, plan, action, run_id)
        case PruneReleases():
            pass  # with the switch
        case _:
            raise NotImplementedError(type(action).__name__)


def _switch(session: Session, plan: DevicePlan, action: SwitchRelease, run_id: str) -> None:
    """What was to be deployed is there and runs: old files that stay are worth a word only."""
    base, prune = plan.facts.base_dir, _prune_of(plan, action)
    if prune is None:
        command = switch_command(base, action.name, action.id, run_id)
        session.ask(command, "switch", mutates=True)
        return
    command = switch_and_prune(base, action.name, action.id, run_id, prune.keep)
    done = session.run(command, "switch", mutates=True)
    words = (done.error_text or done.text.strip() or "no message")[-400:]
    if "switched" not in done.text.splitlines():
        raise DeviceError(f"switch failed with status {done.status}: {words}")
    if not done.ok:
        session.emit(Warned(session.host.name, f"old releases were not removed: {words}"))


def apply_system(session: Session, planned: Planned, log: UndoLog, *, allow_reboot: bool) -> None:
    """Do what the plan says of the system; how each step is taken back stands in `log`.

    Without leave for a reboot, or without a way to become root, nothing is begun.
    """
    plan, become = planned.plan, planned.become
    reboots = [step for step in plan.system_steps if isinstance(step, Reboot)]
    if reboots and not allow_reboot:
        raise DeviceError(
            f"a reboot is needed: {reboots[0].why}",
            device=session.host.name,
            step="reboot",
            hint="fleet deploy --allow-reboot",
        )
    if any(step.needs_root for step in plan.system_steps):
        become.prove(session)
    for action in plan.system_steps:
        session.emit(StepStarted(session.host.name, "system", action.describe(), action.bytes))
        log.begin(action)
        installs = isinstance(action, InstallPackages) and action.manager == "apt"
        try:
            before = accounts(session) if installs else None
            match action:
                case PlaceFiles():
                    _place(session, plan.facts, action)
                case Reconnect():
                    session.reopen()
                case Reboot():
                    _reboot(session, become, action)
                case _:
                    carry_out(session, action, become)
        except FleetError as error:
            error.step = error.step or "system"
            error.device = error.device or session.host.name
            error.hint = error.hint or f"deploy goes on from here; the way back: {log.command}"
            raise
        log.end(came(before, accounts(session)) if before is not None else None)


def _place(session: Session, facts: Facts, action: PlaceFiles) -> None:
    """Package files go through the store: resumed, hashed, and sent once."""
    manifest = Manifest("packages", action.files)
    state = ask_state(session, facts, manifest)
    lacking = [item for sha, item in manifest.blobs.items() if sha not in state.have]
    blobs = [resumed(item, state) for item in lacking]
    if blobs:
        Upload(session, facts, manifest).send(blobs)
    lines = [f"{item.sha256}\t{item.name}\n".encode() for item in action.files]
    command = device_script("place", facts.base_dir, action.folder)
    session.ask(command, "place", stdin=lines, mutates=True)


def _reboot(session: Session, become: Become, action: Reboot) -> None:
    before = boot_id(session)
    with session.over_reboot():
        with contextlib.suppress(ConnectionLostError, DeadlineError):
            carry_out(session, action, become)
        wait_for_reboot(session, before)


def check_health(session: Session, manifest: Manifest, base: str, run_id: str) -> None:
    """The probe that the manifest carries: a real session, opened and closed.

    A runner that cannot probe (`exec` without `health`) leaves none; then nothing is asked.
    """
    health = manifest.origin.get("health")
    if health is None:
        return
    prompt = str(health.get("prompt", ""))
    start = Start(
        argv=tuple(health["argv"]),
        cwd=health["cwd"],
        timeout=float(health["timeout"]),
        config=health["config"],
        prompt=prompt.encode(),
        feeds_prompt=bool(prompt),
        env=health.get("env", {}),
    )
    probe(session, place(start, manifest, base, f"{run_id}-health"))
