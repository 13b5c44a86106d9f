"""The executor of a real rollout: the engine's workers, and what they say written down; and the
check after a soak: is the board still what the deploy left?
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from fleet.engine.leasing import Lease
from fleet.engine.pool import DeviceResult
from fleet.engine.releases import stored_manifest, switch_back
from fleet.engine.releasing import check_health
from fleet.engine.rollout.deployment import Deployment
from fleet.engine.rollout.driver import Done
from fleet.engine.rollout.journal import Journal
from fleet.engine.rollout.state import RolloutDevice
from fleet.engine.session import Session
from fleet.engine.states import ask_state, facts_of
from fleet.model.errors import DeviceError, InputError
from fleet.model.events import DeviceDone, DevicePlanned, Event, Listener, StepStarted


class DeviceExecutor:
    """Works on the hosts of an operation."""

    def __init__(self, operation: Deployment, journal: Journal, listener: Listener) -> None:
        self._operation, self._journal, self._listener = operation, journal, listener
        self._hosts = {host.name: host for host in operation.hosts}

    def deploy(self, names: Sequence[str], admit: Callable[[str], bool], done: Done) -> None:
        """Deploy, at most `parallel` at a time."""
        devices = self._journal.state.devices
        self._operation.owed = frozenset(name for name in names if devices[name].owed)
        self._operation.everywhere(
            self._operation.bring,
            [self._hosts[name] for name in names],
            self._record,
            admit=lambda host: admit(host.name),
            done=done,
        )

    def check(self, devices: Sequence[RolloutDevice], done: Done) -> None:
        """Look again, at most `parallel` at a time."""
        operation = self._operation

        def look(session: Session, result: DeviceResult[None], device: RolloutDevice) -> None:
            name, verify = operation.playbook.name, operation.options.verify
            check_after_soak(session, result, device, name, operation.run_id, verify=verify)

        self._on(devices, look, done)

    def back(self, devices: Sequence[RolloutDevice], done: Done) -> None:
        """Roll back, at most `parallel` at a time."""
        name, run_id = self._operation.playbook.name, self._operation.run_id
        runs = self._operation.runs

        def undo(session: Session, result: DeviceResult[None], device: RolloutDevice) -> None:
            switch_back(session, result, name, run_id, runs, to=device.was, only=device.release)

        self._on(devices, undo, done)

    def wait(self, seconds: float) -> None:
        """Sleep: a soak is time that passes."""
        time.sleep(seconds)

    def _on(
        self,
        devices: Sequence[RolloutDevice],
        work: Callable[[Session, DeviceResult[None], RolloutDevice], None],
        done: Done,
    ) -> None:
        known = {device.name: device for device in devices}
        if devices:
            hosts = [self._hosts[device.name] for device in devices]
            self._operation.everywhere(
                lambda session, result: work(session, result, known[session.host.name]),
                hosts,
                self._only_steps,
                done=done,
            )

    def _only_steps(self, event: Event) -> None:
        """A look and a rollback have their own events for their end."""
        if not isinstance(event, DeviceDone):
            self._listener(event)

    def _record(self, event: Event) -> None:
        """In the journal before it begins. Raises InputError for a release of another content
        than the run has given to this kind of device before.
        """
        if isinstance(event, DevicePlanned):
            given = self._journal.state.releases.get(event.kind, event.release)
            if given != event.release:
                raise InputError(
                    f"this run deployed release {given} to devices of the kind {event.kind}, "
                    f"but would now deploy {event.release}, because the runtime or a file "
                    "changed",
                    hint="fleet deploy (starts a new run), or "
                    f"fleet deploy --resume {self._operation.run_id} --force-inputs",
                )
            self._journal.write(
                "plan",
                host=event.host,
                release=event.release,
                was=event.current,
                device_kind=event.kind,
                boot_id=event.boot_id,
            )
        elif isinstance(event, StepStarted) and event.host:
            words = {"step": event.step, "text": event.text, "bytes": event.bytes}
            self._journal.write("step", host=event.host, **words)
        self._listener(event)


def check_after_soak(
    session: Session,
    result: DeviceResult[None],
    device: RolloutDevice,
    name: str,
    run_id: str,
    *,
    verify: bool = False,
) -> None:
    """Raise DeviceError or HealthError for what is no longer as `device` says.

    It answers, in the same boot; the release is current, has its stamp, its links and its blobs
    with their sizes (with `verify`: hashes); the health probe of its manifest opens a session.
    All of it is asked of the device: the host's bundle may be another by now.
    """
    host = session.host.name
    session.emit(StepStarted(host, "soak", "checking the device again"))
    facts = facts_of(session)
    if device.boot_id and facts.boot_id and facts.boot_id != device.boot_id:
        raise _bad(host, f"the board rebooted after the deploy (boot id {facts.boot_id})")
    if not device.release:  # only the system was changed
        result.outcome, result.text = "ok", "the device answers and did not reboot"
        return
    manifest = stored_manifest(session, facts.base_dir, name, device.release, whole=True)
    state = ask_state(session, facts, manifest, verify=verify)
    if state.current != device.release:
        raise _bad(
            host,
            f"the current release is {state.current or 'none'}, but the run deployed "
            f"{device.release}",
        )
    if not state.installed:
        raise _bad(host, f"release {device.release} is no longer complete")
    broken = sorted(
        item.name
        for sha, item in manifest.blobs.items()
        if sha not in state.have or sha in state.unlinked
    )
    if broken:
        more = f" and {len(broken) - 1} more" if len(broken) > 1 else ""
        raise _bad(host, f"{broken[0]}{more} of release {device.release} is damaged or missing")
    if manifest.origin.get("health") is not None:
        with Lease(session, f"look at {name} after the soak", run_id):
            check_health(session, manifest, facts.base_dir, run_id)
    result.outcome, result.text = ("ok", f"release {device.release} is complete and works")


def _bad(host: str, message: str) -> DeviceError:
    return DeviceError(
        message, step="soak", hint=f"fleet doctor --limit {host}, with the same inventory"
    )
