"""The values between workstation and workers: plain values that pickle, without secrets.

A password is a SecretRef, which the worker resolves. Its value, a `Secret`, cannot be pickled at
all.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from fleet.bundles.closure import OpenedFiles
from fleet.engine.deploy.resolver import Parts
from fleet.engine.options import DeployOptions
from fleet.engine.pool import DeviceResult
from fleet.model import events
from fleet.model.bundle import Bundle
from fleet.model.errors import InputError
from fleet.model.events import Event
from fleet.model.inventory import Host
from fleet.model.manifest import Manifest
from fleet.model.plan import Action, Blob, DevicePlan, ProbeHealth, SendBlobs, StageRelease
from fleet.model.playbook import Playbook

TOPIC = (
    "fleet"  # the only topic: the scheduler keeps the last 1,000 messages of each topic for good
)
BEAT_SECONDS = 10.0  # the interval of the beats of a working workstation
SILENT_SECONDS = 60.0  # six missing beats: the workstation is gone
TEXT_BYTES = 1 << 20  # known_hosts and ssh_config; a file of pins for 10,000 boards has 1 MB

_EVENTS: dict[str, type[Event]] = {
    name: kind
    for name, kind in vars(events).items()
    if isinstance(kind, type) and issubclass(kind, Event)
}


@dataclass(frozen=True)
class Order:
    """A piece of work, sent once to each worker process.

    `what` is a method of Operation (`_deploy`) or `module:function` of fleet. `texts` are the
    contents of small files that hosts name (pins, ssh configs), by the workstation's path.
    """

    id: str
    run_id: str
    what: str
    playbook: Playbook | None = None
    options: DeployOptions = field(default_factory=DeployOptions)
    bundle: Bundle | None = None
    texts: Mapping[Path, bytes] = field(default_factory=dict)


@dataclass(frozen=True)
class DeviceKind:
    """The release for devices of one target and Hexagon arch, as the workstation resolved it."""

    parts: Parts
    manifest: Manifest
    kinds: Mapping[Path, str]
    opened: OpenedFiles
    corrected: tuple[str, ...]


@dataclass(frozen=True)
class Carried:
    """A file that the work on a board wrote on the worker, relative to its folder there.

    `data` is None if the file is too large for the reply; then it is requested in pieces.
    """

    name: str
    size: int
    data: bytes | None = None


@dataclass(frozen=True)
class Reply:
    """The reply of a task. `state` is done, again or unknown.

    again: a lost worker had begun this board, so nothing was done this time. unknown: this process
    does not know the order, because it was restarted.
    """

    state: str
    worker: str
    result: DeviceResult[Any] | None = None
    files: tuple[Carried, ...] = ()


def event_of(data: Mapping[str, Any]) -> Event | None:
    """Return the event of a message; None for a kind that is not sent."""
    kind = _EVENTS.get(str(data.get("event")))
    return kind(**{k: v for k, v in data.items() if k != "event"}) if kind else None


def may_travel(host: Host) -> None:
    """Raise InputError if the inventory has a value that must not be sent to workers."""
    refs = (host.password, host.become_password, host.key_passphrase)
    if any(ref is not None and ref.literal is not None for ref in refs):
        raise InputError(
            "the inventory contains a password in clear text, which fleet does not send to workers",
            hint="write env:NAME, file:PATH or cmd:PROGRAM; the worker resolves the reference",
        )
    if host.transport == "local":
        raise InputError(
            "`transport: local` means this workstation, not the worker",
            hint=f"leave the host out: --limit 'all' --limit '!{host.name}'",
        )


def brought_home(result: DeviceResult[Any], host: Host, known: Mapping[str, Manifest]) -> None:
    """Replace the host and the manifest of a result by those of the workstation."""
    result.host = host
    plan = result.plan
    if plan is None:
        return
    manifest = known.get(plan.manifest.id, plan.manifest)
    actions = tuple(_at_home(action, manifest) for action in plan.actions)
    result.plan = replace(plan, host=host, manifest=manifest, actions=actions)


def _at_home(action: Action, manifest: Manifest) -> Action:
    if isinstance(action, SendBlobs):
        have = manifest.blobs
        blobs = (Blob(have.get(blob.file.sha256, blob.file), blob.offset) for blob in action.blobs)
        return replace(action, blobs=tuple(blobs))
    if isinstance(action, StageRelease | ProbeHealth):
        return replace(action, manifest=manifest)
    return action


def blobs_of(plan: DevicePlan) -> dict[str, int]:
    """Return sha256 → size of the blobs that a plan sends."""
    return {
        blob.file.sha256: blob.file.size
        for action in plan.actions
        if isinstance(action, SendBlobs)
        for blob in action.blobs
    }
