"""Ratios, bars, tables and the chart of the benchmarks: made-up figures, nothing is run."""

from __future__ import annotations

import json
import xml.etree.ElementTree as ET
from typing import Any

import pytest

from benchmarks.bench.chart import LEFT, WIDTH, chart
from benchmarks.bench.page import page
from benchmarks.bench.stats import (
    MISS,
    PASS,
    UNKNOWN,
    Bar,
    Result,
    Row,
    judge,
    ratio,
    turns,
)
from benchmarks.bench.table import section, table
from fleet.model.plain import to_plain

SVG = "{http://www.w3.org/2000/svg}"


def row(name: str, *seconds: float | None, kind: str = "peer", **more: object) -> Row:
    samples = [None if one is None else {"seconds": one, "cpu": one / 2} for one in seconds]
    return Row(name, kind, samples, **more)  # type: ignore[arg-type]


def result(*rows: Row, bars: tuple[Bar, ...] = ()) -> Result:
    missing = {"fabric": "pip install fabric"}
    return Result("a", "One <big> file & more", rows[0].name, list(rows), 3, bars, missing=missing)


def test_a_ratio_is_that_of_rounds_not_of_medians() -> None:
    one, two = row("one", 1, 10, 4), row("two", 2, 5, 4)
    assert ratio(one, two) == 1.0  # of 0.5, 2, 1; the medians are 4 and 4
    drifting = row("drifting", 1, 2, 30), row("base", 1, 1, 10)
    assert ratio(*drifting) == 2


def test_rounds_without_a_sample_do_not_count() -> None:
    one, two = row("one", 3, None, 9), row("two", 1, 1, None)
    assert ratio(one, two) == 3
    assert one.median() == 6
    assert ratio(row("none", None), two) is None
    assert row("none", None).median() is None


@pytest.mark.parametrize(
    ("bar", "word"),
    [
        (Bar("", "fleet", ("cat",), most=1.3), PASS),
        (Bar("", "fleet", ("cat",), most=1.1), MISS),
        (Bar("", "slow", ("fleet",), least=5), PASS),
        (Bar("", "slow", ("fleet",), least=9), MISS),
        (Bar("", "fleet", ("absent",), most=9), UNKNOWN),
        (Bar("", "absent", ("fleet",), most=9), UNKNOWN),
        (Bar("", "fleet", field="inner", most=9), UNKNOWN),
        (Bar("", "fleet", field="cpu", most=0.6), PASS),
        (Bar("", "fleet", field="cpu", most=0.59), MISS),
    ],
)
def test_bars(bar: Bar, word: str) -> None:
    rows = [row("fleet", 1.2, 1.2), row("cat", 1, 1), row("slow", 9.6, 9.6)]
    assert judge(bar, rows).word == word


def test_the_worst_of_several_counts_and_the_absent_are_named() -> None:
    rows = [row("fleet", 2), row("quick", 1), row("slow", 4)]
    verdict = judge(Bar("", "fleet", ("slow", "quick", "absent"), most=1), rows)
    assert (verdict.word, verdict.value) == (MISS, 2)
    assert verdict.against.startswith("quick")
    assert "not measured: absent" in verdict.against


def test_a_tool_that_was_not_done_gives_a_bound_where_that_is_enough() -> None:
    endless = row("endless", None, note="not done in 120 s", over=120.0)
    enough = judge(Bar("", "fleet", ("endless",), most=1 / 20), [row("fleet", 5), endless])
    assert enough.word == PASS
    assert "not done in 120 s" in enough.against
    less = judge(Bar("", "fleet", ("endless",), most=1 / 20), [row("fleet", 7), endless])
    assert less.word == UNKNOWN
    slower = judge(Bar("", "endless", ("fleet",), least=5), [row("fleet", 7), endless])
    assert (slower.word, slower.value) == (PASS, 120 / 7)


