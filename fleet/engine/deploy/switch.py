"""The release steps of a plan, carried out: send, stage, probe, switch and prune."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from fleet.device.shell import last_words
from fleet.engine.session import CONTROL_SECONDS, Session
from fleet.engine.transfer.upload import Upload
from fleet.model.errors import FleetError
from fleet.model.events import StepStarted
from fleet.model.facts import Facts
from fleet.model.manifest import Manifest
from fleet.model.plan import Action, DevicePlan
from fleet.ops.backend import StoreRequest, backend_for
from fleet.ops.upload import Receipt, Step


def apply_plan(
    session: Session,
    plan: DevicePlan,
    run_id: str,
    *,
    ends: bool = False,
    gate: Callable[[], None] | None = None,
) -> None:
    """Carry out the release steps of a plan; `ends` and `gate` go to `carry_out`."""
    carry_out(session, plan.facts, plan.manifest, plan.release_steps, run_id, ends=ends, gate=gate)


def carry_out(
    session: Session,
    facts: Facts,
    manifest: Manifest,
    actions: Sequence[Action],
    run_id: str,
    *,
    ends: bool = False,
    gate: Callable[[], None] | None = None,
) -> None:
    """Carry out actions with the back end of the device. The first error ends them.

    `current` is the old or the new release, never anything between. With `ends`, the last step
    gives the lease back. `gate` is called after the probe of the staged release; a FleetError from
    it prevents the switch.
    """
    host, backend = session.host.name, backend_for(facts)
    turns = backend.turns(actions, run_id)
    for turn in turns:
        last = ends and turn is turns[-1]
        try:
            if turn.says:
                session.emit(StepStarted(host, turn.name, turn.says, turn.bytes))
            if turn.probe is not None:
                check_health(session, turn.probe, facts.base_dir, run_id)
                if gate is not None:
                    gate()
            elif turn.order is not None:
                _give(session, turn.order, turn.steps, ends=last)
            else:
                upload = Upload(session, facts, manifest, backend=backend)
                upload.send(turn.blobs, turn.steps, ends=last)
        except FleetError as error:
            error.step = error.step or turn.name
            error.device = error.device or host
            raise


def _give(session: Session, order: StoreRequest, steps: Sequence[Step], *, ends: bool) -> None:
    """Carry out steps in one round trip with the device's shell, and emit each step when it is
    confirmed.

    The deployed release is complete and live by then, so old files that could not be deleted cause
    only a warning. With `ends` the device also releases the lease.
    """
    host, receipt, waiting = session.host.name, Receipt(), list(steps)

    def hear(chunk: bytes) -> None:
        receipt.take(chunk)
        while waiting and len(steps) - len(waiting) <= len(receipt.done):
            step = waiting.pop(0)
            session.emit(StepStarted(host, step.name, step.says()))

    hear(b"")
    done = session.run(
        order.command,
        steps[0].name,
        stdin=order.stdin,
        seconds=CONTROL_SECONDS * max(1, len(steps) - 1),
        mutates=True,
        ends=ends,
        on_stdout=hear,
    )
    receipt.check_steps(steps, host, done.error_text)
    if not done.ok:
        session.warn(
            f"could not delete old releases: {last_words(done)}; the next deploy will try again"
        )


def check_health(session: Session, manifest: Manifest, base: str, run_id: str) -> None:
    """Run the probe of the manifest, which opens and closes a real session.

    A runner that cannot probe (`exec` without `health`) leaves no probe in the manifest. Then
    nothing is run.
    """
    health = manifest.origin.get("health")
    if health is None:
        return
    # A push has none, and never loads the runners.
    from fleet.engine.run.start import place, probe  # noqa: PLC0415
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
    npu = manifest.origin.get("npu") is not False
    probe(session, place(start, manifest, base, f"{run_id}-health"), npu=npu)
