"""`fleet verify`: a check of the answers of the deployed model."""

from __future__ import annotations

import os
import shutil
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from fleet.cli import options as opt
from fleet.cli import output
from fleet.cli.common import end_devices, hosts_of, working_on
from fleet.cli.live import listening
from fleet.cli.results import show_devices
from fleet.config.playbook import load_playbook
from fleet.config.suite_file import load_suite
from fleet.engine.deploy.operation import Operation, Resources
from fleet.engine.options import DeployOptions
from fleet.engine.pool import DeviceResult
from fleet.model.errors import InputError
from fleet.model.files import written_whole
from fleet.model.playbook import Playbook
from fleet.model.record import Record
from fleet.model.suite import EQUAL_DB, NodeDifference, SuiteResult, SuiteUse
from fleet.profiles.runs import RunStore
from fleet.verify.answers import unsteady

SHOWN_NODES = 7


def verify(
    playbook: opt.Playbook,
    inventory: opt.Inventory,
    limit: opt.Limit = None,
    suite: Annotated[
        str | None,
        typer.Option("--suite", help="Suite to ask instead: instruct, tiny, or a file."),
    ] = None,
    repeats: Annotated[
        int, typer.Option("--repeats", min=1, help="Ask the same so many times; all must agree.")
    ] = 1,
    nodes: Annotated[
        bool,
        typer.Option("--nodes", help="Compare each node of the network; name the first wrong one."),
    ] = False,
    record: Annotated[
        Path | None,
        typer.Option(help="Also write the outputs of a network to this .npz: a later reference."),
    ] = None,
    junit: Annotated[
        Path | None, typer.Option("--junit", help="Also write a JUnit XML file, for CI.")
    ] = None,
    output_dir: opt.Records = None,
    parallel: opt.Parallel = None,
    executor: opt.Executor = None,
    as_json: opt.Json = False,
) -> None:
    """Ask the deployed model the prompts of a suite and check its answers.

    Example: fleet verify -i inventories/lab.yaml playbooks/tiny-genie.yaml --suite tiny
    """
    loaded = load_playbook(playbook)
    if suite is not None:
        loaded = replace(loaded, suite=SuiteUse(load_suite(suite, Path(), loaded.bundle), "off"))
    hosts = hosts_of(inventory, limit)
    loaded = _recording(loaded, len(hosts), record)
    with (
        listening(as_json=as_json, total=len(hosts)) as listener,
        working_on(executor, parallel) as remote,
    ):
        runs = RunStore(output_dir) if output_dir else None
        how, stores = DeployOptions(parallel=parallel), Resources(runs=runs, executor=remote)
        operation = Operation(loaded, hosts, listener, options=how, resources=stores)
        results = operation.verify(repeats, nodes=nodes)
    _write(results, junit, record, playbook.parent)
    if not as_json:
        show_answers(results)
        show_devices(f"verify {loaded.name}", results)
        output.note(f"answers are in: {operation.runs.root / operation.run_id}")
    end_devices(results)


def _recording(playbook: Playbook, hosts: int, path: Path | None) -> Playbook:
    if path is None:
        return playbook
    if playbook.verify is None or hosts != 1 or path.suffix != ".npz":
        raise InputError(
            "--record writes the outputs of the samples of `verify:` on one device to an .npz",
            hint="write `verify: samples:` into the playbook, and type --limit HOST --record "
            "FILE.npz",
        )
    model = playbook.verify.reference
    kept = None if model is not None and model.suffix == ".npz" else model  # it is made anew
    return replace(playbook, verify=replace(playbook.verify, record=True, reference=kept))


def _write(
    results: Sequence[DeviceResult[None]], junit: Path | None, kept: Path | None, folder: Path
) -> None:
    """Write the JUnit file, and the outputs of a device whose samples passed. Print the key for the
    playbook, whose paths begin in its `folder`.
    """
    records = [record for result in results for record in result.records]
    if junit is not None:
        from fleet.profiles.compare.writing import save, suites_junit  # noqa: PLC0415

        save(junit, suites_junit(records))
    outputs = [each.artifacts["outputs.npz"] for each in records if "outputs.npz" in each.artifacts]
    if kept is not None and outputs and not any(result.error for result in results):
        with written_whole(kept) as part:
            shutil.copyfile(outputs[0], part)
        path = os.path.relpath(kept, folder)
        output.note(f"recorded: {kept} (write `reference: {path}` below `verify:`)")


def show_answers(results: Sequence[DeviceResult[None]]) -> None:
    """Print the pass rate of each device with its interval, the failed prompts and the compared
    nodes.

    Also print the answers in which devices differ.
    """
    records = [record for result in results for record in result.records if record.suite]
    rows = [_row(record) for record in records]
    if rows:
        columns = ("device", "suite", "passed", "95 % interval", "needed", "", "emulated")
        output.table("answers", columns, rows)
    for record in records:
        for answer in record.suite.failing if record.suite else ():
            output.say(f"{record.host}: {answer.name}: {'; '.join(answer.faults)}")
    show_nodes(results)
    for text in between_devices(results):
        output.note(text)


def show_nodes(results: Sequence[DeviceResult[None]]) -> None:
    """Print the first wrong node of each device with its neighbours.

    Without a wrong node, print the nodes with the largest differences of their own.
    """
    for record in (record for result in results for record in result.records):
        if record.suite is None or not record.suite.nodes:
            continue
        rows = record.suite.nodes
        lines = [(str(n + 1), *_node(rows[n])) for n in record.suite.telling(SHOWN_NODES)]
        columns = ("#", "node", "operator", "shape", "before", "after", "alone", "steps")
        output.table(f"nodes of {record.host} (SQNR in dB)", columns, lines)
        output.say(f"{record.host}: {record.suite.begins}")


def _node(row: NodeDifference) -> tuple[str, ...]:
    shape = "x".join(map(str, row.shape)) or "1"
    numbers = [_decibel(number) for number in (row.before_db, row.after_db, row.own_db)]
    steps = "" if row.own_steps is None else f"{row.own_steps:.1f}"
    return (row.node, row.kind, shape, *numbers, steps)


def _decibel(number: float | None) -> str:
    if number is None:
        return ""
    return "equal" if number >= EQUAL_DB else f"{number:.1f}"


def between_devices(results: Sequence[DeviceResult[None]]) -> list[str]:
    """Return the answers in which devices with the same chip and release differ."""
    groups: dict[tuple[object, ...], list[tuple[str, SuiteResult]]] = {}
    for result in results:
        for name in dict.fromkeys(r.suite.name for r in result.records if r.suite):
            record = next(r for r in result.records if r.suite and r.suite.name == name)
            chip = (record.facts.get("soc") or {}).get("chip")
            if record.suite is not None:
                key = (record.release, chip, name)
                groups.setdefault(key, []).append((record.host, record.suite))
    return [text for group in groups.values() for text in unsteady(group)]


def _row(record: Record) -> tuple[str, ...]:
    suite = record.suite
    assert suite is not None
    low, high = suite.interval()
    return (
        record.host,
        suite.name,
        suite.shown.removesuffix(" prompts").removesuffix(" samples"),
        f"{low:.0%} to {high:.0%}",
        str(suite.at_least),
        "right" if suite.holds else "wrong",
        "yes" if record.emulated else "no",
    )
