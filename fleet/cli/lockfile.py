"""`fleet config lock`: write fleet.lock, or check it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated

import typer

from fleet.cli import options as opt
from fleet.cli import output
from fleet.cli.common import end_with, hosts_of
from fleet.cli.live import listening
from fleet.cli.results import show_errors
from fleet.config.lockfile import load_lock, lock_of, lock_path, playbook_hash, save_lock
from fleet.config.playbook import load_playbook
from fleet.engine.deploy.operation import Operation
from fleet.engine.options import DeployOptions
from fleet.model.errors import InputError, LockFileError
from fleet.model.lockfile import HEADER, Lock, LockedRelease, shortened, stale

_MARK = HEADER[:18]  # `# Written by fleet` marks fleet's files, even damaged ones
_FIRST_LINES = 3  # a merge conflict may insert its own line before the mark


def lock_file(
    playbook: opt.Playbook,
    inventory: opt.Inventory,
    limit: opt.Limit = None,
    check: Annotated[
        bool, typer.Option("--check", help="Write nothing; exit with 1 if the file is out of date.")
    ] = False,
    lock_file: opt.LockFile = None,
    offline: opt.Offline = False,
    accept_new: opt.AcceptNew = False,
    as_json: opt.Json = False,
) -> None:
    """Write fleet.lock: the QAIRT build and the hash of every file, per kind of device.

    Example: fleet config lock playbooks/tiny-genie.yaml -i inventories/lab.yaml --check
    """
    where = lock_path(playbook, lock_file)
    loaded = load_playbook(playbook)
    old = load_lock(where).of(loaded.name) if check else before(where, loaded.name, limit)
    hosts = hosts_of(inventory, limit)
    with listening(as_json=False) as listener:
        operation = Operation(
            loaded, hosts, listener, options=DeployOptions(offline=offline, accept_new=accept_new)
        )
        results, releases = operation.lock()
    show_errors(results)
    if any(result.error is not None and result.plan is None for result in results):
        end_with([result.error for result in results], fine=False)
    now = Lock(loaded.name, playbook_hash(playbook), releases)
    differences = stale(old, now, limited=bool(limit)) if check and old else []
    changed = False if check else save_lock(where, now.beside(old) if limit else now)
    if as_json:
        output.emit_json({"lock_file": str(where), "changed": changed, "differences": differences})
    elif check:
        output.say(shortened(differences) if differences else f"{where} is up to date")
    else:
        _show_written(where, releases, changed=changed)
    if differences:
        raise typer.Exit(1)


def before(where: Path, name: str, limit: Sequence[str] | None) -> Lock | None:
    """Return the lock that will be replaced; None if there is none or it cannot be read.

    Raises InputError for a file that is not a lock of this playbook, because fleet does not
    overwrite it.
    """
    if not where.exists():
        return None
    try:
        old = load_lock(where)
    except LockFileError as error:
        if not _ours(where):
            raise InputError(
                f"fleet does not overwrite {where}, because it is not a fleet lock file",
                hint=f"name another file with --lock-file FILE, or remove {where}",
            ) from error
        if limit:
            raise
        output.note(f"warning: {error}; fleet writes a new one")
        return None
    return old.of(name)


def _ours(where: Path) -> bool:
    try:
        with where.open(encoding="utf-8", errors="replace") as stream:
            return any(stream.readline(len(HEADER)).startswith(_MARK) for _ in range(_FIRST_LINES))
    except OSError:
        return False


def write_planned(
    playbook: Path,
    given: Path | None,
    operation: Operation,
    releases: tuple[LockedRelease, ...],
    limit: Sequence[str] | None,
) -> None:
    """Write the planned releases to the lock file (`plan --write-lock`), and print what changed.

    With `limit`, the releases of other kinds of device are kept.
    """
    where, name = lock_path(playbook, given), operation.playbook.name
    now = Lock(name, playbook_hash(playbook), releases)
    old = before(where, name, limit)
    changed = save_lock(where, now.beside(old) if limit else now)
    _show_written(where, releases, changed=changed, say=output.note)


def lock_for(playbook: Path, given: Path | None, *, locked: bool, frozen: bool) -> Lock | None:
    """Return the lock that a deploy must match; None without --locked and --frozen.

    Raises LockFileError if it is missing, damaged, of another playbook, or, with --locked, older
    than the playbook.
    """
    if locked and frozen:
        raise InputError("--locked and --frozen cannot be combined", hint="remove one of the two")
    if not (locked or frozen):
        if given is not None:
            raise InputError(
                "--lock-file has no effect without --locked or --frozen",
                hint="add --locked or --frozen",
            )
        return None
    return lock_of(playbook, lock_path(playbook, given), frozen=frozen)


def _show_written(
    where: Path,
    releases: tuple[LockedRelease, ...],
    *,
    changed: bool,
    say: Callable[[str], None] = output.say,
) -> None:
    kinds = ", ".join(release.kind for release in releases)
    say(f"{where} {'written' if changed else 'is unchanged'}: {kinds}")
    output.advise("next: commit the lock file, then deploy with: fleet deploy --locked")
