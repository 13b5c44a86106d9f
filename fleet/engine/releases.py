"""What is deployed on devices, and the way back: status and rollback."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from fleet.device.shell import MARK, device_script, framed, odd_answer
from fleet.engine.leasing import Lease
from fleet.engine.pool import DeviceResult, on_every_device
from fleet.engine.releasing import carry_out
from fleet.engine.session import Session
from fleet.engine.states import gathered
from fleet.facts.identity import check_identity
from fleet.model.errors import DeviceError
from fleet.model.events import Listener
from fleet.model.inventory import Host
from fleet.model.manifest import Manifest, read_manifest
from fleet.model.plan import ProbeHealth, SwitchRelease
from fleet.ops.fsck import passed_in
from fleet.ops.lease import Holders, holders_in, who_command
from fleet.ops.release import own_dir, release_dir
from fleet.profiles.runs import new_run_id

_SECONDS = re.compile("[0-9]{1,11}")


@dataclass
class Deployed:
    """One name on a device. `state` is installed or damaged; `broken` counts dead links.

    `history` is oldest first; `origin` is what the manifest says of runtime and bundle; `since`
    is when it was switched to, in UTC by the clock of the device, None where it does not say.
    """

    name: str
    id: str
    state: str
    broken: int
    history: list[str] = field(default_factory=list)
    origin: dict[str, Any] = field(default_factory=dict)
    since: str | None = None

    @property
    def previous(self) -> str | None:
        """Where a rollback goes: the newest in history that is not current."""
        return next((past for past in reversed(self.history) if past != self.id), None)

    def as_dict(self) -> dict[str, Any]:
        """Plain data for JSON."""
        return {**asdict(self), "previous": self.previous}


def parse_status(text: str, host: str) -> list[Deployed]:
    """The answer of status.sh. Raises DeviceError when it was cut or makes no sense."""
    found: dict[str, Deployed] = {}
    for words in framed(text, "fleet-status 1", host):
        kind, name, *rest = (*words, "")
        if kind == "name":
            try:
                found[name] = Deployed(name, rest[0], rest[1], int(rest[2]))
            except (IndexError, ValueError) as error:
                raise odd_answer(" ".join(words), host) from error
        elif kind == "made" and name in found and _SECONDS.fullmatch(rest[0]):
            found[name].since = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(int(rest[0])))
        elif kind == "history" and name in found:
            found[name].history.append(rest[0])
        elif kind == "manifest" and name in found:
            try:
                found[name].origin = json.loads(" ".join(rest))["origin"]
            except (ValueError, KeyError, TypeError):
                found[name].state = "damaged"
    return list(found.values())


def deployed(session: Session, base: str) -> tuple[list[Deployed], Holders, dict[str, Any] | None]:
    """Everything under a base folder, who holds the board, and when all of it was last hashed and
    found right; one round trip.
    """
    host = session.host.name
    text = session.ask(who_command(device_script("status", base)), "status").text
    said = [line.removeprefix("fsck ") for line in text.splitlines() if line.startswith("fsck ")]
    passed = passed_in(said[-1]) if said else None
    return parse_status(text, host), holders_in(text, host), passed


def status(
    hosts: Sequence[Host], listener: Listener, *, parallel: int, accept_new: bool = False
) -> list[DeviceResult]:
    """What is deployed on each host; `details["deployed"]` holds it. Reads only."""

    def work(session: Session, result: DeviceResult) -> None:
        facts = gathered(session)
        found, holders, passed = deployed(session, facts.base_dir)
        result.outcome = "ok"
        checked = [f"fsck passed {passed['passed']}"] if passed else []
        result.text = "; ".join([*holders.notes(), *checked])
        result.details = {
            "deployed": [release.as_dict() for release in found],
            "base_dir": facts.base_dir,
            "disk_free_bytes": facts.disk.available_bytes,
            "emulated": facts.emulated,
            "fsck": passed,
            **holders.as_dict(),
        }

    return on_every_device(hosts, work, listener, parallel=parallel, accept_new=accept_new)


def rollback(
    hosts: Sequence[Host],
    name: str,
    listener: Listener,
    *,
    to: str | None = None,
    parallel: int = 16,
) -> list[DeviceResult]:
    """Switch `name` back to its previous release (or to `to`), after a health probe of it.

    Nothing is uploaded. A device without that release, or whose old release opens no NPU
    session, fails and stays as it is.
    """
    run_id = new_run_id()

    def work(session: Session, result: DeviceResult) -> None:
        switch_back(session, result, name, run_id, to=to)

    return on_every_device(hosts, work, listener, parallel=parallel)


def switch_back(
    session: Session,
    result: DeviceResult,
    name: str,
    run_id: str,
    *,
    to: str | None = None,
    only: str | None = None,
) -> None:
    """Switch one device to its previous release of `name`, or to `to`; health first.

    `only`: where another release than this one is current, nothing is done. Raises DeviceError
    when there is no such release; then nothing is changed.
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
    result.outcome, result.text = "changed", f"release {target}, was {known[name].id}"


def _whole(start: str, history: Sequence[str]) -> str:
    """The one release of the history that begins so, as tables show ids; else the text itself."""
    found = {past for past in history if past.startswith(start)}
    return found.pop() if len(found) == 1 else start


def stored_manifest(
    session: Session, base: str, name: str, release_id: str, *, whole: bool = False
) -> Manifest:
    """manifest.json of a release on the device; DeviceError when it is gone or damaged.

    `whole`: with its files, and only if its content has the id of the release.
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
