"""Carrying out what a plan says of releases: send, stage, prove, switch, prune."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

from fleet.engine.session import Session
from fleet.engine.transfer.upload import Upload
from fleet.model.errors import DeviceError, FleetError
from fleet.model.events import StepStarted, Warned
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
from fleet.ops.hand import has_hand
from fleet.ops.release import switch_and_prune, switch_command
from fleet.ops.staging import stage_command, stage_input
from fleet.ops.tail import steps_for

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
    by_hand = has_hand(plan.facts)
    done: list[Action] = []
    for action in plan.release_steps:
        if action in done:
            continue
        step = STEPS[type(action)]
        behind: list[Action] = []
        if by_hand and not isinstance(action, ProbeHealth):
            behind = _together(plan.release_steps, action)
            done += behind
        try:
            if behind:
                _in_one_stream(session, plan, behind, run_id)
            else:
                session.emit(StepStarted(session.host.name, step, action.describe(), action.bytes))
                _do(session, plan, action, run_id)
        except FleetError as error:
            error.step = error.step or step
            error.device = error.device or session.host.name
            raise


def _together(steps: Sequence[Action], first: Action) -> list[Action]:
    """This step and those behind it, up to a probe of the health."""
    rest = steps[steps.index(first) :]
    return list(itertools.takewhile(lambda one: not isinstance(one, ProbeHealth), rest))


def _in_one_stream(
    session: Session, plan: DevicePlan, actions: Sequence[Action], run_id: str
) -> None:
    """In one round trip, by the device's own program."""
    blobs = [blob for one in actions if isinstance(one, SendBlobs) for blob in one.blobs]
    rest = [one for one in actions if not isinstance(one, SendBlobs)]
    for one in actions:
        if isinstance(one, SendBlobs):
            session.emit(StepStarted(session.host.name, "send", one.describe(), one.bytes))
    Upload(session, plan.facts, plan.manifest).send(blobs, steps_for(rest, plan.facts, run_id))


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


def check_health(session: Session, manifest: Manifest, base: str, run_id: str) -> None:
    """The probe that the manifest carries: a real session, opened and closed.

    A runner that cannot probe (`exec` without `health`) leaves none; then nothing is asked.
    """
    health = manifest.origin.get("health")
    if health is None:
        return
    # A push has none, and never loads the runners.
    from fleet.engine.starting import place, probe  # noqa: PLC0415
    from fleet.runners.base import Start  # noqa: PLC0415

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
