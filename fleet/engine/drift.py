"""Locks and devices: what is locked, what would be deployed, and what is really there."""

from __future__ import annotations

from collections.abc import Sequence

from fleet.engine.planning import FACTS_SECONDS, ask_state, check_base
from fleet.engine.pool import DeviceResult, on_every_device
from fleet.engine.session import Session
from fleet.engine.workbench import Workbench
from fleet.facts.gather import gather
from fleet.model.deadline import Deadline
from fleet.model.errors import LockFileError
from fleet.model.events import Listener
from fleet.model.inventory import Host
from fleet.model.lockfile import Lock, LockedRelease, differences, locked, shortened
from fleet.model.plan import DevicePlan
from fleet.runtimes.targets import default_target

CURE = "fleet lock-file PLAYBOOK -i INVENTORY writes it anew; look at what changed before"


def locked_plan(plan: DevicePlan, bench: Workbench) -> LockedRelease:
    """What a plan would deploy, as it stands in a lock."""
    arch = plan.facts.soc.hexagon_arch
    return locked(plan.manifest, plan.target, arch, bench.kinds(plan.target, arch))


def require_locked(plan: DevicePlan, bench: Workbench, lock: Lock) -> None:
    """Raise LockFileError when a plan would deploy anything else than what is locked."""
    now = locked_plan(plan, bench)
    wanted = lock.release(now.target, now.arch)
    host = plan.host.name
    if wanted is None:
        raise LockFileError(
            f"the lock has nothing for {now.target} {now.arch or '(unknown Hexagon)'}",
            device=host,
            hint=CURE,
        )
    said = differences(wanted, now)
    if said:
        raise LockFileError(f"not as locked: {shortened(said)}", device=host, hint=CURE)


def drift(
    hosts: Sequence[Host],
    lock: Lock,
    listener: Listener,
    *,
    verify: bool = False,
    parallel: int = 16,
    accept_new: bool = False,
) -> list[DeviceResult]:
    """Compare each device with the lock; `details["drift"]` names what differs. Reads only.

    Two round trips a device. With `verify` every file is hashed on the device.
    """

    def work(session: Session, result: DeviceResult) -> None:
        facts = gather(session.transport, session.host, Deadline(FACTS_SECONDS))
        check_base(facts.base_dir, session.host.name)
        target = session.host.target or default_target("linux", facts.machine or "") or ""
        release = lock.release(target, facts.soc.hexagon_arch)
        if release is None:
            said = [f"the lock has nothing for {target} {facts.soc.hexagon_arch or ''}".strip()]
        else:
            state = ask_state(session, facts, release.manifest(lock.name), verify=verify)
            said = _drift(release, state.current, state.bad, state.have, state.unlinked)
        result.details = {"drift": said, "emulated": facts.emulated}
        result.outcome = "drifted" if said else "ok"
        result.text = shortened(said) if said else f"as locked: {release.id if release else ''}"

    return on_every_device(hosts, work, listener, parallel=parallel, accept_new=accept_new)


def _drift(
    release: LockedRelease,
    current: str | None,
    bad: frozenset[str],
    have: frozenset[str],
    unlinked: frozenset[str],
) -> list[str]:
    said = []
    if current != release.id:
        said.append(f"current is {current or 'nothing'}, locked {release.id}")
    for one in release.files:
        if one.sha256 in bad:
            said.append(f"{one.name} is damaged")
        elif one.sha256 not in have:
            said.append(f"{one.name} is missing")
        elif one.sha256 in unlinked:
            said.append(f"{one.name} is not linked")
    return said
