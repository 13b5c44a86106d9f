"""What gates and verdicts stand on: the interval, corrected over what was asked."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from msgspec.structs import replace

from fleet.cli import compared as cli
from fleet.model.errors import FleetError, InputError
from fleet.model.metrics import COMPARED, KNOWN
from fleet.model.plain import to_plain
from fleet.model.record import Metrics, Record
from fleet.profiles.compare import writing
from fleet.profiles.compare.comparing import Comparison
from fleet.profiles.compare.gates import GateOutcome, JudgedGate
from fleet.profiles.compare.groups import group
from fleet.profiles.compare.matrix import matrix
from fleet.profiles.compare.outcome import judged_gates, require
from fleet.profiles.compare.selecting import compare_groups
from fleet.profiles.compare.verdict import MetricRow, Verdict, judge
from fleet.profiles.stats.difference import difference

from .made import NEW, metrics, newer, record, repeats


def runs(
    values: np.ndarray, host: str = "evk-01", names: tuple[str, ...] = ("decode_tps",)
) -> list[Record]:
    """Values by run and repeat (and metric), a day each run."""
    found = []
    for run, of_run in enumerate(values):
        for repeat, of_repeat in enumerate(of_run):
            numbers = dict(zip(names, np.atleast_1d(of_repeat).tolist(), strict=True))
            found.append(
                record(
                    repeat,
                    host,
                    run_id=f"202611{run + 1:02}-100000-aaaaaa",
                    started=f"2026-11-{run + 1:02}T10:{repeat:02}:00Z",
                    metrics=Metrics(prompt_tokens=29, generated_tokens=31, **numbers),
                )
            )
    return found


def after(records: list[Record]) -> list[Record]:
    """The same runs with the next runtime."""
    ids = sorted({one.run_id for one in records})
    return [
        new
        for n, run in enumerate(ids)
        for new in newer([r for r in records if r.run_id == run], f"202612{n + 1:02}-100000-bbbbbb")
    ]


def decided(
    a: list[Record], b: list[Record], *gates: str, ask: tuple[str, ...] = ()
) -> tuple[Comparison, list[JudgedGate], int, str]:
    """As `fleet profiles compare A B --fail-if ...`; its exit code and what it says at the end."""
    asked = cli.gates_of(gates)
    found = compare_groups((group("A", a), group("B", b)), asked, ask, 0.01, ())
    judged = judged_gates(found, asked, strict=False)
    try:
        require(found, judged, strict=False)
    except FleetError as error:
        return found, judged, error.exit_code, f"{error.message} {error.hint}"
    return found, judged, 0, ""


def pair(
    middle: float, noise: float, seed: int, count: int = 5
) -> tuple[list[Record], list[Record]]:
    rng = np.random.default_rng(seed)
    a, b = (
        10 * scale * np.exp(noise * rng.standard_normal((count, 1))) for scale in (1.0, 1 + middle)
    )
    return runs(a), after(runs(b))


# (a) the interval decides


def test_a_wide_interval_does_not_pass_a_gate() -> None:
    """The pair of the finding: -4.6 % (-28.7 % to +18.9 %) against -5 %."""
    a = runs(np.array([[10.0], [8.9], [11.2], [9.4], [10.6]]))
    b = after(runs(np.array([[9.5], [8.0], [10.9], [11.3], [8.6]])))
    found, (one,), code, said = decided(a, b, "decode_tps<-5%")
    (row,) = found.rows
    assert row.difference.low is not None
    assert row.difference.low < -0.2 < -0.05 < (row.difference.mid or 0) < 0.1
    assert (one.outcome, code) == (GateOutcome.UNJUDGED, 4)
    assert "at least five" in said
    assert "to +" in one.text


def test_worse_and_beyond_the_limit_trips_though_the_limit_lies_within() -> None:
    a = runs(np.array([[10.0], [9.95], [10.05], [9.9], [10.1]]))
    b = after(runs(np.array([[9.43], [9.2], [9.84], [9.45], [9.4]])))
    found, (one,), code, _ = decided(a, b, "decode_tps<-5%")
    row = found.rows[0].difference
    assert row.low is not None
    assert row.high is not None
    assert row.low < -0.05 < row.high < 0
    assert (one.outcome, code) == (GateOutcome.TRIPPED, 1)


@pytest.mark.parametrize(
    ("gate", "middle", "noise", "outcome"),
    [
        ("decode_tps<-5%", -0.03, 0.004, GateOutcome.PASSED),  # surely less, surely not 5 % less
        ("decode_tps<-5%", -0.045, 0.02, GateOutcome.UNJUDGED),  # less, and maybe 5 % less
        ("decode_tps<-5%", 0.0, 0.004, GateOutcome.PASSED),
        ("decode_tps<-5%", 0.0, 0.1, GateOutcome.UNJUDGED),
        ("decode_tps<-5%", -0.2, 0.02, GateOutcome.TRIPPED),
        ("decode_tps<-0.5tok/s", 0.0, 0.1, GateOutcome.UNJUDGED),
        ("decode_tps<+5%", 0.1, 0.004, GateOutcome.PASSED),  # an improvement that has to be
        ("decode_tps<+5%", 0.01, 0.004, GateOutcome.TRIPPED),
        ("decode_tps<+5%", 0.0, 0.002, GateOutcome.TRIPPED),  # nothing changed: `same`
        (
            "decode_tps<+5%",
            0.0,
            0.004,
            GateOutcome.TRIPPED,
        ),  # `no difference found`, well below 5 %
        ("decode_tps<+0%", 0.0, 0.002, GateOutcome.UNJUDGED),
        ("decode_tps<+5%", 0.05, 0.02, GateOutcome.UNJUDGED),
        ("decode_tps<9.9", 0.01, 0.05, GateOutcome.UNJUDGED),  # the level of B, 9.4 to 10.8 or so
        ("decode_tps<9", 0.0, 0.004, GateOutcome.PASSED),
    ],
)
def test_one_rule_for_all_gates_with_a_limit(
    gate: str, middle: float, noise: float, outcome: GateOutcome
) -> None:
    _, (one,), code, _ = decided(*pair(middle, noise, 3), gate)
    assert one.outcome is outcome, one.text
    assert code == {GateOutcome.TRIPPED: 1, GateOutcome.PASSED: 0, GateOutcome.UNJUDGED: 4}[outcome]


@pytest.mark.parametrize("gate", ["decode_tps>+5%", "decode_tps>-5%", "decode_tps>9"])
def test_a_limit_that_only_an_improvement_exceeds_is_refused(gate: str) -> None:
    with pytest.raises(InputError, match="has the wrong direction, so it passes every loss"):
        decided(*pair(-0.5, 0.02, 3), gate)


def test_noisier_is_never_greener() -> None:
    """Of A/A pairs a gate passes what is quiet, and mostly asks for more where it cannot know."""
    found = Counter(
        (noise, decided(*pair(0.0, noise, seed), "decode_tps<-5%")[2])
        for noise in (0.005, 0.06)
        for seed in range(40)
    )
    assert found[0.005, 0] == 40
    assert found[0.06, 0] <= 10
    assert found[0.06, 1] <= 2


# (b) the correction runs over what gates name


def table(
    loss: float, boards: int = 2, count: int = 5, each: int = 3
) -> tuple[list[Record], list[Record]]:
    rng = np.random.default_rng(5)
    sides = []
    for scale in (1.0, 1 + loss):
        shape = (count, each, len(COMPARED))
        rows = [
            runs(10 * scale * np.exp(0.01 * rng.standard_normal(shape)), f"evk-{n:02}", COMPARED)
            for n in range(boards)
        ]
        sides.append([one for row in rows for one in row])
    return sides[0], after(sides[1])


def test_five_separated_runs_a_side_trip_a_gate_beside_a_whole_table() -> None:
    """Two boards, four metrics, 5 runs of 3 repeats, 20 % less."""
    found, judged, code, _ = decided(*table(-0.2), "decode_tps<-5%")
    assert len(found.rows) == 8
    assert [one.outcome for one in judged] == [GateOutcome.TRIPPED] * 2
    assert code == 1
    named = [one for one in found.rows if one.metric.name == "decode_tps"]
    assert [one.verdict for one in named] == [Verdict.SLOWER] * 2
    assert {one.questions for one in named} <= {1, 2}


def test_too_many_questions_ask_for_runs_and_show_what_was_measured() -> None:
    found, judged, code, said = decided(*table(-0.2), "slower")
    assert code == 4
    row = found.rows[0]
    assert row.verdict is Verdict.FEW
    assert "to decide 8 metrics at once, 6 runs of A and of B are needed" in row.why
    assert "repeats" not in row.why
    assert "at least five" in said
    cells = writing.cells(row, found.margin)
    assert "(n 5)" in cells[2]
    assert "(n 5)" in cells[3]
    assert " to " in cells[5]
    assert "alone" in cells[5]
    assert (to_plain(row)["questions"], to_plain(row)["alone"]) == (8, True)
    assert " to " in judged[0].text
    six = decided(*table(-0.2, count=6), "slower")
    assert six[2] == 1


@pytest.mark.parametrize(
    ("questions", "runs_a_side"), [(6, 5), (7, 6), (22, 6), (23, 7), (84, 7), (85, 8), (315, 8)]
)
def test_how_many_runs_so_many_questions_take(questions: int, runs_a_side: int) -> None:
    """The figures of docs/compare.md, by the verdict itself."""
    for count, enough in ((runs_a_side, True), (runs_a_side - 1, False)):
        rng = np.random.default_rng(1)
        a, b = (list(m * np.exp(0.01 * rng.standard_normal((count, 1)))) for m in (10, 5))
        found = judge(
            [MetricRow(str(n), KNOWN["decode_tps"], difference(a, b)) for n in range(questions)],
            0.01,
        )
        assert {one.verdict is Verdict.SLOWER for one in found} == {enough}
        if not enough and count >= 5:
            assert f"{runs_a_side} runs of A and of B are needed" in found[0].why


def test_what_could_not_trip_has_not_passed() -> None:
    """From seven rows on five runs a side can show nothing, so they show no good either."""
    found, _, code, _ = decided(*table(0.0), "slower")
    assert {one.verdict for one in found.rows} == {Verdict.FEW}
    assert code == 4


def test_nine_tables_in_ten_of_quiet_boards_are_green_and_none_is_red() -> None:
    """A/A: 4 boards, gate on one metric, 8 runs of 3 repeats, 1 % noise; and 8 % less on one."""
    codes, missed = Counter[int](), 0
    for seed in range(30):
        rng = np.random.default_rng(seed)
        sides = [
            [runs(10 * np.exp(0.01 * rng.standard_normal((8, 3))), f"evk-{n:02}") for n in range(4)]
            for _ in "AB"
        ]
        a, b = ([one for rows in side for one in rows] for side in sides)
        codes[decided(a, after(b), "decode_tps<-5%")[2]] += 1
        bad = [
            replace(one, metrics=metrics((one.metrics.decode_tps or 0) * 0.92))
            if one.host == "evk-00"
            else one
            for one in b
        ]
        missed += decided(a, after(bad), "decode_tps<-5%")[2] != 1
    assert codes[0] >= 27
    assert codes[1] == 0
    assert missed == 0


# (c) table and matrix


def three_boards() -> tuple[list[Record], list[Record]]:
    """Two boards that changed for sure; one whose p is .0186 by itself: among three, no proof."""
    rng = np.random.default_rng(21)
    sides: list[list[Record]] = [[], []]
    for n, change in enumerate((-0.1, -0.1, 0.012)):
        for place, scale in enumerate((1.0, 1 + change)):
            values = 10 * scale * np.exp(0.008 * rng.standard_normal((10, 1)))
            sides[place] += runs(values, f"evk-{n:02}")
    return sides[0], after(sides[1])


@pytest.mark.parametrize("boards", [1, 2, 3])
def test_table_and_matrix_give_one_verdict(boards: int) -> None:
    hosts = {f"evk-{n:02}" for n in range(3 - boards, 3)}
    a, b = ([one for one in side if one.host in hosts] for side in three_boards())
    rows = decided(a, b, ask=("decode_tps",))[0].rows
    cells = matrix(group("x", a + b), "decode_tps").cells
    for row in rows:
        cell = cells[row.board, NEW].row
        assert cell is not None
        assert (cell.verdict, cell.p) == (row.verdict, row.p)
        assert (cell.difference.low, cell.difference.high) == (
            row.difference.low,
            row.difference.high,
        )


def test_a_matrix_is_corrected_as_the_table_is() -> None:
    """By Benjamini and Hochberg three p of .03 are three findings; no table may say so."""
    rng = np.random.default_rng(2)
    a, b = list[Record](), list[Record]()
    for n in range(3):
        while True:
            values = 10 * np.exp(0.01 * rng.standard_normal((2, 8, 1)))
            found = decided(runs(values[0]), after(runs(values[1])))[0].rows[0]
            if 0.025 < found.p < 0.045:
                break
        a += runs(values[0], f"evk-{n:02}")
        b += after(runs(values[1], f"evk-{n:02}"))
    cells = matrix(group("x", a + b), "decode_tps").cells.values()
    assert {one.row.verdict for one in cells if one.row} == {Verdict.NONE}


def test_no_difference_stands_beside_an_interval_that_holds_none() -> None:
    """Of 60 tables: a verdict is faster or slower where the interval leaves out 0, and only there.

    Three repeats a run, eight runs a side: no ties, and both sides are equally noisy.
    """
    seen = Counter[str]()
    for seed in range(60):
        rng = np.random.default_rng(seed)
        a, b = list[Record](), list[Record]()
        for n in range(3):
            values = 10 * np.exp(0.01 * rng.standard_normal((2, 8, 3)))
            a += runs(values[0], f"evk-{n:02}")
            b += after(runs(values[1] * (1 - 0.008 * n), f"evk-{n:02}"))
        for row in decided(a, b)[0].rows:
            one = row.difference
            assert one.low is not None
            assert one.high is not None
            if row.verdict is Verdict.NONE:
                assert one.low <= 0 <= one.high or one.p > 0.049 / row.questions, row
            if row.shown:
                assert not one.low <= 0 <= one.high, row
            seen[str(row.verdict)] += 1
    assert seen["slower"] > 10
    assert seen["no difference found"] > 60


# (e) A, B and the change


def shares(row: MetricRow) -> tuple[float, float]:
    one = row.difference
    assert one.mid_a
    assert one.mid_b
    assert one.mid is not None
    return one.mid_b / one.mid_a - 1, one.mid


def test_the_middles_are_of_what_the_change_is_of() -> None:
    """Ten runs of which half sit in another mode: the median of all repeats jumps between them."""
    rng = np.random.default_rng(4)
    values = 10 * np.exp(0.003 * rng.standard_normal((2, 10, 4)))
    values[0, :4] *= 1.06
    values[1, :6] *= 1.06
    found = decided(runs(values[0]), after(runs(values[1])))[0]
    one = found.rows[0].difference
    assert (one.count_a, one.count_b) == (10, 10)
    medians = [float(np.median(np.median(side, axis=1))) for side in values]
    assert [one.mid_a, one.mid_b] == pytest.approx(medians)


def test_where_the_numbers_do_not_add_up_a_remark_says_so() -> None:
    odd = plain = 0
    for seed in range(40):
        rng = np.random.default_rng(seed)
        sticky = [np.where(rng.random((7, 1)) < 0.5, 1.0, 1.06) for _ in "AB"]
        noise = np.exp(0.004 * rng.standard_normal((2, 7, 3)))
        found = decided(runs(10 * noise[0] * sticky[0]), after(runs(10.2 * noise[1] * sticky[1])))[
            0
        ]
        (row,) = found.rows
        by_middles, change = shares(row)
        low, high = row.difference.low, row.difference.high
        assert low is not None
        assert high is not None
        other_way = by_middles * change < 0 and abs(by_middles - change) >= 0.001
        wrong = not low <= by_middles <= high or other_way
        said = any("the change is the median over all pairs" in text for text in found.remarks)
        assert said == wrong, (seed, by_middles, change, low, high)
        odd, plain = odd + wrong, plain + (not wrong)
    assert odd
    assert plain > 25


def test_under_drift_the_middles_are_those_of_the_pairs() -> None:
    """Both fall by 12 % while they run: B is 3 % below A, and the numbers say so."""
    gone = np.exp(np.linspace(0, np.log(0.88), 12))
    rng = np.random.default_rng(6)
    a, b = (m * gone * np.exp(0.004 * rng.standard_normal(12)) for m in (10, 9.7))
    found = decided(repeats(a.tolist()), newer(repeats(b.tolist())))[0]
    (row,) = found.rows
    assert row.difference.how == "repeats"
    by_middles, change = shares(row)
    assert by_middles == pytest.approx(change, abs=0.002)
    assert row.difference.mid_a == pytest.approx(float(np.exp(np.log(a).mean())))
