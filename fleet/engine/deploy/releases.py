"""The rollback of devices to an earlier release."""

from __future__ import annotations

from collections.abc import Sequence

from fleet.device.shell import MARK, device_script
from fleet.engine.deploy.switch import carry_out
from fleet.engine.lease.claims import owner
from fleet.engine.lease.lease import Lease
from fleet.engine.pool import DeviceResult, PoolOptions, on_every_device
from fleet.engine.session import Session
from fleet.engine.states import gathered
from fleet.engine.status import deployed
from fleet.facts.gather import check_identity
from fleet.model.errors import DeviceError
from fleet.model.events import Listener
from fleet.model.inventory import Host
from fleet.model.manifest import Manifest, read_manifest
from fleet.model.plan import ProbeHealth, SwitchRelease
from fleet.ops.release import own_dir, release_dir
from fleet.profiles.runs import RunStore, new_run_id


def rollback(
    hosts: Sequence[Host],
    name: str,
    listener: Listener,
    *,
    to: str | None = None,
    parallel: int = 16,
    runs: RunStore | None = None,
) -> list[DeviceResult[None]]:
    """Switch `name` back to its previous release (or to `to`) after a health probe of that release.

    Nothing is uploaded. A device that does not have the release, or whose old release opens no NPU
    session, fails and stays as it is. Each switch is noted next to `runs` with its user.
    """
    run_id, known = new_run_id(), runs or RunStore()

    def work(session: Session, result: DeviceResult[None]) -> None:
        switch_back(session, result, name, run_id, known, to=to)

    return on_every_device(hosts, work, listener, PoolOptions(parallel=parallel))


def switch_back(
    session: Session,
    result: DeviceResult[None],
    name: str,
    run_id: str,
    runs: RunStore,
    *,
    to: str | None = None,
    only: str | None = None,
) -> None:
    """Switch one device to its previous release of `name`, or to `to`, after a health probe.

    With `only`, nothing is done if another release than that one is current. Raises DeviceError if
    there is no such release, and changes nothing then.
    """
    facts = gathered(session)
    check_identity(session.host, facts)
    base = facts.base_dir
    known = {release.name: release for release in deployed(session, base)[0]}
    if name not in known:
        raise DeviceError(f"{name} is not deployed on the device", hint="fleet status")
    target = _whole(to, known[name].history) if to else known[name].previous
    if only is not None and known[name].id != only:
        result.outcome = "unchanged"
        result.text = (
            f"the current release is {known[name].id}, not {only}, so fleet changed nothing"
        )
        return
    if target is None or target not in known[name].history:
        raise DeviceError(
            f"the device has no release {to or 'older than ' + known[name].id} of {name}",
            hint="fleet status --json (shows the history)",
        )
    if target == known[name].id:
        result.outcome, result.text = "unchanged", f"release {target}"
        return
    manifest = stored_manifest(session, base, name, target)
    with Lease(session, f"rollback {name}", run_id):
        steps = (ProbeHealth(manifest), SwitchRelease(name, target, known[name].id))
        carry_out(session, facts, manifest, steps, run_id)
    runs.note_switch(session.host.name, target, run_id, owner())
    result.outcome, result.text = "changed", f"release {target}, was {known[name].id}"


def _whole(start: str, history: Sequence[str]) -> str:
    """Return the only release of the history with this beginning, else the text itself.

    Tables show shortened ids, so users paste them.
    """
    matches = {past for past in history if past.startswith(start)}
    return matches.pop() if len(matches) == 1 else start


def stored_manifest(
    session: Session, base: str, name: str, release_id: str, *, whole: bool = False
) -> Manifest:
    """Return the manifest of a release on the device. Raises DeviceError if it is gone or damaged.

    With `whole`, the manifest has its files, and its content must have the id of the release.
    """
    path = f"{own_dir(base, name, release_id)}/manifest.json"
    old = f"{release_dir(base, name, release_id)}/manifest.json"
    answer = session.ask(device_script("show", path, old), "manifest").stdout
    text = answer.partition(MARK)[2].decode("utf-8", "replace")
    try:
        return read_manifest(text, name, release_id, whole=whole)
    except ValueError as error:
        raise DeviceError(
            f"the manifest of the release on the device, {path}, is damaged: {error}",
            device=session.host.name,
            hint="fleet deploy (writes the release again)",
        ) from error
