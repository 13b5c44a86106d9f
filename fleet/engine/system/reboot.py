"""A reboot and the wait for it: down, up, ready, recognised by the boot id, without fixed
sleeps.
"""

from __future__ import annotations

import time

from fleet.engine.session import Session
from fleet.model.command import Call, Command
from fleet.model.deadline import Deadline
from fleet.model.errors import DeviceError, FleetError, TransportError
from fleet.model.events import StepStarted

DOWN_SECONDS = 120.0  # systemd kills services that do not end after 90 s
UP_SECONDS = 300.0  # an EVK needs 40 s; a file system check takes minutes
READY_SECONDS = 120.0
POLL_SECONDS = 1.0  # between two polls
_BOOT_ID = Command(("cat", "/proc/sys/kernel/random/boot_id"), call=Call("boot_id"))
_SYSTEM = Command(("sh", "-c", "systemctl is-system-running 2>/dev/null || echo none"))


def boot_id(session: Session) -> str:
    """Return the id of the current boot."""
    return session.ask(_BOOT_ID, "boot id", seconds=15.0).text.strip().splitlines()[-1]


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
            if boot_id(session) != before:
                return
        except (FleetError, IndexError):
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
            now = boot_id(session)
        except (TransportError, DeviceError, IndexError) as error:
            last = error if isinstance(error, FleetError) else last
            if last is not None and not (last.retryable or isinstance(last, DeviceError)):
                raise last from error
        else:
            if now != before:
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
