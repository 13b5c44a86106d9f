"""Carrying out the actions of a plan, one after the other."""

from __future__ import annotations

from fleet.engine.session import Session
from fleet.engine.starting import place, probe
from fleet.engine.uploading import Upload
from fleet.model.errors import FleetError
from fleet.model.events import StepStarted
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
from fleet.ops.release import prune_command, stage_command, stage_input, switch_command
from fleet.runners.base import Start

STEPS: dict[type[Action], str] = {
    SendBlobs: "send",
    StageRelease: "stage",
    ProbeHealth: "health",
    SwitchRelease: "switch",
    PruneReleases: "prune",
}


def apply_plan(session: Session, plan: DevicePlan, run_id: str) -> None:
    """Do what the plan says. The first error ends it; `current` is old or new, never between."""
    for action in plan.actions:
        step = STEPS[type(action)]
        session.emit(StepStarted(session.host.name, step, action.describe(), action.bytes))
        try:
            _do(session, plan, action, run_id)
        except FleetError as error:
            error.step = error.step or step
            error.device = error.device or session.host.name
            raise


def _do(session: Session, plan: DevicePlan, action: Action, run_id: str) -> None:
    base = plan.facts.base_dir
    match action:
        case SendBlobs():
            Upload(session, plan.facts, plan.manifest).send(action.blobs)
        case StageRelease():
            session.ask(
                stage_command(plan.facts, action.manifest, run_id),
                "stage",
                stdin=stage_input(action.manifest, base),
            )
        case ProbeHealth():
            check_health(session, action.manifest, base, run_id)
        case SwitchRelease():
            session.ask(switch_command(base, action.name, action.id, run_id), "switch")
        case PruneReleases():
            session.ask(prune_command(base, action.name, action.keep), "prune")
        case _:
            raise NotImplementedError(type(action).__name__)


def check_health(session: Session, manifest: Manifest, base: str, run_id: str) -> None:
    """The probe that the manifest carries: a real NPU session, opened and closed."""
    health = manifest.origin["health"]
    start = Start(
        argv=tuple(health["argv"]),
        cwd=health["cwd"],
        collect="outcome.json",
        timeout=float(health["timeout"]),
        config=health["config"],
    )
    probe(session, place(start, manifest, base, f"{run_id}-health"))
