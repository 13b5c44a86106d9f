"""What a verdict stands on: sides measured in turns, boots, enough runs; and there is one of it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import numpy as np
import pytest
from msgspec.structs import replace

from fleet.cli import compared as cli
from fleet.model.errors import FleetError
from fleet.model.record import Record
from fleet.profiles.compare.comparing import Comparison, compare
from fleet.profiles.compare.gates import GateOutcome, JudgedGate
from fleet.profiles.compare.groups import group
from fleet.profiles.compare.matrix import matrix
from fleet.profiles.compare.outcome import judged_gates, require
from fleet.profiles.compare.selecting import compare_groups
from fleet.profiles.compare.verdict import Verdict
from fleet.profiles.report.summary import gather
from fleet.profiles.report.tables import verdicts

from .made import NEW, conditions, newer, noisy, repeats, separate


def at(records: Sequence[Record], day: int = 1, hour: int = 10, boot: str = "") -> list[Record]:
    """The same at another time and in another boot."""
    return [
        replace(
            made,
            run_id=f"{day}-{hour}-{made.run_id}",
            started=made.started.replace("-01T10", f"-{day:02}T{hour:02}"),
            conditions=conditions(boot_id=boot),
        )
        for made in records
    ]


def decided(
    a: list[Record], b: list[Record], *gates: str
) -> tuple[Comparison, list[JudgedGate], int, str]:
    asked = cli.gates_of(gates)
    found = compare_groups((group("A", a), group("B", b)), asked, ["decode_tps"], 0.01, ())
    judged = judged_gates(found, asked, strict=False)
    try:
        require(found, judged, strict=False)
    except FleetError as error:
        return found, judged, error.exit_code, f"{error.message} {error.hint}"
    return found, judged, 0, ""


@pytest.mark.parametrize(
    ("after", "differs"),
    [
        ({"day": 2}, "time"),
        ({"hour": 17}, "time"),
        ({"hour": 12, "boot": "b"}, "boot"),
        ({"hour": 12, "boot": "a"}, "time"),  # warming, sticky clocks: 100 of 100 tables are wrong
        ({"hour": 12}, ""),  # of an unknown boot nothing is concluded
    ],
)
def test_one_after_the_other_of_another_boot_or_day_gets_no_verdict(
    after: dict[str, object], differs: str
) -> None:
    a = at(separate(noisy(10, 8, 1)), boot="a")
    b = at(newer(separate(noisy(9, 8, 2))), **after)  # type: ignore[arg-type]
    found, judged, code, said = decided(a, b)
    (row,) = found.rows
    if not differs:
        assert (row.verdict, code) == (Verdict.SLOWER, 0)
        return
    assert (row.verdict, row.why, code) == (Verdict.INCOMPARABLE, f"differs: {differs}", 4)
    assert "fleet ab" in said
    judged, code, said = decided(a, b, "decode_tps<-5%")[1:]
    assert (judged[0].outcome, code) == (GateOutcome.UNJUDGED, 4)
    assert "fleet ab" in said


def test_in_turns_days_and_boots_are_on_both_sides() -> None:
    a, b = separate(noisy(10, 8, 1)), newer(separate(noisy(9, 8, 2)))
    days = [[at([made], day + 1)[0] for day, made in enumerate(side)] for side in (a, b)]
    assert decided(days[0], days[1])[0].rows[0].verdict is Verdict.SLOWER
    blocks = [at(side[:2], day) for day in (1, 2) for side in (a, b)]
    few = decided([*blocks[0], *blocks[2]], [*blocks[1], *blocks[3]])[0].rows[0]
    assert few.verdict is not Verdict.INCOMPARABLE


def test_the_boot_is_the_unit_where_no_boot_has_both() -> None:
    """Two boots of five runs each are two values, not ten."""
    sides: list[list[Record]] = [[], []]
    for boot in range(4):
        made = separate(noisy(10 - boot % 2, 5, boot))
        made = newer(made) if boot % 2 else made
        sides[boot % 2] += at(made, hour=10 + boot, boot=f"boot{boot}")
    row = decided(sides[0], sides[1])[0].rows[0]
    assert row.verdict_text == "differs (A and B have 2 `fleet run` each)"
    many: list[list[Record]] = [[], []]
    for boot in range(12):
        made = separate(noisy(10 - boot % 2, 3, boot))
        made = newer(made) if boot % 2 else made
        many[boot % 2] += at(made, day=1 + boot, boot=f"boot{boot}")
    row = decided(many[0], many[1])[0].rows[0]
    assert (row.verdict, row.difference.count_a, row.difference.how) == (Verdict.SLOWER, 6, "runs")


def test_one_run_a_side_differs_and_never_trips() -> None:
    a, b = repeats(noisy(10, 12, 1)), newer(repeats(noisy(5, 12, 2)))
    found, judged, code, _ = decided(a, b, "decode_tps<-5%")
    (row,) = found.rows
    assert row.verdict_text == "differs (A and B have 1 `fleet run` each)"
    assert (row.difference.low, row.difference.high) == (None, None)
    assert (judged[0].outcome, code) == (GateOutcome.UNJUDGED, 4)
    assert decided(a, b, "slower")[2] == 4
    assert decided(a, newer(repeats(noisy(10, 12, 2))))[0].rows[0].verdict is Verdict.FEW


def test_what_would_judge_it_is_said() -> None:
    a, b = separate([10, 10.4, 9.6, 10.6, 9.5]), separate([10.4, 9.6, 10, 9.4, 10.7])
    judged = decided(a, newer(b), "decode_tps<-5%")[1]
    assert judged[0].outcome is GateOutcome.UNJUDGED
    assert "runs each of A and B, alternately, would decide" in judged[0].text
    assert "min per board" in judged[0].text
    few = decided(repeats(noisy(10, 3, 1)), newer(repeats(noisy(9, 3, 2))), "decode_tps<-5%")[1]
    assert "about 5 runs each of A and B, alternately, would decide" in few[0].text


def random_store(seed: int) -> tuple[list[Record], list[Record]]:
    """One to three boards; runs, repeats, noise, change, boots and times as it comes."""
    rng = np.random.default_rng(seed)
    sides: list[list[Record]] = [[], []]
    runs, each = int(rng.choice([1, 2, 5, 6, 8, 12])), int(rng.choice([1, 3]))
    noise, change = rng.choice([0.005, 0.02, 0.06]), rng.choice([0.0, -0.03, -0.1, 0.05])
    way = rng.choice(["turns", "after", "days", "boots"])
    for board in range(int(rng.integers(1, 4))):
        for place, side in enumerate(sides):
            for run in range(runs):
                values = 10 * (1 + place * change) * np.exp(noise * rng.standard_normal(each))
                made = repeats(values.tolist(), host=f"evk-{board:02}", run_id=f"a{run}")
                made = newer(made, f"b{run}") if place else made
                hour = 8 + run if way == "turns" else 10 + run % 4 + 4 * place
                day = 2 if place and way == "days" else 1
                boot = f"boot{place}" if way == "boots" else ""
                side += [replace(one, run_id=made[0].run_id) for one in at(made, day, hour, boot)]
    return sides[0], sides[1]


@pytest.mark.parametrize(
    "stores", [range(40), pytest.param(range(40, 1000), marks=pytest.mark.slow)]
)
def test_one_verdict_in_table_matrix_gate_and_report(stores: range) -> None:
    """Over 1,000 random stores, and in words that are the same."""
    seen = Counter[Verdict]()
    for seed in stores:
        a, b = random_store(seed)
        sides = group("A", a), group("B", b)
        found, judged, _, _ = decided(a, b, "slower")
        cells = matrix(group("x", a + b), "decode_tps").cells
        report = gather(sides)
        by_board = {gate.board: gate for gate in judged}
        reported = {row.board: row for row in report.comparisons[0].rows}
        for row in found.rows:
            cell = cells[row.board, NEW].row
            assert cell is not None
            assert cell == reported[row.board] == row, seed
            gate = by_board[row.board]
            assert row.verdict_text in gate.text, seed
            assert (gate.outcome is GateOutcome.TRIPPED) == (row.verdict is Verdict.SLOWER), seed
            seen[row.verdict] += 1
        if seed % 100 == 0:
            made = verdicts(report)
            assert made is not None
            table = made["table"]
            assert (table is None) == all(row.verdict is Verdict.INCOMPARABLE for row in found.rows)
            page = "not comparable" if table is None else str(table.rows)
            assert all(row.verdict_text.split(":")[0] in page for row in found.rows)
    assert set(seen) == set(Verdict) - {Verdict.HIGHER, Verdict.LOWER}, seen


def test_a_published_figure_is_not_apart() -> None:
    """It has no time and no boot: what is unknown is no reason."""
    ours = at(separate(noisy(10, 8, 1)), boot="a")
    published = replace(ours[0], run_id="reference", started="", conditions=conditions())
    found = compare(group("A", [published]), group("B", ours), ["decode_tps"])
    assert found.rows[0].verdict is Verdict.FEW
