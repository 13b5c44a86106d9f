"""`fleet resume`: go on with a deploy that was killed, stopped, or left devices behind."""

from __future__ import annotations

from typing import Annotated

import typer

from fleet.cli import options as opt
from fleet.cli import output
from fleet.cli.deploy import end_deploy, with_way_back
from fleet.cli.hints import know
from fleet.cli.live import listening
from fleet.engine.rollout.inputs import Inputs
from fleet.engine.rollout.journal import Journal
from fleet.engine.rollout.resume import (
    journal_path,
    known_runs,
    reopen,
    require_what_is_asked,
)
from fleet.model.errors import InputError
from fleet.model.events import RolloutDone
from fleet.profiles.runs import RunStore


def resume(
    run_id: Annotated[
        str | None,
        typer.Argument(metavar="RUN", help="Run id that `fleet deploy` prints, or `last`."),
    ] = None,
    list_runs: Annotated[
        bool, typer.Option("--list", help="List the runs with their progress.")
    ] = False,
    force_inputs: Annotated[
        bool, typer.Option("--force-inputs", help="Continue even if the playbook or files changed.")
    ] = False,
    parallel: opt.Parallel = None,
    as_json: opt.Json = False,
) -> None:
    """Continue a deploy on the devices that failed, were unreachable or did not finish.

    Exit code 0 for a run that is finished, 1 for one that was rolled back. `last` is the run that
    was begun last; if its playbook or files have changed since, the exit code is 2.

    Example: fleet resume last
    """
    runs = RunStore()
    if list_runs:
        _show_runs(runs, as_json=as_json)
        return
    if run_id is None:
        raise InputError("no run id is given", hint="fleet resume last, or fleet resume --list")
    journal = Journal.reopen(journal_path(run_id, runs))
    know(*_begun_with(journal))
    if journal.state.complete:
        if run_id == "last" and not (journal.state.rolling or force_inputs):
            require_what_is_asked(journal, runs)
        _show_complete(journal, as_json=as_json)
        if journal.state.rolling:
            raise typer.Exit(1)
        return
    with listening(as_json=as_json, total=len(journal.state.devices)) as listener:
        operation = reopen(journal, listener, runs=runs, force=force_inputs, parallel=parallel)
        journal.resumed(forced=force_inputs)
        results = with_way_back(operation, lambda: operation.go_on(journal))
    end_deploy(operation, results, as_json=as_json)


def _begun_with(journal: Journal) -> list[str]:
    """The words of the deploy that a journal is of; none where they are damaged."""
    header = journal.state.header
    try:
        inputs, frozen = Inputs.from_dict(header["inputs"]), header["options"]["frozen"]
    except (KeyError, TypeError):
        return []
    words = ["deploy", str(inputs.playbook), "--inventory", str(inputs.inventory)]
    words += [word for pattern in inputs.limit for word in ("--limit", str(pattern))]
    if inputs.lock_file is not None:
        words += ["--frozen" if frozen else "--locked", "--lock-file", str(inputs.lock_file)]
    return words


def _show_complete(journal: Journal, *, as_json: bool) -> None:
    state, run_id = journal.state, journal.state.header["run"]
    if as_json:
        done = RolloutDone("", run_id, state.word, state.text, tuple(state.rows()))
        output.emit_line(done.as_dict())
    elif state.rolling:
        output.say(f"run {run_id} was rolled back: {state.text or state.rolling}")
    else:
        output.say(f"run {run_id} is finished: {len(state.devices)} devices, nothing to do")


def _show_runs(runs: RunStore, *, as_json: bool) -> None:
    found = [run.as_dict() for run in known_runs(runs)]
    if as_json:
        output.emit_json(found)
        return
    rows = [
        (r["run"], r["name"], r["state"], f"{r['done']}/{r['devices']}", r["text"]) for r in found
    ]
    output.table("runs", ("run", "name", "state", "done", ""), rows)
