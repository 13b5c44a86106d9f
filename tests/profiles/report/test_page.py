"""The page as text: escaped, self-contained, honest about what is left out."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest
from msgspec.structs import replace

from fleet.model.record import Metrics, Record
from fleet.model.suite import NodeDifference, SuiteAnswer, SuiteResult
from fleet.profiles.compare.groups import by_run, group
from fleet.profiles.report import drawing, summary
from fleet.profiles.report.drawing import thinned
from fleet.profiles.report.page import curves, history, operations, page
from fleet.profiles.report.summary import Report, gather
from fleet.profiles.stats.difference import difference
from tests.profiles.compare.made import newer, noisy, other, record, repeats, separate
from tests.profiles.report.made import fleet

HOSTILE = "</script><img src=x onerror=alert(1)>\x1b[31m\"'"


def of(*records: object) -> Report:
    return gather([group("all", records)])  # type: ignore[arg-type]


def part(report: Report, name: str) -> str:
    """A section of the page."""
    after = page(report).partition(f'<h2 id="{name}">')[2]
    return re.split('<h2 |<p class="quiet">Measured', after)[0]


def test_device_text_is_never_markup() -> None:
    one = record(
        0, HOSTILE, name=HOSTILE, release=HOSTILE, run_id=HOSTILE, identity=HOSTILE,
        runner=HOSTILE, prompt_sha256=HOSTILE, fleet=HOSTILE, argv=(HOSTILE,), started=HOSTILE,
        metrics=other(HOSTILE, 3, HOSTILE), marks=(HOSTILE,), origin={"build_id": HOSTILE},
        facts={"soc": {"chip": HOSTILE}, "os_id": HOSTILE},
    )  # fmt: skip
    bad = replace(one, problems=(HOSTILE,), repeat=1)
    text = page(gather([group(HOSTILE, [one, bad]), group("b", [one])]), HOSTILE)
    assert "<img" not in text
    assert "\x1b" not in text
    assert text.count("</script>") == 1
    assert text.count("&lt;img src=x") > 20


def test_nothing_outside_is_named() -> None:
    text = page(of(*fleet(2, 5)))
    assert re.findall(r"""(?:src|href)\s*=|url\((?!#)|@import""", text) == []
    ids = re.findall(r'\bid="([^"]*)"', text)
    assert len(ids) == len(set(ids))
    assert set(re.findall(r"url\(#([^)]*)\)", text)) <= set(ids)
    assert "http:" not in text
    assert "https:" not in text
    assert "default-src 'none'" in text


@pytest.mark.parametrize(
    ("said", "banner"),
    [
        (True, "All runs are emulated (lab boards"),
        (None, "it is unknown whether they ran on hardware"),
        (False, ""),
    ],
)
def test_emulated_is_said(said: bool | None, banner: str) -> None:
    text = page(of(*repeats([10, 11], emulated=said)))
    assert ('class="warn"' in text) == bool(banner)
    assert banner in text


def test_medians_and_intervals_are_of_the_runs_that_count() -> None:
    good = repeats([12.0, 10.0, 14.0, 11.0, 13.0])
    bad = record(5, metrics=Metrics(decode_tps=99.0), problems=("token-limit",))
    warm = record(6, metrics=Metrics(decode_tps=1.0), warmup=True)
    (row,) = of(*good, bad, warm).rows
    cell = row.cells["decode_tps"]
    assert (cell.middle, cell.count) == (12.0, 5)
    assert cell.spread is not None
    assert (cell.spread.low, cell.spread.high) == (10.0, 14.0)
    assert row.problems == {"token-limit": 1}
    assert len(row.records) == 6
    assert summary.headline(of(*good, bad, warm))[:2] == [
        "1 board, 6 runs; 5 of them count.", "1 run excluded: token-limit 1.",
    ]  # fmt: skip


def test_where_nothing_is_comparable_no_interval_is_drawn() -> None:
    a, b = separate(noisy(10, 8, 1)), newer(separate(noisy(12, 8, 2)))
    drawn = part(gather([group("a", a), group("b", b)]), "verdicts")
    assert "<svg" in drawn
    lab = [replace(one, emulated=True) for one in b]
    refused = part(gather([group("a", a), group("b", lab)]), "verdicts")
    assert "<svg" not in refused
    assert "<table" not in refused
    assert "The groups are not comparable" in refused
    assert "emulated" in refused, "why"
    third = part(gather([group("a", a), group("b", b), group("c", lab)]), "verdicts")
    assert third.count("<svg") == drawn.count("<svg"), "only the group that is comparable"


def test_units_that_differ_are_no_column() -> None:
    found = of(record(0, metrics=other("x", 1, "us")), record(1, metrics=other("x", 1, "cycles")))
    assert found.metrics == ()
    assert found.left_out == {"x": "the runs use several units"}
    assert "x (the runs use several units)" in page(found)


def test_boards_of_one_name_stay_apart() -> None:
    found = of(record(0, "evk", identity="id a111111"), record(1, "evk", identity="id b222222"))
    assert [row.board for row in found.rows] == ["evk (111111)", "evk (222222)"]
    assert found.boards == 2


def test_many_points_are_thinned_and_said() -> None:
    found = of(*repeats(noisy(10, 6000, 1)))
    spec, left = drawing.distribution(found, found.metrics[0])
    drawn = [one["v"] for one in spec["layer"][1]["data"]["values"]]
    whole = sorted(one.metrics.decode_tps or 0 for one in found.records)
    assert len(drawn) == 4000
    assert (drawn[0], drawn[-1]) == (whole[0], whole[-1])
    assert left.startswith("the chart shows 4000 of 6000 runs")


def test_thinned_keeps_ends_and_order() -> None:
    assert thinned([1, 2, 3], 5) == [1, 2, 3]
    assert thinned(list(range(101)), 5) == [0, 25, 50, 75, 100]


def test_nothing_that_counts_is_a_page_too() -> None:
    text = page(of(*repeats([1.0, 2.0], problems=("failed: 1",))))
    assert "none of them count" in text or "0 of them count" in text
    assert "Runs that do not count" in text


def test_a_time_that_is_none_breaks_nothing() -> None:
    assert "<svg" in page(of(*repeats(noisy(10, 6, 1), started="yesterday")))


def test_what_a_number_looks_like() -> None:
    assert [summary.number(one) for one in (4060, 183.5, 10.03, 1.234, 0.0123, -5)] == [
        "4,060", "184", "10.0", "1.23", "0.012", "-5.00",
    ]  # fmt: skip


def test_a_long_history_is_thinned_and_said() -> None:
    one = record(0, metrics=Metrics(decode_tps=10.0))
    found = of(*(
        replace(one, run_id=f"run{n}", started=f"2026-{1 + n // 672:02}-{1 + n // 24 % 28:02}"
                f"T{n % 24:02}:00:00Z") for n in range(2000)
    ))  # fmt: skip
    drawn = history(found, found.metrics[0])
    assert drawn is not None
    points = drawn[0]["layer"][-2]["data"]["values"]
    assert (len(points), drawn[1]) == (
        1200,
        "the chart shows 1200 of 2000 medians, evenly spaced, with the first and the last",
    )


def test_history_needs_two_runs_of_a_board() -> None:
    found = of(*repeats(noisy(10, 6, 1)))
    assert history(found, found.metrics[0]) is None


def test_curves_are_of_the_boards_that_warmed_most() -> None:
    found = of(*fleet(9, 12, sustained=2))
    drawn, whole = curves(found, found.metrics[-1])
    assert [one.title for one in drawn][:2] == ["evk-01", "evk-02"]
    assert (len(drawn), whole) == (6, 9)
    first = drawn[0].spec["vconcat"][0]["data"]["values"]
    assert (first[0]["x"], len(first)) == (pytest.approx(0, abs=0.1), 12)


def test_operations_are_medians_largest_first_and_say_where_they_ran() -> None:
    found = operations(of(*fleet(2, 5)))
    spec, text = found["us"]
    assert [one["n"][3:] for one in spec["data"]["values"]][:2] == ["MatMul", "Softmax"]
    assert "not on the NPU: Gather on cpu" in text


def test_several_models_are_said_not_to_compare() -> None:
    found = of(record(0, metrics=Metrics(decode_tps=1.0)),
               record(0, "b", name="m2", metrics=Metrics(decode_tps=9.0)))  # fmt: skip
    said = " ".join(summary.headline(found))
    assert "The report contains several models (llm, m2); do not compare their numbers." in said
    assert "Boards differ" not in said


def runs(values: object) -> list[Record]:
    """A row of values is a run, with a boot of its own."""
    return [
        one
        for n, row in enumerate(np.asarray(values))
        for one in repeats(
            row.tolist(),
            run_id=f"202611{n + 1:02}-100000-aaaaaa",
            started=f"2026-11-{n + 1:02}T10:00:00Z",
        )
    ]


def test_an_estimate_stands_beside_its_own_interval() -> None:
    """Falling by a quarter, the median is not the level, and may lie outside of its interval."""
    bent = (1 - np.exp(-3 * np.linspace(0, 1, 12))) / (1 - np.exp(-3))
    found = of(*repeats((10 * np.exp(np.log(0.75) * bent) * (1 + 0.001 * bent**2)).tolist()))
    cell = found.rows[0].cells["decode_tps"]
    assert cell.spread is not None
    assert cell.spread.drift < -0.2
    assert cell.middle == cell.spread.mid
    assert cell.spread.low <= cell.middle <= cell.spread.high
    text = part(found, "boards")
    assert f'{summary.number(cell.middle)}<span class="range">' in text
    span = drawing.distribution(found, found.metrics[0])[0]["layer"][2]["data"]["values"][0]
    assert span["a"] <= span["m"] <= span["b"]


def test_intervals_are_those_of_compare() -> None:
    """Five runs of three repeats are five values, there and here; boots differ by 1.5 %."""
    held = 0
    for seed in range(100):
        rng = np.random.default_rng(seed)
        boots = np.exp(0.015 * rng.standard_normal((5, 1)))
        values = 10 * boots * np.exp(0.01 * rng.standard_normal((5, 3)))
        made = runs(values)
        cell = of(*made).rows[0].cells["decode_tps"]
        theirs = difference(by_run(made, "decode_tps"), [])
        assert (cell.middle, cell.spread) == (theirs.mid_a, theirs.a)
        assert cell.count == 15
        assert cell.spread is not None
        held += cell.spread.low <= 10 <= cell.spread.high
    assert held >= 88


def test_the_verdict_has_drawn_intervals_what_differs_and_the_conditions() -> None:
    a = separate([10.0, 10.1, 9.9, 10.05, 9.95, 10.02])
    b = newer(separate([9.0, 9.1, 8.9, 9.05, 8.95, 9.02]))
    text = page(gather([group("before", a), group("after", b)]))
    table = text[text.index('id="verdicts"') : text.index('id="boards"')]
    assert table.count("<svg") == 1
    assert "&lt;svg" not in table
    assert "Compared on purpose (--vary): runtime: A 2.50.0.260828" in table
    assert "chip QCS9075; prompt abababababab; start °C 40.0; governor performance" in table
    assert text.index("per board: gen tok/s 1 slower") < text.index('id="verdicts"')


def test_what_all_rows_share_takes_no_column() -> None:
    """And an empty column none; what differs has one."""
    a = [r for n in range(3) for r in repeats(noisy(10, 5, n), host=f"evk-{n}", emulated=True)]
    b = newer([r for n in range(3) for r in repeats(noisy(10, 5, 9 + n), host=f"evk-{n}",
                                                    emulated=True)], "b")  # fmt: skip
    text = page(gather([group("before", a), group("after", b)]))
    verdicts = text[text.index('id="verdicts"') : text.index('id="boards"')]
    heads = re.findall(r'<button type="button">([^<]*)<', verdicts)
    assert not {"group", "emulated"} & set(heads)
    assert "in 1 run)" not in verdicts
    assert "values: A 5 in 1 run, B 5 in 1 run" in verdicts
    boards = text[text.index('id="boards"') : text.index('id="distributions"')]
    heads = re.findall(r'<button type="button">([^<]*)<', boards)
    assert {"group", "board", "QAIRT", "counted"} <= set(heads), "QAIRT differs"
    assert not {"emulated", "problems and remarks", "chip", "model"} & set(heads)
    assert "emulated yes; chip QCS9075" in boards
    mixed = page(gather([group("before", a), group("after", [*b, replace(b[0], emulated=False)])]))
    assert '<button type="button">emulated<' in mixed[mixed.index('id="boards"') :]


def traced(fault: str = "the output differs by up to 9 steps", **changes: Any) -> Record:
    rows = [NodeDifference(f"n{n}", "Conv", f"t{n}", (1, 8), "uint8, scale 1, zero 0",
                           before_db=60.0 - n, after_db=59.0 - n, own_db=200.0, own_steps=0.0)
            for n in range(40)]  # fmt: skip
    rows[30] = replace(rows[30], own_db=3.0, own_steps=9.0, fault=fault)
    answers = (SuiteAnswer("x", faults=("y differs",)),)
    result = SuiteResult("(samples)", "0" * 64, 1, 1, answers, tuple(rows))
    return record(0, "evk-09", suite=result, emulated=True, **changes)


def test_where_a_network_begins_to_differ() -> None:
    """A table and a picture, with timed runs beside them and without."""
    for others in ([], repeats([10.0, 11.0])):
        text = page(of(traced(), *others))
        assert "evk-09: the first wrong node is n30 (Conv): the output differs by up to" in text
        assert "25 of 40 nodes of evk-09" in text
        drawn = text[text.index('aria-label="Nodes of evk-09"') :]
        assert drawn.count("this node alone</title>") == 40
        assert "n30: 3.0 dB, this node alone" in drawn
        assert "emulated" in text
    hostile = page(of(traced(HOSTILE)))
    assert "<img" not in hostile
