"""What a comparison looks like, and with which exit code it ends."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from fleet.cli import output
from fleet.cli.columns import Column, show_text
from fleet.cli.profiles_opened import opened
from fleet.model.errors import GateError, InputError, NotComparableError
from fleet.profiles.compare import comparing, gates, writing
from fleet.profiles.compare import matrix as matrices
from fleet.profiles.compare.comparing import Comparison
from fleet.profiles.compare.files import read_records
from fleet.profiles.compare.gates import Gate, Judged, Outcome
from fleet.profiles.compare.groups import Group, group, short_build
from fleet.profiles.compare.metrics import present
from fleet.profiles.compare.ops import OpDiff
from fleet.profiles.store import select

OPS_SHOWN = 20


def group_of(text: str, store: Path | None) -> Group:
    """The records of a selection, or of a file or folder where there is one of that name."""
    path = Path(text)
    if path.suffix in {".json", ".jsonl"} or ("/" in text and path.exists()):
        return group(text, read_records(path))
    query = select.parse(text)
    with opened(store) as found:
        records = found.records(query)
    if not records:
        raise InputError(f"there is no run '{text}'", hint="fleet profiles list")
    return group(text, records)


def gates_of(texts: Sequence[str]) -> list[Gate]:
    """The gates of `--fail-if`."""
    return [gates.parse(one) for one in texts]


def compared(
    sides: tuple[Group, Group],
    asked: Sequence[Gate],
    metrics: Sequence[str],
    margin: float,
    vary: Sequence[str],
) -> Comparison:
    """The comparison of both sides; a metric that a gate names is always in it."""
    names = list(metrics) or present(sides[0].records)
    names = list(dict.fromkeys([*names, *(one.metric for one in asked if one.metric)]))
    gated = gates.named(asked, names)
    return comparing.compare(*sides, names, margin=margin, vary=vary, gated=gated)


def judged(found: Comparison, asked: Sequence[Gate], *, strict: bool) -> list[Judged]:
    """What became of the gates; where `--strict` refuses, none of them is judged."""
    refused = _refusal(found) if strict else ""
    return gates.judge_gates(asked, found, refused)


def save(
    found: Comparison, judged: Sequence[Judged], markdown: Path | None, junit: Path | None
) -> None:
    """Write the files that were asked for."""
    if markdown:
        writing.save(markdown, writing.markdown(found, judged))
    if junit:
        writing.save(junit, writing.junit(found, judged))


def show(found: Comparison, judged: Sequence[Judged], *, as_json: bool) -> None:
    """Conditions first, for they decide what the table is worth."""
    if as_json:
        output.emit_json(found.as_dict() | {"gates": [one.as_dict() for one in judged]})
        return
    for weight, head in writing.HEADS.items():
        mine = [writing.finding(one) for one in found.findings if one.weight is weight]
        if mine:
            output.say(f"{head}:")
            for text in mine:
                output.say(f"  {text}")
    if found.rows:
        _show_rows(found)
    else:
        output.say("nothing to compare: no board or no metric is in both")
    for text in writing.together(found):
        output.say(text)
    for ops in found.ops:
        _show_ops(ops)
    if judged:
        told = [(g.gate.text, g.board, g.metric, g.outcome, g.text) for g in judged]
        output.table("gates", ("gate", "device", "metric", "outcome", "measured"), told)
    for text in found.remarks:
        output.note(text)


def _show_rows(found: Comparison) -> None:
    """What all rows share makes room first; then what the change is made of."""
    rows = [writing.cells(row, found.margin) for row in found.rows]
    told = dict(zip(writing.COLUMNS, zip(*rows, strict=True), strict=True))
    spare = {"emulated": 1, "A": 4, "B": 5}
    spare |= {
        head: number
        for number, head in enumerate(("metric", "device"), 2)
        if len(set(told[head])) == 1
    }
    columns = [Column(head, cells, spare.get(head, 0)) for head, cells in told.items()]
    names = [f"{row.board} {row.metric.shown}" for row in found.rows]
    show_text(f"{found.b.label} against {found.a.label}", columns, names)


def _show_ops(ops: OpDiff) -> None:
    output.say(writing.operations(ops))
    words = [*(("off the NPU", one) for one in ops.left_npu), *(("new", one) for one in ops.new)]
    words += [("gone", one) for one in ops.gone]
    named = [one for _, one in words]
    words += [("", one) for one in ops.movers if one not in named]
    rows = [
        (
            one.name,
            one.shape,
            word,
            writing.number(one.a),
            writing.number(one.b),
            gates.percent(one.share),
        )
        for word, one in words[:OPS_SHOWN]
    ]
    if rows:
        columns = ("operation", "shape", "", f"A {ops.unit}", f"B {ops.unit}", "of the whole")
        output.table("operations", columns, rows)


def end(found: Comparison, judged: Sequence[Judged], *, strict: bool) -> None:
    """Raise what the exit code says. Tripped wins over not judged: it is the surer news."""
    refusal = _refusal(found) if strict else ""
    if refusal:
        raise NotComparableError(refusal, hint="--vary for what is meant to differ")
    tripped = [one for one in judged if one.outcome is Outcome.TRIPPED]
    if tripped:
        raise GateError(_texts(tripped), hint="the table above says what else differs")
    unsure = [one for one in judged if one.outcome is Outcome.UNJUDGED]
    if unsure:
        raise NotComparableError(
            f"could not be judged: {_texts(unsure)}",
            hint="measure more runs, of both: from five a side on a run is one value, however "
            "many repeats it has",
        )


def _refusal(found: Comparison) -> str:
    if not found.rows:
        return "--strict: nothing is in both"
    what = ", ".join(dict.fromkeys(one.what for one in found.refused))
    return f"--strict: differs or is unknown: {what}" if what else ""


def _texts(judged: Sequence[Judged]) -> str:
    found = [
        " ".join(part for part in (one.gate.text, one.board, one.metric) if part) + f": {one.text}"
        for one in judged[:3]
    ]
    return "; ".join(found) + (f" and {len(judged) - 3} more" if len(judged) > 3 else "")


def show_matrix(
    text: str,
    store: Path | None,
    metric: Sequence[str],
    columns: str,
    margin: float,
    *,
    as_json: bool,
) -> None:
    """Board by version."""
    if len(metric) != 1 or columns not in matrices.COLUMNS:
        raise InputError(
            "--matrix takes one --metric, and --columns runtime or release",
            hint="fleet profiles compare --matrix --metric decode_tps since:2026-11-01",
        )
    made = matrices.matrix(group_of(text, store), metric[0], columns, margin)
    if as_json:
        output.emit_json(made.as_dict())
        return
    heads = [short_build(one) if columns == "runtime" else one[:12] for one in made.versions]
    rows = [
        (
            board,
            made.chips[board] or None,
            *(matrices.words(made.cells.get((board, one))) for one in made.versions),
            "yes" if board in made.emulated else "no",
        )
        for board in made.boards
    ]
    title = f"{made.metric.shown}, {text}"
    output.table(title, ("device", "chip", *heads, "emulated"), rows)
    for note in made.notes:
        output.note(note)
