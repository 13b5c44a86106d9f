"""The values between workstation and workers: plain values that pickle, without secrets.

A password is a SecretRef, which the worker resolves. Its value, a `Secret`, cannot be pickled at
all.
"""

from __future__ import annotations

import shlex
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from fleet.bundles.closure import OpenedFiles
from fleet.engine.deploy.resolver import Parts
from fleet.engine.options import DeployOptions
from fleet.engine.pool import DeviceResult
from fleet.model import events
from fleet.model.bundle import Bundle
from fleet.model.errors import InputError, UnreachableError
from fleet.model.events import Event
from fleet.model.extras import source
from fleet.model.inventory import Host
from fleet.model.manifest import Manifest
from fleet.model.plan import Action, Blob, DevicePlan, ProbeHealth, SendBlobs, StageRelease
from fleet.model.playbook import Playbook
from fleet.model.version import VERSION

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
            f"{host.name} has `transport: local`, which means this workstation, so a worker of the "
            "cluster cannot reach it",
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


# The label `site` of a board selects its workers. Workstation and workers exchange pickles, so they
# need the same fleet and the same Python.

LABEL = "site"


@dataclass(frozen=True)
class Place:
    """A worker process for `threads` boards at a time.

    `machine` identifies the machine with its blobs.
    """

    address: str
    name: str
    threads: int
    sites: frozenset[str] = frozenset()
    machine: str = ""

    def serves(self, site: str) -> bool:
        """Return True if the worker serves a site; every worker serves "".

        A worker serves a site by `--name SITE`, `--name SITE-1` or `--resources "site-SITE=1"`.
        """
        named = self.name == site or self.name.startswith(f"{site}-")
        return not site or named or site in self.sites


def place_of(address: str, info: Mapping[str, Any]) -> Place:
    """Return the worker at `address` from `info`, the scheduler's entry for it."""
    prefix = f"{LABEL}-"
    sites = (name.removeprefix(prefix) for name in info["resources"] if name.startswith(prefix))
    return Place(address, str(info["name"]), int(info["nthreads"]), frozenset(sites))


def site_of(host: Host) -> str:
    """Return the site of a board, "" for none."""
    return host.labels.get(LABEL, "")


def serving(site: str, places: Sequence[Place]) -> list[Place]:
    """Return the workers for a site. Raises InputError with a command if there is none."""
    matches = [place for place in places if place.serves(site)]
    if not matches:
        have = sorted({site for place in places for site in (*place.sites, place.name)})
        raise InputError(
            f"no worker of the cluster serves site '{site}'; workers and sites: {', '.join(have)}",
            hint="start a worker at that site: "
            f"dask worker SCHEDULER:PORT --name {site}-1 --nthreads 32",
        )
    return matches


def check_versions(answers: Mapping[str, Any]) -> dict[str, str]:
    """Return address → machine of the workers that answered `who`.

    A worker that is gone meanwhile is left out. Raises InputError with the names of the workers
    that have another version.
    """
    python = f"{sys.version_info.major}.{sys.version_info.minor}"
    wrong, machines = [], {}
    for address, answer in answers.items():
        if isinstance(answer, UnreachableError):
            continue
        if isinstance(answer, ImportError):
            wrong.append(f"{address} does not have fleet installed")
        elif isinstance(answer, Exception):
            wrong.append(
                f"{address} did not report its version ({type(answer).__name__}: {answer})"
            )
        elif (answer["fleet"], answer["python"]) != (VERSION, python):
            name = answer["worker"]
            wrong.append(f"{name} has fleet {answer['fleet']} on Python {answer['python']}")
        else:
            machines[address] = answer["machine"]
    if wrong:
        more = f"; and {len(wrong) - 3} more" if len(wrong) > 3 else ""
        raise InputError(
            f"all workers must have fleet {VERSION} on Python {python} like this workstation, "
            f"but: {'; '.join(wrong[:3])}{more}",
            hint=f"run on the workers, with Python {python}: pip install "
            f"{shlex.join(source('dask'))} "
            "(or a copy of that folder), then restart the workers",
        )
    return machines
