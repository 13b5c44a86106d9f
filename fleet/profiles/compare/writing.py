"""Writers of a comparison: Markdown for a pull request, JUnit for a CI system."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from collections.abc import Iterable, Sequence
from pathlib import Path

from fleet.model.files import written_whole
from fleet.model.gates import LEAST_REPEATS
from fleet.model.record import Record
from fleet.model.text import harmless
from fleet.profiles.compare.comparing import Comparison
from fleet.profiles.compare.conditions import ConditionFinding, Weight
from fleet.profiles.compare.gates import GateOutcome, JudgedGate, interval, percent
from fleet.profiles.compare.ops import OpDiff
from fleet.profiles.compare.verdict import MEASURED, MetricRow, Verdict

COLUMNS = ("device", "metric", "A", "B", "change", "95 % interval", "verdict", "emulated")
_NOT_XML = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
# Characters with a meaning in Markdown: a device name must not become a link, picture or mention.
_MARKDOWN = re.compile(r"([\\`*_\[\]#|<>~@&]|:(?=//)|(?<=www)\.)")


def save(path: Path, text: str) -> None:
    """Write a file atomically. Raises InputError if it cannot be written."""
    with written_whole(path) as part:
        part.write_text(text, "utf-8")


def number(value: float | None) -> str:
    """Return the value with four digits; `-` if there is none."""
    return "-" if value is None else f"{value:.4g}"


def verdict(row: MetricRow, margin: float) -> str:
    """Return the text of the verdict, with its reason if there is no answer."""
    if row.verdict is Verdict.SAME:
        return f"same within {margin * 100:g} %"
    return row.verdict_text


def cells(row: MetricRow, margin: float) -> tuple[str, ...]:
    """Return one row of the table for people, with the columns `COLUMNS`."""
    change = row.difference
    judged = change.low is not None and (row.verdict in MEASURED or row.alone)
    of_a, of_b = _sides(row)
    return (
        row.board,
        row.metric.shown,
        f"{number(change.mid_a)} ({of_a})",
        f"{number(change.mid_b)} ({of_b})",
        "-" if change.mid is None else percent(change.mid),
        interval(row) if judged else "-",
        verdict(row, margin),
        "yes" if row.emulated else "no",
    )


def narrow(comparison: Comparison) -> tuple[list[tuple[str, ...]], list[str]]:
    """Return the rows without the texts that take too much room, and these texts as lines.

    The lines give the counts of values of A and B if they are the same in all rows, and the reason
    why a row has no verdict.
    """
    shared = {_sides(row) for row in comparison.rows}
    table, why = [], dict[str, list[str]]()
    for row in comparison.rows:
        board, metric, a, b, *others, word, emulated = cells(row, comparison.margin)
        if len(shared) == 1:
            a, b = number(row.difference.mid_a), number(row.difference.mid_b)
        if row.why and row.verdict is not Verdict.SAME:
            word = str(row.verdict)
            why.setdefault(f"{word}: {row.why.removeprefix(f'{word}: ')}", []).append(
                f"{board} {metric}"
            )
        table.append((board, metric, a, b, *others, word, emulated))
    below = []
    if len(shared) == 1:
        of_a, of_b = (side.removeprefix("n ") for side in shared.pop())
        below.append(f"values: A {of_a}, B {of_b}")
    for text, named in why.items():
        below.append(text if len(named) == len(table) else f"{', '.join(named)}: {text}")
    return table, below


def _sides(row: MetricRow) -> tuple[str, str]:
    """Return the counts of values and runs of A and of B, as text."""
    change = row.difference
    return _made_of(change.count_a, row.runs[0]), _made_of(change.count_b, row.runs[1])


def _made_of(count: int, runs: int) -> str:
    """Return `n 8` for 8 runs, or `5 in 1 run` for 5 repeats of too few runs."""
    few = 0 < runs < LEAST_REPEATS
    return f"{count} in {runs} run{'s' * (runs > 1)}" if few else f"n {count}"


def finding(item: ConditionFinding) -> str:
    """Return text such as `runtime: A 2.50.0, B 2.51.0`, for a line below the heading of its
    weight.
    """
    text = f"{item.what}: A {item.a or 'none'}, B {item.b or 'none'}"
    text = f"{text} ({item.text})" if item.text else text
    return f"{item.board}: {text}" if item.board else text


def markdown(comparison: Comparison, judged: Sequence[JudgedGate] = ()) -> str:
    """Return a comment for a pull request: gates, table, conditions, operations."""
    lines = [f"### Profiles: {_md(comparison.b.label)} against {_md(comparison.a.label)}", ""]
    if judged:
        gate_rows = [(g.gate.text, g.board, g.metric, g.outcome, g.text) for g in judged]
        lines += _table(("gate", "device", "metric", "outcome", "measured"), gate_rows)
    lines += _table(COLUMNS, [cells(row, comparison.margin) for row in comparison.rows])
    lines += [*(_md(text) for text in together(comparison)), ""] if together(comparison) else []
    for weight in Weight:
        mine = [finding(f) for f in comparison.findings if f.weight is weight]
        if mine:
            lines += [f"**{HEADS[weight]}**", "", *(f"- {_md(text)}" for text in mine), ""]
    for ops in comparison.ops:
        rows = [
            (op.name, op.shape, number(op.a), number(op.b), percent(op.share))
            for op in (*ops.left_npu, *ops.movers[:5])
        ]
        columns = ("op", "shape", "A", "B", "of the whole")
        lines += [_md(operations(ops)), "", *_table(columns, rows)]
    lines += [f"- {_md(text)}" for text in comparison.remarks]
    return "\n".join(lines).rstrip() + "\n"


def together(comparison: Comparison) -> list[str]:
    """Return a line for each metric that summarises several boards; no line if all had too few
    runs.
    """
    lines: list[str] = []
    if all(set(mine.moved) == {Verdict.FEW} for mine in comparison.overall):
        return lines
    for mine in comparison.overall:
        boards = sum(mine.moved.values())
        moved = ", ".join(f"{count} {word}" for word, count in mine.moved.items())
        text = f"{mine.metric.shown}, {boards} boards: {moved}"
        if mine.change:
            low, mid, high = (percent(share) for share in mine.change)
            text += f"; all boards together {mid} ({low} to {high}), {mine.verdict}"
        if boards > 1:
            lines.append(text)
    return lines


def operations(ops: OpDiff) -> str:
    """Return a line with the numbers and totals of the operations."""
    change = percent((ops.total_b - ops.total_a) / ops.total_a) if ops.total_a else "?"
    return (
        f"operations, in {ops.unit}: {number(ops.total_a)} → {number(ops.total_b)} ({change}); "
        f"{ops.joined} in both, {len(ops.new)} new, {len(ops.gone)} gone, "
        f"{len(ops.left_npu)} moved off the NPU"
    )


HEADS = {
    Weight.BLOCKS: "A and B are not comparable, because these conditions differ",
    Weight.COMPARED: "Compared on purpose (--vary)",
    Weight.WARNS: "These conditions differ too",
    Weight.UNKNOWN: "These conditions are unknown for A or B",
    Weight.REMARK: "Remarks",
}


def _table(columns: Sequence[str], rows: Sequence[Sequence[object]]) -> list[str]:
    if not rows:
        return []
    lines = ["| " + " | ".join(columns) + " |", "|" + "---|" * len(columns)]
    lines += ["| " + " | ".join(_md(str(cell)) for cell in row) + " |" for row in rows]
    return [*lines, ""]


def _md(text: str) -> str:
    flat = " ".join(harmless(text).split())
    return _MARKDOWN.sub(r"\\\1", flat)


def junit(comparison: Comparison, judged: Sequence[JudgedGate] = ()) -> str:
    """Return JUnit XML for CI systems: a test case for each gate and board.

    A gate that tripped is a failure; a gate that could not be judged is an error. The answers of
    each board to a suite are a case, too: a failure if B does not pass it. Without gates each row
    is a case. A row without a verdict (too few runs, not comparable) is skipped, because
    no gate requires it.
    """
    suite = ET.Element("testsuite", name="fleet profiles compare", time="0")
    for gate in judged:
        case = _case(suite, f"{gate.gate.text} {gate.metric}", gate.board)
        if gate.outcome is not GateOutcome.PASSED:
            kind = "failure" if gate.outcome is GateOutcome.TRIPPED else "error"
            _add_result(case, kind, gate.text, str(gate.outcome))
        else:
            ET.SubElement(case, "system-out").text = _xml(gate.text)
    for answers in comparison.answers:
        case = _case(suite, f"answers to the suite {answers.b.name}", answers.board)
        if answers.worse:
            _add_result(case, "failure", answers.text, "wrong")
        else:
            ET.SubElement(case, "system-out").text = _xml(answers.text)
    for row in () if judged else comparison.rows:
        case = _case(suite, row.metric.name, row.board)
        text = "  ".join(cells(row, comparison.margin)[2:])
        if row.verdict in MEASURED:
            ET.SubElement(case, "system-out").text = _xml(text)
        else:
            ET.SubElement(case, "skipped", message=_xml(verdict(row, comparison.margin)))
    return _document(suite)


def suites_junit(records: Iterable[Record]) -> str:
    """Return JUnit XML for `fleet verify`: a test case for each prompt or sample and board."""
    root = ET.Element("testsuite", name="fleet verify", time="0")
    for record in records:
        for answer in record.suite.answers if record.suite else ():
            case = _case(root, answer.name, record.host)
            if answer.passed:
                ET.SubElement(case, "system-out").text = _xml(answer.text)
            else:
                _add_result(case, "failure", "; ".join(answer.faults), "wrong")
    return _document(root)


def _document(suite: ET.Element) -> str:
    for name, tag in (("failures", "failure"), ("errors", "error"), ("skipped", "skipped")):
        suite.set(name, str(len(suite.findall(f"testcase/{tag}"))))
    suite.set("tests", str(len(suite.findall("testcase"))))
    root = ET.Element("testsuites")
    root.append(suite)
    ET.indent(root)
    return '<?xml version="1.0" encoding="UTF-8"?>\n' + ET.tostring(root, "unicode") + "\n"


def _case(suite: ET.Element, name: str, board: str) -> ET.Element:
    place = _xml(board or "all").replace(".", "_")  # a dot would be read as a package
    return ET.SubElement(
        suite, "testcase", name=_xml(name).strip(), classname=f"fleet.{place}", time="0"
    )


def _add_result(case: ET.Element, tag: str, text: str, kind: str) -> None:
    ET.SubElement(case, tag, message=_xml(text), type=kind).text = _xml(text)


def _xml(text: str) -> str:
    return _NOT_XML.sub("", harmless(text))
