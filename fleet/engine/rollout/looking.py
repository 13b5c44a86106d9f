"""The look after the soak: is the board still what the deploy left?"""

from __future__ import annotations

from fleet.engine.leasing import Lease
from fleet.engine.pool import DeviceResult
from fleet.engine.releases import stored_manifest
from fleet.engine.releasing import check_health
from fleet.engine.rollout.state import Device
from fleet.engine.session import Session
from fleet.engine.states import ask_state, facts_of
from fleet.model.errors import DeviceError
from fleet.model.events import StepStarted


def look_again(
    session: Session,
    result: DeviceResult,
    device: Device,
    name: str,
    run_id: str,
    *,
    verify: bool = False,
) -> None:
    """Raise DeviceError or HealthError for what is no longer as `device` says.

    It answers, in the same boot; the release is current, has its seal, its links and its blobs
    with their sizes (with `verify`: hashes); the health probe of its manifest opens a session.
    All of it is asked of the device: the host's bundle may be another by now.
    """
    host = session.host.name
    session.emit(StepStarted(host, "soak", "look again"))
    facts = facts_of(session)
    if device.boot_id and facts.boot_id and facts.boot_id != device.boot_id:
        raise _bad(host, f"the board was rebooted since its deploy (boot {facts.boot_id})")
    if not device.release:  # only the system was changed
        result.outcome, result.text = "ok", "it answers, in the same boot"
        return
    manifest = stored_manifest(session, facts.base_dir, name, device.release, whole=True)
    state = ask_state(session, facts, manifest, verify=verify)
    if state.current != device.release:
        raise _bad(host, f"release {state.current or 'nothing'} is current, not {device.release}")
    if not state.installed:
        raise _bad(host, f"release {device.release} has lost its seal")
    broken = sorted(
        item.name
        for sha, item in manifest.blobs.items()
        if sha not in state.have or sha in state.unlinked
    )
    if broken:
        more = f" and {len(broken) - 1} more" if len(broken) > 1 else ""
        raise _bad(host, f"{broken[0]}{more} of release {device.release} is damaged or gone")
    if manifest.origin.get("health") is not None:
        with Lease(session, f"look at {name} after the soak", run_id):
            check_health(session, manifest, facts.base_dir, run_id)
    result.outcome, result.text = "ok", f"release {device.release} is whole and answers"


def _bad(host: str, message: str) -> DeviceError:
    return DeviceError(
        message,
        device=host,
        step="soak",
        hint=f"fleet doctor --limit {host}, with the same inventory",
    )
