"""From an operation to a rollout: its waves, its journal, its results."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any

from fleet.config.select import select
from fleet.engine.options import DeployOptions
from fleet.engine.pool import NOT_ATTEMPTED, DeviceResult
from fleet.engine.rollout.claim import NAME
from fleet.engine.rollout.deployment import Deployment
from fleet.engine.rollout.driver import Ending, Rollout
from fleet.engine.rollout.inputs import Inputs, content_hashes, file_hashes
from fleet.engine.rollout.journal import Journal
from fleet.engine.rollout.state import row
from fleet.engine.rollout.wave_executor import DeviceExecutor
from fleet.engine.rollout.waves import Wave, plan_waves
from fleet.model.errors import FleetError, InputError, InventoryError
from fleet.model.events import DeviceDone, Listener, RolloutDone, Warned
from fleet.model.inventory import Host, Inventory
from fleet.model.rollout import ALL_AT_ONCE, RolloutSpec


def waves_of(spec: RolloutSpec | None, hosts: Sequence[Host]) -> tuple[Wave, ...]:
    """The waves of these hosts, in their order.

    Raises InputError for two hosts of one name and for canary patterns that mean none of them.
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
    """The journal of a new run; on disk only where the operation knows its inputs."""
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
    journal.head(operation.run_id, header)
    return journal


def _header(operation: Deployment, inputs: Inputs | None) -> dict[str, Any]:
    spec = operation.playbook.rollout
    header: dict[str, Any] = {
        "name": operation.playbook.name,
        "rollout": spec.as_dict() if spec else None,
        "waves": [wave.as_dict() for wave in operation.waves()],
        "options": _plain_options(operation.options),
    }
    if operation.afar:
        header["afar"] = True
    if inputs is not None:
        header["inputs"] = inputs.as_dict()
        contents = content_hashes(operation.playbook, operation.builder.bundle)
        header["hashes"] = {**file_hashes(inputs), **contents}
    return header


def _plain_options(options: DeployOptions) -> dict[str, Any]:
    """Those that a later process can take from a file; a lock is read again from its own."""
    every = {field.name: getattr(options, field.name) for field in fields(options)}
    plain = {k: v for k, v in every.items() if v is None or isinstance(v, str | int | float)}
    return {**plain, "pace": asdict(options.transfer)}


def roll_out(
    operation: Deployment, journal: Journal, listener: Listener
) -> tuple[list[DeviceResult[None]], Ending]:
    """Go on with the waves of a journal; results in the order of the hosts, of every device."""
    executor = DeviceExecutor(operation, journal, listener)
    rollout = Rollout(executor, journal, listener, quiet=journal.state.header["rollout"] is None)
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
    """Return the command that goes on with an unfinished deploy.

    A refusal of the pre-flight is mostly cured in the playbook or the bundle, and `--resume`
    refuses inputs that changed since; so that deploy is begun again. Nothing was sent to the
    refused devices.
    """
    unfinished = {result.outcome for result in results} - {"ok", "changed", "unchanged"}
    refused = unfinished - {NOT_ATTEMPTED} == {"refused"}
    return "fleet deploy" if refused else f"fleet deploy --resume {run_id}"


def _result(host: Host, rollout: Rollout, journal: Journal, ending: Ending) -> DeviceResult[None]:
    """What this process saw of a device, else what the journal knows of it."""
    device = journal.state.devices[host.name]
    result = rollout.results.get(host.name) or DeviceResult(host)
    result.outcome, result.text = journal.state.outcome(device)
    result.wave = device.wave
    if not result.outcome:
        result.outcome, result.text = NOT_ATTEMPTED, ending.text
    elif host.name not in rollout.results and device.fine and not device.back:
        result.text += ", before"
    return result
