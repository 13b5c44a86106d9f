"""A comparison as Markdown for a pull request and as JUnit for a CI system."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from collections.abc import Sequence
from pathlib import Path

from fleet.model.errors import InputError
from fleet.model.text import harmless
from fleet.profiles.compare.comparing import Comparison
from fleet.profiles.compare.conditions import Finding, Weight
from fleet.profiles.compare.gates import Judged, Outcome, interval, percent
from fleet.profiles.compare.ops import OpDiff
from fleet.profiles.compare.verdict import MEASURED, Row, Verdict

COLUMNS = ("device", "metric", "A", "B", "change", "95 % interval", "verdict", "emulated")
_NOT_XML = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
# What Markdown would read: a device name must not become a link, a picture or a mention.
_MARKDOWN = re.compile(r"([\\`*_\[\]#|<>~@&]|:(?=//)|(?<=www)\.)")


def save(path: Path, text: str) -> None:
    """Write a file whole or not at all. Raises InputError where it cannot be written."""
    part = path.with_name(path.name + ".part")
    try:
        part.write_text(text, "utf-8")
        part.replace(path)
    except OSError as error:
        raise InputError(f"cannot write {path}: {error.strerror}") from error


def number(value: float | None) -> str:
    """Four digits; `-` where there is none."""
    return "-" if value is None else f"{value:.4g}"


def verdict(row: Row, margin: float) -> str:
    """The word, with its reason where there is no answer."""
    if row.verdict is Verdict.SAME:
        return f"same within {margin * 100:g} %"
    return f"{row.verdict}: {row.why}" if row.why else str(row.verdict)


def cells(row: Row, margin: float) -> tuple[str, ...]:
    """One row of the table for people, as `COLUMNS`."""
    one = row.difference
    told = one.low is not None and (row.verdict in MEASURED or row.alone)
    return (
        row.board,
        row.metric.shown,
        f"{number(one.mid_a)} (n {one.count_a})",
        f"{number(one.mid_b)} (n {one.count_b})",
        "-" if one.mid is None else percent(one.mid),
        interval(row) if told else "-",
        verdict(row, margin),
        "yes" if row.emulated else "no",
    )


def finding(one: Finding) -> str:
    """`runtime: A 2.50.0, B 2.51.0`, for a line under the word of its weight."""
    text = f"{one.what}: A {one.a or 'none'}, B {one.b or 'none'}"
    text = f"{text} ({one.text})" if one.text else text
    return f"{one.board}: {text}" if one.board else text


def markdown(one: Comparison, judged: Sequence[Judged] = ()) -> str:
    """A comment for a pull request: gates, table, conditions, operations."""
    lines = [f"### Profiles: {_md(one.b.label)} against {_md(one.a.label)}", ""]
    if judged:
        told = [(g.gate.text, g.board, g.metric, g.outcome, g.text) for g in judged]
        lines += _table(("gate", "device", "metric", "outcome", "measured"), told)
    lines += _table(COLUMNS, [cells(row, one.margin) for row in one.rows])
    lines += [*(_md(text) for text in together(one)), ""] if together(one) else []
    for weight in Weight:
        mine = [finding(f) for f in one.findings if f.weight is weight]
        if mine:
            lines += [f"**{HEADS[weight]}**", "", *(f"- {_md(text)}" for text in mine), ""]
    for ops in one.ops:
        rows = [
            (op.name, op.shape, number(op.a), number(op.b), percent(op.share))
            for op in (*ops.left_npu, *ops.movers[:5])
        ]
        lines += [
            _md(operations(ops)),
            "",
            *(_table(("op", "shape", "A", "B", "of the whole"), rows)),
        ]
    lines += [f"- {_md(text)}" for text in one.remarks]
    return "\n".join(lines).rstrip() + "\n"


def together(one: Comparison) -> list[str]:
    """What several boards say of each metric, in a line."""
    found = []
    for mine in one.overall:
        boards = sum(mine.moved.values())
        moved = ", ".join(f"{count} {word}" for word, count in mine.moved.items())
        text = f"{mine.metric.name}, {boards} boards: {moved}"
        if mine.change:
            low, mid, high = (percent(share) for share in mine.change)
            text += f"; over all boards {mid} ({low} to {high}), {mine.verdict}"
        if boards > 1:
            found.append(text)
    return found


def operations(ops: OpDiff) -> str:
    """How many there are, in a line."""
    change = percent((ops.total_b - ops.total_a) / ops.total_a) if ops.total_a else "?"
    return (
        f"operations, {ops.unit}: {number(ops.total_a)} → {number(ops.total_b)} ({change}); "
        f"{ops.joined} in both, {len(ops.new)} new, {len(ops.gone)} gone, "
        f"{len(ops.left_npu)} moved off the NPU"
    )


HEADS = {
    Weight.BLOCKS: "Not comparable, for these differ",
    Weight.COMPARED: "What is compared",
    Weight.WARNS: "Differs as well",
    Weight.UNKNOWN: "Not known on both sides",
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


def junit(one: Comparison, judged: Sequence[Judged] = ()) -> str:
    """JUnit XML as CI systems read it: a test case for each gate and board.

    Tripped is a failure, not judged an error. Without gates each row is a case, and one that
    says nothing (too few runs, not comparable) is skipped: nothing was asked to hold.
    """
    suite = ET.Element("testsuite", name="fleet profiles compare", time="0")
    for gate in judged:
        case = _case(suite, f"{gate.gate.text} {gate.metric}", gate.board)
        if gate.outcome is not Outcome.PASSED:
            kind = "failure" if gate.outcome is Outcome.TRIPPED else "error"
            _told(case, kind, gate.text, str(gate.outcome))
        else:
            ET.SubElement(case, "system-out").text = _xml(gate.text)
    for row in () if judged else one.rows:
        case = _case(suite, row.metric.name, row.board)
        text = "  ".join(cells(row, one.margin)[2:])
        if row.verdict in MEASURED:
            ET.SubElement(case, "system-out").text = _xml(text)
        else:
            ET.SubElement(case, "skipped", message=_xml(verdict(row, one.margin)))
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


def _told(case: ET.Element, tag: str, text: str, kind: str) -> None:
    ET.SubElement(case, tag, message=_xml(text), type=kind).text = _xml(text)


def _xml(text: str) -> str:
    return _NOT_XML.sub("", harmless(text))
