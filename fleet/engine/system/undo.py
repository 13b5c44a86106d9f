"""The undo of the changes that a deploy made to the systems of devices."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from fleet.engine.lease.lease import Lease
from fleet.engine.pool import DeviceResult, PoolOptions, on_every_device
from fleet.engine.rollout.claim import newest
from fleet.engine.session import Session
from fleet.engine.states import gathered
from fleet.engine.system.provision import ask_rights
from fleet.engine.system.undo_log import UndoLog, backwards, take_back
from fleet.facts.identity import check_identity
from fleet.model.errors import InputError
from fleet.model.events import Listener
from fleet.model.inventory import Host
from fleet.ops.system.access import ACL
from fleet.profiles.runs import RunStore


def undo_root(runs: RunStore) -> Path:
    """Return the folder of the logs, next to the records of runs."""
    return runs.root.with_name("undo")


def changed_by(run_id: str, hosts: Sequence[Host]) -> tuple[str, dict[str, list[str]]]:
    """Return the id of the run, and device → steps that `undo` would undo, in order.

    Raises InputError for an unknown run.
    """
    store = RunStore()
    root = undo_root(store)
    run_id = _known_run(run_id, store)
    steps = {}
    for host in hosts:
        if back := backwards(UndoLog(root, run_id, host.name).read()):
            steps[host.name] = [step.describe for step in back]
    return run_id, steps


def _known_run(run_id: str, runs: RunStore) -> str:
    """Return the id of a run that changed a system (`last`: the newest). Raises InputError."""
    root = undo_root(runs)
    known = sorted(folder.name for folder in root.iterdir()) if root.is_dir() else []
    if run_id == "last" and known:
        run_id = newest(runs.root, known)
    if run_id not in known:
        raise InputError(
            f"no run '{run_id}' changed the system of a device, so there is nothing to undo",
            hint=f"use one of these runs: {', '.join(known[-5:])}"
            if known
            else (
                "check that FLEET_HOME is the same as for the deploy: fleet keeps its log of "
                "system changes there"
            ),
        )
    return run_id


def undo(
    hosts: Sequence[Host],
    run_id: str,
    listener: Listener,
    *,
    parallel: int,
    runs: RunStore | None = None,
) -> list[DeviceResult[None]]:
    """Undo the steps of a run in reverse order (`last`: the newest run). Releases do not change.

    Raises InputError when there is no such run; a device without a log is left unchanged.
    """
    store = runs or RunStore()
    root = undo_root(store)
    run_id = _known_run(run_id, store)

    def work(session: Session, result: DeviceResult[None]) -> None:
        log = UndoLog(root, run_id, session.host.name)
        if not log.path.is_file():
            result.outcome, result.text = "unchanged", "the run changed nothing on this device"
            return
        if session.host.identity is not None:
            check_identity(session.host, gathered(session))
        become, _ = ask_rights(session)
        with Lease(session, f"undo {run_id}", run_id):
            remarks = take_back(session, log, become)
        for text in remarks:
            session.warn(f"fleet could not undo this step: {text}")
        acls = "; ".join(text for text in remarks if ACL in text)
        result.outcome, result.text = "changed", f"the system is as before run {run_id}"
        result.text += acls and f", but {acls}"

    return on_every_device(hosts, work, listener, PoolOptions(parallel=parallel))
