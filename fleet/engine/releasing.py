"""Carrying out what a plan says of releases: send, stage, prove, switch, prune."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence

from fleet.device.hand import has_hand
from fleet.device.shell import failed, last_words
from fleet.engine.session import CONTROL_SECONDS, Session
from fleet.engine.transfer.upload import Upload
from fleet.model.command import Result
from fleet.model.errors import FleetError
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
from fleet.ops.release import switch_and_prune, switch_command
from fleet.ops.staging import stage_command, stage_input
from fleet.ops.tail import NAMES, at_once, check_steps, goes_at_once, steps_for
from fleet.ops.upload import Receipt

STEPS: dict[type[Action], str] = {
    SendBlobs: "send",
    ProbeHealth: "health",
    **NAMES,
}


def apply_plan(session: Session, plan: DevicePlan, run_id: str) -> None:
    """Do what the plan says of releases. The first error ends it; `current` is old or new,
    never between.
    """
    by_hand = has_hand(plan.facts)
    for actions in _turns(plan.release_steps, plan.facts):
        first = actions[0]
        step = STEPS[type(first)]
        try:
            if by_hand and not isinstance(first, ProbeHealth):
                _in_one_stream(session, plan, actions, run_id)
            elif len(actions) > 1:
                _in_one_command(session, plan, actions, run_id)
            else:
                session.emit(StepStarted(session.host.name, step, first.describe(), first.bytes))
                _do(session, plan, first, run_id)
        except FleetError as error:
            error.step = error.step or step
            error.device = error.device or session.host.name
            raise


def _turns(steps: Sequence[Action], facts: Facts) -> Iterator[Sequence[Action]]:
    """Each step alone, where a shell does them, or all behind the sending; where Python does them
    together those before and those behind the probe of the health.
    """
    if not has_hand(facts):
        last = steps[-3:] if goes_at_once(steps[-3:], facts) else ()
        yield from ([one] for one in steps[: len(steps) - len(last)])
        if last:
            yield last
        return
    for _, turn in itertools.groupby(steps, lambda one: isinstance(one, ProbeHealth)):
        yield list(turn)


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


def _in_one_command(
    session: Session, plan: DevicePlan, actions: Sequence[Action], run_id: str
) -> None:
    """In one round trip, by the device's shell; what is done is told when it says so."""
    host, receipt, steps = session.host.name, Receipt(), steps_for(actions, plan.facts, run_id)
    waiting = list(steps)

    def hear(chunk: bytes) -> None:
        receipt.take(chunk)
        while waiting and len(steps) - len(waiting) <= len(receipt.done):
            one = waiting.pop(0)
            session.emit(StepStarted(host, one.name, one.says))

    hear(b"")
    keep = next(one.keep for one in actions if isinstance(one, PruneReleases))
    done = session.run(
        at_once(plan.facts, plan.manifest, run_id, keep),
        "stage",
        stdin=stage_input(plan.facts, plan.manifest),
        seconds=2 * CONTROL_SECONDS,
        mutates=True,
        on_stdout=hear,
    )
    check_steps(receipt, steps, host, done.error_text)
    if not done.ok:
        _unpruned(session, done)


def _unpruned(session: Session, done: Result) -> None:
    text = f"old releases were not removed: {last_words(done)}"
    session.emit(Warned(session.host.name, text))


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
    if "switched" not in done.text.splitlines():
        raise failed(done, "switch", session.host.name)
    if not done.ok:
        _unpruned(session, done)


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
        feeds_prompt=bool(prompt) and health.get("feeds_prompt", True) is True,
        env=health.get("env", {}),
    )
    probe(session, place(start, manifest, base, f"{run_id}-health"))
