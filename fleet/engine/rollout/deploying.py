"""The rollout of an operation: its waves, its journal, its results."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Protocol

from fleet.config.select import select
from fleet.engine.deploy.release_builder import Builder
from fleet.engine.deploy.releases import stored_manifest, switch_back
from fleet.engine.deploy.switch import check_health
from fleet.engine.lease.lease import Lease
from fleet.engine.options import DeployOptions
from fleet.engine.pool import NOT_ATTEMPTED, DeviceResult, Value, Work
from fleet.engine.rollout.claim import NAME
from fleet.engine.rollout.driver import Done, Ending, Rollout
from fleet.engine.rollout.inputs import Inputs, content_hashes, file_hashes
from fleet.engine.rollout.journal import Journal
from fleet.engine.rollout.lines import PlanLine, RunHeader, StepLine
from fleet.engine.rollout.state import RolloutDevice, row
from fleet.engine.rollout.waves import Wave, plan_waves
from fleet.engine.session import Session
from fleet.engine.states import ask_state, facts_of
from fleet.model.errors import DeviceError, FleetError, InputError, InventoryError
from fleet.model.events import (
    DeviceDone,
    DevicePlanned,
    Event,
    Listener,
    RolloutDone,
    StepStarted,
    Warned,
)
from fleet.model.inventory import Host, Inventory
from fleet.model.playbook import Playbook
from fleet.model.rollout import ALL_AT_ONCE, RolloutSpec
from fleet.model.version import VERSION
from fleet.profiles.runs import RunStore


class Deployment(Protocol):
    """A playbook on hosts; `engine.deploy.operation.Operation` implements it."""

    playbook: Playbook
    hosts: tuple[Host, ...]
    options: DeployOptions
    run_id: str
    inputs: Inputs | None
    owed: frozenset[str]
    runs: RunStore
    builder: Builder

    @property
    def afar(self) -> bool:
        """True if the workers of a cluster do the work."""

    def bring(self, session: Session, result: DeviceResult[None]) -> None:
        """Deploy to one device. A device in `owed` also gets the steps after its switch again."""

    def everywhere(
        self,
        work: Work[Value],
        hosts: Sequence[Host],
        listener: Listener,
        *,
        admit: Callable[[Host], bool] | None = None,
        done: Callable[[DeviceResult[Value]], None] | None = None,
    ) -> list[DeviceResult[Value]]:
        """Run `work` as on_every_device does, with the operation's options."""


class DeviceExecutor:
    """The executor of a real rollout, which writes the events of its workers into the journal."""

    def __init__(self, operation: Deployment, journal: Journal, listener: Listener) -> None:
        self._operation, self._journal, self._listener = operation, journal, listener
        self._hosts = {host.name: host for host in operation.hosts}

    def deploy(self, names: Sequence[str], admit: Callable[[str], bool], done: Done) -> None:
        """Deploy to at most `parallel` devices at a time. `admit(name)` False skips a device."""
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
        """Check the deployed devices after the soak, at most `parallel` at a time."""
        operation = self._operation

        def look(session: Session, result: DeviceResult[None], device: RolloutDevice) -> None:
            name, verify = operation.playbook.name, operation.options.verify
            check_after_soak(session, result, device, name, operation.run_id, verify=verify)

        self._on(devices, look, done)

    def back(self, devices: Sequence[RolloutDevice], done: Done) -> None:
        """Roll back at most `parallel` devices at a time."""
        name, run_id = self._operation.playbook.name, self._operation.run_id
        runs = self._operation.runs

        def undo(session: Session, result: DeviceResult[None], device: RolloutDevice) -> None:
            switch_back(session, result, name, run_id, runs, to=device.was, only=device.release)

        self._on(devices, undo, done)

    def wait(self, seconds: float) -> None:
        """Sleep for the soak time."""
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
        """Forward all events except the end of a device, for which checks and rollbacks have their
        own.
        """
        if not isinstance(event, DeviceDone):
            self._listener(event)

    def _record(self, event: Event) -> None:
        """Record an event in the journal before its step begins.

        Raises InputError if a release differs from the one that the run gave to this kind of
        device.
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
            self._journal.write(PlanLine(
                host=event.host, release=event.release, was=event.current,
                device_kind=event.kind, boot_id=event.boot_id,
            ))  # fmt: skip
        elif isinstance(event, StepStarted) and event.host:
            line = StepLine(host=event.host, step=event.step, text=event.text, size=event.bytes)
            self._journal.write(line)
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
    """Raise DeviceError or HealthError if the device is no longer in the state of `device`.

    The device must answer in the same boot. The release must be current, with its stamp, its links
    and its blobs with their sizes (with `verify`: hashes). The health probe of its manifest must
    open a session. Everything is asked of the device, because the host's bundle may have changed.
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