def test_every_tool_has_its_turn_and_another_place() -> None:
    names = ["a", "b", "c", "d"]
    orders = [turns(names, number) for number in range(4)]
    assert all(sorted(order) == names for order in orders)
    assert len({order[0] for order in orders}) > 1
    after_a = {(*order, "end")[order.index("a") + 1] for order in orders}
    assert len(after_a) > 1  # what runs before a tool is not always the same
    assert turns([], 3) == []


def test_the_table_is_ordered_whole_and_names_what_failed() -> None:
    failed = row("broken", None, note="failed with status 2")
    one = result(row("cat", 2, 2, 2), failed, row("fleet push", 1, 1, 4, kind="fleet"))
    lines = table(one).splitlines()
    assert [line.split(" | ")[0].strip("|* ") for line in lines[2:]] == [
        *("fleet push", "cat", "broken")
    ]
    assert len({line.count("|") for line in lines}) == 1
    assert "| 1.00 | 1.00..4.00 | 0.50 |" in lines[2]
    assert "failed with status 2" in lines[4]
    assert "Missing here: fabric (pip install fabric)." in section(one)


def test_results_come_back_from_json() -> None:
    one = result(row("cat", 1.5), bars=(Bar("fast", "cat", ("cat",), most=1),))
    again = Result.read(json.loads(json.dumps(to_plain(one))))
    assert again == one
    assert again.verdicts[0].word == PASS


def test_bars_are_proportional_and_stay_in_the_picture() -> None:
    rows = [row("cat", 2.0), row("fleet push", 0.5, kind="fleet"), row("<x> & y", 8.0)]
    hidden = row("hidden", 90.0, main=False)
    endless = row("endless", None, note="not done in 120 s")
    root = ET.fromstring(chart([result(*rows, hidden, endless)], "a caption"))
    bars = {bar.find(f"{SVG}title").text: bar for bar in root.iter(f"{SVG}rect")}  # type: ignore[union-attr]
    assert list(bars) == ["fleet push: 0.50 s", "cat: 2.00 s", "<x> & y: 8.00 s"]
    widths = [float(bar.get("width", "")) for bar in bars.values()]
    assert widths[1] / widths[0] == pytest.approx(4, rel=0.01)
    assert widths[2] / widths[0] == pytest.approx(16, rel=0.01)
    assert max(widths) + LEFT < WIDTH
    assert [bar.get("class") for bar in bars.values()] == ["fleet", "peer", "peer"]
    texts = ["".join(one.itertext()) for one in root.iter(f"{SVG}text")]
    assert {"One <big> file & more", "not done in 120 s", "a caption"} <= set(texts)
    assert "2.00 s" in texts  # the reference has no ratio
    assert "0.50 s · 0.25 x" in texts
    assert "prefers-color-scheme: dark" in (root.find(f"{SVG}style").text or "")  # type: ignore[union-attr]


def test_groups_have_a_scale_each() -> None:
    quick, slow = result(row("cat", 0.1)), result(row("cat", 10.0))
    root = ET.fromstring(chart([quick, slow], ""))
    widths = {bar.get("width") for bar in root.iter(f"{SVG}rect")}
    assert len(widths) == 1


def test_a_page_of_figures_that_claim_nothing_says_so() -> None:
    run = {
        "date": "2026-01-01",
        "command": "python benchmarks/transfer.py",
        "machine": {"line": "Linux", "busy": False},
        "rounds": 5,
        "scale": 1.0,
        "push": True,
    }
    good = page([run], [result(row("cat", 1))], "benchmarks.svg")
    assert "claim nothing" not in good
    assert "](benchmarks.svg)" in good
    assert "python benchmarks/transfer.py" in good
    doubts: list[dict[str, Any]] = [
        {"rounds": 2},
        {"scale": 0.1},
        {"machine": {"line": "Linux", "busy": True}},
    ]
    for doubt in doubts:
        assert "claim nothing" in page([{**run, **doubt}], [], "x.svg")
