"""`fleet lock-file`: write fleet.lock, or check it."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from fleet.cli import output
from fleet.cli.common import (
    AcceptNewOption,
    InventoryOption,
    JsonOption,
    LimitOption,
    OfflineOption,
    PlaybookArgument,
    end_with,
    hosts_of,
)
from fleet.cli.live import listening
from fleet.cli.results import show_errors
from fleet.config.lockfile import load_lock, lock_path, playbook_hash, save_lock
from fleet.config.playbook import load_playbook
from fleet.engine.operation import Operation, Options
from fleet.model.lockfile import Lock, differences, shortened

LockFileOption = Annotated[
    Path | None, typer.Option("--lock-file", help="Lock file; default: fleet.lock by the playbook.")
]


def register(root: typer.Typer) -> None:
    """Add `lock-file`."""
    root.command("lock-file")(lock_file)


def lock_file(
    playbook: PlaybookArgument,
    inventory: InventoryOption,
    limit: LimitOption = None,
    check: Annotated[
        bool, typer.Option("--check", help="Write nothing; exit code 1 when the lock is stale.")
    ] = False,
    path: LockFileOption = None,
    offline: OfflineOption = False,
    accept_new: AcceptNewOption = False,
    as_json: JsonOption = False,
) -> None:
    """Write down exactly what would be deployed: runtime build, every file by hash, by device kind.

    Example: fleet lock-file playbooks/tiny-genie.yaml -i inventories/lab.yaml --check
    """
    where = lock_path(playbook, path)
    with listening(as_json=False) as listener:
        operation = Operation(
            load_playbook(playbook),
            hosts_of(inventory, limit),
            listener,
            options=Options(offline=offline, accept_new=accept_new),
        )
        results, releases = operation.lock()
    show_errors(results)
    lock = Lock(operation.playbook.name, playbook_hash(playbook), releases)
    if any(one.error is not None and one.plan is None for one in results):
        end_with([one.error for one in results], fine=False)
    said = _compare(load_lock(where), lock) if check else []
    changed = False if check else save_lock(where, lock)
    if as_json:
        output.emit_json({"lock_file": str(where), "changed": changed, "differences": said})
    elif check:
        output.say(shortened(said) if said else f"{where} is up to date")
    else:
        kinds = ", ".join(f"{one.target} {one.arch}".strip() for one in releases)
        output.say(f"{where} {'written' if changed else 'is as it was'}: {kinds}")
        output.note("next: commit it; fleet deploy --locked")
    if said:
        raise typer.Exit(1)


def _compare(old: Lock, new: Lock) -> list[str]:
    """What differs for the kinds of device that were asked now."""
    said = [] if old.playbook == new.playbook else ["the playbook changed"]
    for now in new.releases:
        was = old.release(now.target, now.arch)
        kind = f"{now.target} {now.arch}".strip()
        lines = ["is not in the lock"] if was is None else differences(was, now)
        said += [f"{kind}: {line}" for line in lines]
    return said
