"""The output of a comparison."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from pathlib import Path

from fleet.cli import output, project
from fleet.cli.profiles_store import opened
from fleet.config.playbook import load_playbook
from fleet.engine.rollout.claim import NAME
from fleet.engine.rollout.journal import Journal
from fleet.model.errors import FleetError, InputError
from fleet.model.gates import LEAST_REPEATS
from fleet.model.metrics import PRIMARY
from fleet.model.plain import to_plain
from fleet.model.text import from_here
from fleet.profiles.compare import gates, selecting, writing
from fleet.profiles.compare import matrix as matrices
from fleet.profiles.compare.comparing import Comparison
from fleet.profiles.compare.gates import Gate, JudgedGate
from fleet.profiles.compare.groups import RecordGroup, short_build
from fleet.profiles.compare.ops import OpDiff
from fleet.profiles.compare.outcome import AGAIN
from fleet.profiles.compare.verdict import Verdict
from fleet.profiles.runs import RunStore

_MOST = 3  # devices that the command names individually


def command(comparison: Comparison) -> str:
    """Return the `fleet ab` command that measures two groups of runs again, alternately.

    It names the playbooks of both sides, else their releases. If these or the inventory are
    unknown, it is the help of the command.
    """
    sides = comparison.a, comparison.b
    books, inventories = zip(*map(_files, sides), strict=True)
    releases = [{record.release for record in side.records} for side in sides]
    inventory = project.supplied("inventory") or next(filter(None, inventories[::-1]), None)
    if inventory is None:
        return AGAIN
    if all(books) and books[0] != books[1]:
        words = [from_here(str(book)) for book in books]
    else:
        book = books[1] or _of_project(comparison.b)
        apart = releases[0] != releases[1] and all(len(ids) == 1 and all(ids) for ids in releases)
        if book is None or not apart:
            return AGAIN
        words = [*(ids.pop() for ids in releases), "--playbook", from_here(str(book))]
    if project.supplied("inventory") is None:
        words += ["-i", from_here(str(inventory))]
    hosts = sorted({r.host for r in comparison.a.records} & {r.host for r in comparison.b.records})
    words += [word for host in hosts for word in ("-l", host)] if len(hosts) <= _MOST else []
    return f"fleet ab {shlex.join(words)} (runs A and B alternately)"


def _files(side: RecordGroup) -> tuple[Path | None, Path | None]:
    """Return playbook and inventory of a side, None for unknown ones.

    They are known if all runs of the side are deploys of one playbook that still exists.
    """
    sources = set()
    for run_id in {record.run_id for record in side.records}:
        try:
            inputs = Journal.read(RunStore().root / run_id / NAME).header.inputs
        except (FleetError, OSError):
            return None, None
        if inputs is None:
            return None, None
        sources.add((inputs.playbook, inputs.inventory))
    book, inventory = sources.pop() if len(sources) == 1 else (None, None)
    return (book, inventory) if book and book.is_file() else (None, None)


def _of_project(side: RecordGroup) -> Path | None:
    """Return the project's playbook if its name is that of the runs, else None."""
    path = project.supplied("playbook")
    try:
        named = path is not None and load_playbook(path).name == side.records[0].name
    except FleetError:
        return None
    return path if named else None


OPS_SHOWN = 20


def group_of(text: str, store: Path | None) -> RecordGroup:
    """Return the records of a selection, or of the file or folder with this name."""
    with opened(store) as profiles:
        return selecting.group_of(text, profiles)


def gates_of(texts: Sequence[str]) -> list[Gate]:
    """Return the gates of `--fail-if`."""
    return [gates.parse(text) for text in texts]


def save(
    comparison: Comparison, judged: Sequence[JudgedGate], markdown: Path | None, junit: Path | None
) -> None:
    """Write the comparison as a Markdown table and as JUnit XML, to the paths that are given."""
    if markdown:
        writing.save(markdown, writing.markdown(comparison, judged))
    if junit:
        writing.save(junit, writing.junit(comparison, judged))