def waves_of(spec: RolloutSpec | None, hosts: Sequence[Host]) -> tuple[Wave, ...]:
    """Return the waves of these hosts in order.

    Raises InputError for two hosts with one name, and for canary patterns without a match.
    """
    names = [host.name for host in hosts]
    spec = spec or ALL_AT_ONCE
    canaries: set[str] = set()
    if spec.canary_hosts:
        groups: dict[str, tuple[str, ...]] = {}
        for host in hosts:
            for group in host.groups:
                groups[group] = (*groups.get(group, ()), host.name)
        try:
            meant = Inventory(Path(), tuple(hosts), groups)
            canaries = {host.name for host in select(meant, spec.canary_hosts)}
        except InventoryError as error:
            raise InputError(
                f"canary: {error.message}, in the {len(names)} devices of this deploy",
                hint="choose a canary among the devices of --limit, or remove --limit",
            ) from error
        if not canaries:
            raise InputError(
                "the canary patterns match no device of this deploy", hint="fleet config list"
            )
    return plan_waves(names, spec, canaries)


def begin(operation: Deployment, listener: Listener) -> Journal:
    """Return the journal of a new run. It is a file only if the operation knows its inputs."""
    inputs = operation.inputs
    kept = inputs is not None and inputs.kept
    if inputs is not None and not kept:
        text = (
            "you cannot resume this run, because the playbook or the inventory is a pipe, not "
            "a file"
        )
        listener(Warned("", text))
    path = operation.runs.root / operation.run_id / NAME if kept else None
    journal = Journal.claim(path)
    try:
        header = _header(operation, inputs if kept else None)
    except FleetError:
        journal.drop()
        raise
    journal.write(header)
    return journal


def _header(operation: Deployment, inputs: Inputs | None) -> RunHeader:
    hashes: dict[str, str] = {}
    if inputs is not None:
        contents = content_hashes(operation.playbook, operation.builder.bundle)
        hashes = {**file_hashes(inputs), **contents}
    return RunHeader(
        fleet=VERSION,
        run=operation.run_id,
        name=operation.playbook.name,
        rollout=operation.playbook.rollout,
        waves=waves_of(operation.playbook.rollout, operation.hosts),
        options=operation.options,
        afar=operation.afar,
        inputs=inputs,
        hashes=hashes,
    )


def roll_out(
    operation: Deployment, journal: Journal, listener: Listener
) -> tuple[list[DeviceResult[None]], Ending]:
    """Continue the waves of a journal; return a result for every device, in the order of hosts."""
    executor = DeviceExecutor(operation, journal, listener)
    rollout = Rollout(executor, journal, listener, quiet=journal.state.header.rollout is None)
    ending = rollout.run()
    results = [_result(host, rollout, journal, ending) for host in operation.hosts]
    hint = continuation(operation.run_id, results)
    for result in results:
        if result.outcome == NOT_ATTEMPTED:
            done = DeviceDone(
                result.host.name, result.outcome, result.text, hint, 0.0, 0, 0, emulated=False
            )
            listener(done)
    devices = tuple(row(r.host.name, r.wave, r.outcome, r.text) for r in results)
    listener(RolloutDone("", operation.run_id, ending.word, ending.text, devices))
    journal.close()
    return results, ending


def continuation(run_id: str, results: Sequence[DeviceResult[None]]) -> str:
    """Return the command that continues an unfinished deploy.

    A pre-flight refusal is usually cured in the playbook or the bundle, and `--resume` refuses
    changed inputs. Such a deploy is therefore started again; nothing was sent to the refused
    devices.
    """
    unfinished = {result.outcome for result in results} - {"ok", "changed", "unchanged"}
    refused = unfinished - {NOT_ATTEMPTED} == {"refused"}
    return "fleet deploy" if refused else f"fleet deploy --resume {run_id}"


def _result(host: Host, rollout: Rollout, journal: Journal, ending: Ending) -> DeviceResult[None]:
    """Return the result of a device from this process, else from the journal."""
    device = journal.state.devices[host.name]
    result = rollout.results.get(host.name) or DeviceResult(host)
    result.outcome, result.text = journal.state.outcome(device)
    result.wave = device.wave
    if not result.outcome:
        result.outcome, result.text = NOT_ATTEMPTED, ending.text
    elif host.name not in rollout.results and device.fine and not device.back:
        result.text += ", before"
    return result
