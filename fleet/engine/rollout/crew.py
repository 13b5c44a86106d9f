"""The crew of a real rollout: the engine's workers, and what they say written down."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from fleet.engine.pool import DeviceResult
from fleet.engine.releases import switch_back
from fleet.engine.rollout.deployment import Deployment
from fleet.engine.rollout.driver import Done
from fleet.engine.rollout.journal import Journal
from fleet.engine.rollout.looking import look_again
from fleet.engine.rollout.state import Device
from fleet.engine.session import Session
from fleet.model.errors import InputError
from fleet.model.events import DeviceDone, DevicePlanned, Event, Listener, StepStarted


class BoardCrew:
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

    def look(self, devices: Sequence[Device], done: Done) -> None:
        """Look again, at most `parallel` at a time."""
        operation = self._operation
        known = {one.name: one for one in devices}

        def work(session: Session, result: DeviceResult) -> None:
            device = known[session.host.name]
            name, verify = operation.playbook.name, operation.options.verify
            look_again(session, result, device, name, operation.run_id, verify=verify)

        self._on(devices, work, done)

    def back(self, devices: Sequence[Device], done: Done) -> None:
        """Roll back, at most `parallel` at a time."""
        operation = self._operation
        known = {one.name: one for one in devices}

        def work(session: Session, result: DeviceResult) -> None:
            one = known[session.host.name]
            name, run_id = operation.playbook.name, operation.run_id
            switch_back(session, result, name, run_id, to=one.was, only=one.release)

        self._on(devices, work, done)

    def wait(self, seconds: float) -> None:
        """Sleep: a soak is time that passes."""
        time.sleep(seconds)

    def _on(
        self,
        devices: Sequence[Device],
        work: Callable[[Session, DeviceResult], None],
        done: Done,
    ) -> None:
        if devices:
            hosts = [self._hosts[one.name] for one in devices]
            self._operation.everywhere(work, hosts, self._only_steps, done=done)

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
                    f"release {event.release} would be deployed to {event.kind}, and this run "
                    f"has deployed {given}: the runtime or a file of the release is another now",
                    device=event.host,
                    hint="fleet deploy (a new run), or "
                    f"fleet resume {self._operation.run_id} --force-inputs",
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