def show(comparison: Comparison, judged: Sequence[JudgedGate], *, as_json: bool) -> None:
    """Show the comparison. Conditions come first, because they decide how reliable the table is."""
    if as_json:
        output.emit_json(to_plain(comparison) | {"gates": judged})
        return
    for weight, head in writing.HEADS.items():
        mine = [
            writing.finding(finding) for finding in comparison.findings if finding.weight is weight
        ]
        if mine:
            output.say(f"{head}:")
            for text in mine:
                output.say(f"  {text}")
    if comparison.rows:
        _show_rows(comparison)
    else:
        output.say("nothing to compare: A and B have no device or no metric in common")
    for text in writing.together(comparison):
        output.say(text)
    for answers in comparison.answers:
        output.say(f"{answers.board}: {answers.text}")
    for ops in comparison.ops:
        _show_ops(ops)
    if judged:
        gate_rows = [(g.gate.text, g.board, g.metric, g.outcome, g.text) for g in judged]
        output.table("gates", ("gate", "device", "metric", "outcome", "measured"), gate_rows)
    for text in comparison.remarks:
        output.note(text)
    if any(row.verdict in {Verdict.FEW, Verdict.DIFFERS} for row in comparison.rows):
        output.note(
            f"for a verdict, fleet must run A and B alternately, {LEAST_REPEATS} times each; "
            "`fleet ab` does that"
        )
        output.advise(f"next: {command(comparison)}")


def _show_rows(comparison: Comparison) -> None:
    """Show the table of rows. On a narrow terminal, columns with one shared value are dropped
    first.
    """
    rows, below = [writing.cells(row, comparison.margin) for row in comparison.rows], list[str]()
    if output.width() is not None:
        rows, below = writing.narrow(comparison)
    by_head = dict(zip(writing.COLUMNS, zip(*rows, strict=True), strict=True))
    alike = [head for head in ("metric", "device") if len(set(by_head[head])) == 1]
    empty = [head for head, column in by_head.items() if set(column) == {"-"}]
    title = f"{comparison.b.label} compared with {comparison.a.label}"
    output.table(title, writing.COLUMNS, rows, ["emulated", *empty, *alike])
    for text in below:
        output.prose(text)


def _show_ops(ops: OpDiff) -> None:
    output.say(writing.operations(ops))
    words = [*(("off the NPU", op) for op in ops.left_npu), *(("new", op) for op in ops.new)]
    words += [("gone", op) for op in ops.gone]
    named = [op for _, op in words]
    words += [("", op) for op in ops.movers if op not in named]
    rows = []
    for word, op in words[:OPS_SHOWN]:
        numbers = writing.number(op.a), writing.number(op.b), gates.percent(op.share)
        rows.append((op.name, op.shape, word, *numbers))
    if rows:
        columns = ("operation", "shape", "", f"A {ops.unit}", f"B {ops.unit}", "of the total")
        output.table("operations", columns, rows)


def show_matrix(
    text: str,
    store: Path | None,
    metric: Sequence[str],
    columns: str,
    margin: float,
    *,
    as_json: bool,
) -> None:
    """Show one metric as a table of boards by versions."""
    if len(metric) != 1 or columns not in matrices.COLUMNS:
        raise InputError(
            "--matrix needs one --metric, and --columns with runtime or release",
            hint=f"fleet profiles compare --matrix --metric {PRIMARY.name} since:2026-11-01",
        )
    group = group_of(text, store)
    selecting.refuse_unknown(metric, group.records)
    made = matrices.matrix(group, metric[0], columns, margin)
    if as_json:
        output.emit_json(made)
        return
    heads = [short_build(v) if columns == "runtime" else v[:12] for v in made.versions]
    rows = [
        (
            board,
            made.chips[board] or None,
            *(matrices.words(made.cells.get((board, version))) for version in made.versions),
            "yes" if board in made.emulated else "no",
        )
        for board in made.boards
    ]
    title = f"{made.metric.shown}, {text}"
    output.table(title, ("device", "chip", *heads, "emulated"), rows, ("emulated", "chip"))
    for note in made.notes:
        output.note(note)
