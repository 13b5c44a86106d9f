"""The system steps of a plan, carried out one after the other."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable

from fleet.device.shell import device_script
from fleet.engine.deploy.plan import Planned
from fleet.engine.session import Session
from fleet.engine.states import ask_state
from fleet.engine.system.become import Become
from fleet.engine.system.provision import accounts, came, carry_out
from fleet.engine.system.undo import UndoLog
from fleet.engine.transfer.upload import Upload
from fleet.model.command import Command
from fleet.model.deadline import Deadline
from fleet.model.errors import (
    ConnectionLostError,
    DeadlineError,
    DeviceError,
    FleetError,
    TransportError,
)
from fleet.model.events import StepStarted
from fleet.model.facts import Facts
from fleet.model.manifest import Manifest
from fleet.ops.release import resumed
from fleet.ops.system.steps_files import PlaceFiles, ReloadUdev
from fleet.ops.system.steps_packages import InstallPackages
from fleet.ops.system.steps_users import Reboot, Reconnect


def apply_system(session: Session, planned: Planned, log: UndoLog, *, allow_reboot: bool) -> None:
    """Carry out the system steps of the plan, and write into `log` how each step is undone.

    Raises DeviceError before the first step if a step reboots and `allow_reboot` is False, and
    BecomeError if the login cannot become root. The error of a later step names the step.
    """
    plan, become = planned.plan, planned.become
    reboots = [step for step in plan.system_steps if isinstance(step, Reboot)]
    if reboots and not allow_reboot:
        raise DeviceError(
            f"the device needs a reboot: {reboots[0].why}",
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
                    reboot(session, become, action)
                case _:
                    carry_out(session, action, become)
        except FleetError as error:
            error.step = error.step or "system"
            error.device = error.device or session.host.name
            error.hint = error.hint or f"fleet deploy (continues), or {log.command}"
            raise
        log.end(came(before, accounts(session)) if before is not None else None)


def apply_and_look(
    session: Session,
    planned: Planned,
    look: Callable[[], Planned],
    log: UndoLog,
    *,
    allow_reboot: bool,
) -> Planned:
    """Apply the system steps like `apply_system`, and return the plan that `look` makes afterwards.

    If only device rules are left, because the first udev event did not apply them, they get one
    more event.
    """
    apply_system(session, planned, log, allow_reboot=allow_reboot)
    left = look()
    steps = left.plan.system_steps
    if steps and all(isinstance(step, ReloadUdev) for step in steps):
        apply_system(session, left, log, allow_reboot=allow_reboot)
        left = look()
    return left


def _place(session: Session, facts: Facts, action: PlaceFiles) -> None:
    """Send package files through the store: resumed, hashed, and sent only once."""
    manifest = Manifest("packages", action.files)
    state = ask_state(session, facts, manifest)
    lacking = [item for sha, item in manifest.blobs.items() if sha not in state.have]
    blobs = [resumed(item, state) for item in lacking]
    if blobs:
        Upload(session, facts, manifest).send(blobs)
    lines = [f"{item.sha256}\t{item.name}\n".encode() for item in action.files]
    command = device_script("place", facts.base_dir, action.folder)
    session.ask(command, "place", stdin=lines, mutates=True)


def reboot(session: Session, become: Become, action: Reboot) -> None:
    """Restart the device as root and wait until it is back. Raises DeviceError and BecomeError."""
    before = session.boot_id() or session.boot or ""
    with session.over_reboot():
        with contextlib.suppress(ConnectionLostError, DeadlineError):
            carry_out(session, action, become)
        wait_for_reboot(session, before)


DOWN_SECONDS = 120.0  # systemd kills services that do not end after 90 s
UP_SECONDS = 300.0  # an EVK needs 40 s; a file system check takes minutes
READY_SECONDS = 120.0
POLL_SECONDS = 1.0  # between two polls
_SYSTEM = Command(("sh", "-c", "systemctl is-system-running 2>/dev/null || echo none"))


def wait_for_reboot(session: Session, before: str) -> str:
    """Wait until the device runs with another boot id than `before`; return the new one.

    The connection is closed and opened again, with a check of its identity. Raises DeviceError that
    names the phase that did not end.
    """
    host = session.host.name
    session.emit(StepStarted(host, "reboot", "waiting until the device shuts down"))
    _until_down(session, before)
    session.emit(StepStarted(host, "reboot", "waiting until the device is up again"))
    after = _until_up(session, before)
    session.emit(StepStarted(host, "reboot", "waiting until the services of the device are up"))
    _until_ready(session)
    return after


def _until_down(session: Session, before: str) -> None:
    end = time.monotonic() + DOWN_SECONDS
    while time.monotonic() < end:
        try:
            if session.boot_id() != before:
                return
        except FleetError:
            return
        time.sleep(POLL_SECONDS)
    raise DeviceError(
        f"the device did not shut down within {DOWN_SECONDS:g} s after the reboot command",
        step="reboot",
        hint="run on the device, to find the service that blocks the shutdown: journalctl -b",
    )


def _until_up(session: Session, before: str) -> str:
    end = time.monotonic() + UP_SECONDS
    last: FleetError | None = None
    while time.monotonic() < end:
        try:
            session.reopen()
            now = session.boot_id()
        except (TransportError, DeviceError) as error:
            last = error
            if not (error.retryable or isinstance(error, DeviceError)):
                raise
        else:
            if now not in {"", before}:
                return now
        time.sleep(POLL_SECONDS)
    raise DeviceError(
        f"the device did not start again within {UP_SECONDS:g} s after the reboot"
        + (f": {last.message}" if last is not None else ""),
        step="reboot",
        hint="look at the serial console of the device; when the device is up: fleet deploy",
    )


def _until_ready(session: Session) -> None:
    """Wait until systemd has finished its start; `degraded` counts too. Return without systemd."""
    deadline = Deadline(READY_SECONDS)
    while True:
        words = session.ask(_SYSTEM, "ready", seconds=15.0).text.split()
        if not words or words[0] not in {"initializing", "starting"}:
            return
        deadline.check("the services of the device")
        time.sleep(POLL_SECONDS)
