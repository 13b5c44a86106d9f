"""The comparison of a lock file with a deploy, and with the files on the devices."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from fleet.engine.deploy.release_builder import Builder
from fleet.engine.pool import DeviceResult, PoolOptions, on_every_device
from fleet.engine.session import Session
from fleet.engine.states import ask_state, check_base, gathered
from fleet.model.errors import LockFileError
from fleet.model.events import Listener
from fleet.model.inventory import Host
from fleet.model.lockfile import CURE, Lock, LockedRelease, differences, locked, shortened
from fleet.model.plan import DevicePlan
from fleet.ops.release import ReleaseState
from fleet.runtimes.targets import default_target


def locked_plan(plan: DevicePlan, builder: Builder) -> LockedRelease:
    """Return the release that a plan would deploy, in the form of a lock."""
    arch = plan.facts.soc.hexagon_arch
    kinds = builder.kinds(plan.target, arch, builder.python_of(plan.facts))
    return locked(plan.manifest, plan.target, arch, kinds)


def require_locked(plan: DevicePlan, builder: Builder, lock: Lock) -> None:
    """Raise LockFileError if a plan would deploy anything other than the locked release."""
    now = locked_plan(plan, builder)
    changes = differences(lock.required(now.target, now.arch), now)
    if changes:
        raise LockFileError(
            f"the deploy differs from the lock file: {shortened(changes)}", hint=CURE
        )


@dataclass(frozen=True)
class Drift:
    """The sentences that state how a device differs from a lock; none if it matches."""

    differences: tuple[str, ...]
    emulated: bool
    PLAIN: ClassVar[str] = "drift=differences emulated"


def drift(
    hosts: Sequence[Host],
    lock: Lock,
    listener: Listener,
    *,
    target: str | None = None,
    verify: bool = False,
    parallel: int = 16,
    accept_new: bool = False,
) -> list[DeviceResult[Drift]]:
    """Compare each device with the lock; the value is its `Drift`. Only reads, in two round trips a
    device.

    `target` is the playbook's fixed target or None. `accept_new` pins new host keys. With `verify`,
    the device hashes every file; a device that cannot hash then counts as drifted.
    """

    def work(session: Session, result: DeviceResult[Drift]) -> None:
        facts = gathered(session)
        check_base(facts.base_dir)
        machine = facts.machine or ""
        wanted = session.host.target or target or default_target("linux", machine) or machine
        release = lock.release(wanted, facts.soc.hexagon_arch)
        if release is None:
            sentences = [
                f"the lock file has no release for {wanted} {facts.soc.hexagon_arch or ''}".strip()
            ]
        else:
            state = ask_state(session, facts, release.manifest(lock.name), verify=verify)
            sentences = _drift(release, state)
            if verify and not facts.tools.sha256:
                sentences.append(
                    "fleet could not check the contents of the files, because the device has "
                    "no hash tool"
                )
        result.value = Drift(tuple(sentences), facts.emulated)
        result.outcome = "drifted" if sentences else "ok"
        result.text = (
            shortened(sentences)
            if sentences
            else (f"matches the lock file: {release.id if release else ''}")
        )

    return on_every_device(
        hosts, work, listener, PoolOptions(parallel=parallel, accept_new=accept_new)
    )


def _drift(release: LockedRelease, state: ReleaseState) -> list[str]:
    sentences = []
    if state.current != release.id:
        sentences.append(
            f"the current release is {state.current or 'none'}, but the lock file has {release.id}"
        )
    elif not state.installed:
        sentences.append(
            f"the current release {release.id} is not complete: its deploy did not finish"
        )
    for item in release.files:
        if item.sha256 in state.bad:
            sentences.append(f"{item.name} is damaged")
        elif item.sha256 not in state.have:
            sentences.append(f"{item.name} is missing")
        elif item.sha256 in state.unlinked:
            sentences.append(f"the link to {item.name} is missing")
    return sentences
