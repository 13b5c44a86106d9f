"""The known runs, and how a run is resumed."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import ClassVar

from msgspec import structs

from fleet.config.inventory import load_inventory
from fleet.config.lockfile import load_lock
from fleet.config.playbook import load_playbook
from fleet.engine.deploy.operation import Operation, Resources
from fleet.engine.rollout.claim import NAME, newest
from fleet.engine.rollout.inputs import Inputs, content_hashes, file_hashes, require_same
from fleet.engine.rollout.journal import Journal, busy
from fleet.engine.rollout.state import RunState
from fleet.model.errors import InputError
from fleet.model.events import Listener
from fleet.model.inventory import Host
from fleet.profiles.runs import RunStore
from fleet.runtimes.store import RuntimeStore


@dataclass(frozen=True)
class KnownRun:
    """A run with a journal. `state` is None if the journal cannot be read.

    `problem` is then the reason, and `word` says whether it is damaged or not begun.
    """

    run_id: str
    state: RunState | None
    working: bool
    problem: str = ""
    word: str = "damaged"
    PLAIN: ClassVar[str] = "run=run_id **shown"

    @property
    def shown(self) -> dict[str, object]:
        """Name, begin, state, device counts and text of the run, for JSON and for a table."""
        state = self.state
        every = list(state.devices.values()) if state else []
        return {
            "name": state.header.name if state else None,
            "begun": state.header.at if state else None,
            "state": "working" if self.working else state.word if state else self.word,
            "done": sum(1 for device in every if device.fine and not device.back),
            "devices": len(every),
            "text": self.problem or (state.text if state else ""),
        }


def require_what_is_asked(journal: Journal, runs: RunStore) -> None:
    """Raise InputError if a finished run was begun with other inputs than the current ones.

    It is then not the last requested deploy, which ended before it left a trace.
    """
    reopen(journal, lambda _: None, runs=runs)


def known_runs(runs: RunStore) -> Iterator[KnownRun]:
    """Yield every run that has a journal, newest first, also with a damaged journal."""
    for path in sorted(runs.root.glob(f"*/{NAME}"), reverse=True):
        try:
            yield KnownRun(path.parent.name, Journal.read(path), busy(path))
        except InputError as error:
            word = "damaged" if path.stat().st_size else "not started"
            yield KnownRun(path.parent.name, None, busy(path), error.message, word)


def journal_path(run_id: str, runs: RunStore) -> Path:
    """Return the journal of a run, `last` for the newest. Raises InputError if there is none."""
    known = {path.parent.name: path for path in sorted(runs.root.glob(f"*/{NAME}"))}
    if run_id == "last" and known:
        run_id = newest(runs.root, known)
    if run_id not in known:
        raise InputError(
            f"the run '{run_id}' has no journal in {runs.root}",
            hint="fleet deploy --runs (shows the runs)",
        )
    return known[run_id]


def reopen(
    journal: Journal,
    listener: Listener,
    *,
    runs: RunStore,
    runtimes: RuntimeStore | None = None,
    force: bool = False,
    parallel: int | None = None,
) -> Operation:
    """Return the operation that continues a journal, with the same inputs and options.

    Raises InputError if an input has changed and `force` is not given, or if a device of the run is
    no longer in the inventory. The journal is then closed.
    """
    try:
        return _reopen(journal, listener, runs, runtimes, force=force, parallel=parallel)
    except BaseException:
        journal.close()
        raise


def _reopen(
    journal: Journal,
    listener: Listener,
    runs: RunStore,
    runtimes: RuntimeStore | None,
    *,
    force: bool,
    parallel: int | None,
) -> Operation:
    header = journal.state.header
    if header.inputs is None:
        raise InputError(
            f"the journal {journal.path} is damaged: its first line has no `inputs`",
            hint="fleet deploy (starts a new run; finished devices are skipped)",
        )
    inputs, then, options, run_id = header.inputs, header.hashes, header.options, header.run
    if not force:
        require_same(then, file_hashes(inputs), run_id)
    playbook = load_playbook(inputs.playbook)
    playbook = replace(playbook, rollout=header.rollout)
    lock = load_lock(inputs.lock_file).of(playbook.name) if inputs.lock_file else None
    operation = Operation(
        playbook,
        _hosts(journal.state, inputs),
        listener,
        options=structs.replace(options, lock=lock, parallel=parallel or options.parallel),
        run_id=run_id,
        inputs=inputs,
        resources=Resources(runtimes, runs),
    )
    if not force:
        require_same(then, content_hashes(playbook, operation.builder.bundle), run_id)
    return operation


def _hosts(state: RunState, inputs: Inputs) -> list[Host]:
    """Return the devices of the run in the inventory's order. Raises InputError if one is gone."""
    hosts = [host for host in load_inventory(inputs.inventory).hosts if host.name in state.devices]
    gone = set(state.devices) - {host.name for host in hosts}
    if gone:
        raise InputError(
            f"the inventory {inputs.inventory} lacks devices of this run: "
            f"{', '.join(sorted(gone))}",
            hint="add these devices again, or fleet deploy (starts a new run)",
        )
    return hosts
