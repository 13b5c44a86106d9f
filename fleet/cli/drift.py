"""`fleet status --drift`: devices beside a lock."""

from __future__ import annotations

from pathlib import Path

from fleet.cli import output
from fleet.cli.common import DEFAULT_PARALLEL, end_devices
from fleet.cli.results import emit, show_errors
from fleet.config.lockfile import load_lock, lock_path
from fleet.config.playbook import load_playbook
from fleet.engine.deploy.drift import drift as compare_with_lock
from fleet.model.inventory import Host


def show_drift(
    hosts: tuple[Host, ...],
    of: Path,
    given: Path | None,
    parallel: int | None,
    accept_new: bool,
    verify: bool,
    as_json: bool,
) -> None:
    """Compare and show it; leaves with the exit code. `of` is a playbook or a lock."""
    if of.suffix == ".lock":
        lock, target = load_lock(of), None
    else:
        playbook = load_playbook(of)
        lock, target = load_lock(lock_path(of, given)).of(playbook.name), playbook.runtime.target
    results = compare_with_lock(
        hosts,
        lock,
        lambda _: None,
        target=target,
        verify=verify,
        parallel=parallel or DEFAULT_PARALLEL,
        accept_new=accept_new,
    )
    if as_json:
        emit(results)
    else:
        rows = [(result.host.name, result.outcome, result.text) for result in results]
        output.table(f"drift from {lock.name}", ("device", "outcome", ""), rows)
    show_errors(results)
    end_devices(results)
