"""Groups side by side: boards, runs, verdicts, many questions."""

from __future__ import annotations

import dataclasses
import math

import pytest
from msgspec.structs import replace

from fleet.cli.run import changes_text
from fleet.model.metrics import direction
from fleet.model.plain import to_plain
from fleet.model.record import Measure, Metrics, Record
from fleet.profiles import references
from fleet.profiles.compare.comparing import Comparison, _remarks, compare
from fleet.profiles.compare.conditions import Weight
from fleet.profiles.compare.groups import by_run, group
from fleet.profiles.compare.metrics import metric
from fleet.profiles.compare.verdict import Verdict
from fleet.profiles.compare.writing import together

from .made import conditions, metrics, newer, noisy, op, record, repeats, separate


def against(a: list[Record], b: list[Record], *names: str, **options: object) -> Comparison:
    return compare(group("A", a), group("B", b), names, **options)  # type: ignore[arg-type]


def test_slower_faster_same_nothing() -> None:
    a = separate(noisy(10, 12, 1))
    for middle, verdict in ((9.4, "slower"), (10.6, "faster"), (9.95, "no difference found")):
        found = against(a, newer(separate(noisy(middle, 12, 2))), "decode_tps")
        assert [str(one.verdict) for one in found.rows] == [verdict], middle
    quiet = [separate(noisy(10, 12, seed, 0.001)) for seed in (1, 2)]
    assert against(quiet[0], newer(quiet[1])).rows[0].verdict is Verdict.SAME
    assert against(quiet[0], newer(quiet[1]), margin=0.0).rows[0].verdict is Verdict.NONE


def test_times_up_are_slower_and_what_nobody_knows_is_higher() -> None:
    def group_of(scale: float, seed: int) -> list[Record]:
        return [
            record(n, run_id=f"run{n:02}-aaaaaa", metrics=Metrics(ttft_ms=v, others={
                "wall": Measure(v, "ms"), "rate": Measure(v, "img/s"), "odd": Measure(v, "widgets"),
            }))
            for n, v in enumerate(noisy(100 * scale, 12, seed))
        ]  # fmt: skip

    found = against(group_of(1, 1), newer(group_of(1.2, 2)))
    verdicts = {one.metric.name: str(one.verdict) for one in found.rows}
    assert verdicts == {"ttft_ms": "slower", "wall": "slower", "rate": "faster", "odd": "higher"}


@pytest.mark.parametrize(
    ("unit", "better"),
    [("tok/s", 1), ("toks/sec", 1), ("img/s", 1), ("Hz", 1), ("ms", -1), ("us", -1), ("cycles", -1),
     ("", 0), ("bytes", 0), ("%", 0)],
)  # fmt: skip
def test_the_better_way_by_unit(unit: str, better: int) -> None:
    assert direction(unit) == better


def test_what_blocks_is_not_compared() -> None:
    a = separate(noisy(10, 12, 1))
    lab = [replace(one, emulated=True) for one in separate(noisy(2, 12, 2))]
    row = against(a, lab).rows[0]
    assert row.verdict is Verdict.INCOMPARABLE
    assert "emulated" in row.why
    assert row.emulated


def test_units_are_never_mixed() -> None:
    a = [record(n, metrics=Metrics(others={"wall": Measure(5 + n, "ms")})) for n in range(8)]
    b = [record(n, metrics=Metrics(others={"wall": Measure(5 + n, "us")})) for n in range(8)]
    row = against(a, b).rows[0]
    assert (row.verdict, row.why) == (Verdict.INCOMPARABLE, "units differ: ms, us")


def test_boards_are_compared_with_themselves() -> None:
    """Chips differ by 20 %: pooled, a loss of 5 % on both would drown."""
    a = separate(noisy(10, 12, 1), host="evk-01") + separate(noisy(12, 12, 2), host="evk-02")
    b = separate(noisy(9.4, 12, 3), host="evk-01") + separate(noisy(11.3, 12, 4), host="evk-02")
    extra = separate(noisy(50, 12, 5), host="evk-03")
    found = against(a, newer(b + extra))
    assert [(r.board, str(r.verdict)) for r in found.rows] == [
        ("evk-01", "slower"), ("evk-02", "slower"),
    ]  # fmt: skip
    assert found.overall[0].moved == {"slower": 2}
    assert found.overall[0].verdict is None
    assert any("evk-03" in text for text in found.remarks)
    assert found.missing == ()
    assert against(a + extra, newer(b)).missing == ("evk-03",)


def test_six_boards_speak_together() -> None:
    a = [r for n in range(8) for r in separate(noisy(10 + n, 12, n), host=f"evk-{n}")]
    b = [r for n in range(8) for r in separate(noisy(9.6 + n, 12, 50 + n), host=f"evk-{n}")]
    overall = against(a, newer(b)).overall[0]
    assert overall.verdict is Verdict.SLOWER
    assert overall.change is not None
    assert overall.change[0] < -0.03 < overall.change[2]


def test_what_all_boards_say_stands_once() -> None:
    """Of one `fleet run` a side no board can say anything: one reason, no summary of nothing."""
    a = [r for n in range(3) for r in repeats(noisy(10, 5, n), host=f"evk-{n}")]
    b = [r for n in range(3) for r in repeats(noisy(10, 5, 9 + n), host=f"evk-{n}")]
    found = against(a, newer(b, "b"))
    assert {row.verdict for row in found.rows} == {Verdict.FEW}
    assert together(found) == []
    line = changes_text(found.rows)
    assert line.count("too few runs") == 1
    assert [line.count(f"evk-{n} ") for n in range(3)] == [1, 1, 1]
    text = "the same remark"
    rows = [
        dataclasses.replace(
            row, difference=dataclasses.replace(row.difference, how="", remarks=(text,))
        )
        for row in found.rows
    ]
    names = ", ".join(f"evk-{n}" for n in range(3))
    other = [dataclasses.replace(row, metric=metric("ttft_ms", [])) for row in rows]
    assert _remarks([*rows, *other]) == [f"{names} gen tok/s; {names} TTFT ms: {text}"]


def test_chips_are_never_pooled() -> None:
    def boards(names: str, chips: tuple[str, str]) -> list[Record]:
        return [
            r
            for host, chip in zip(names, chips, strict=True)
            for r in separate(noisy(10, 8, 1), host=host, facts={"soc": {"chip": chip}})
        ]

    found = against(boards("ab", ("X", "Y")), boards("cd", ("X", "Y")))
    assert found.rows[0].verdict is Verdict.INCOMPARABLE
    assert found.rows[0].why == "the group contains results of several chips"
    alike = against(boards("ab", ("X", "X")), boards("cd", ("X", "X")))
    assert alike.rows[0].board == "2 boards → 2 boards"
    assert alike.rows[0].verdict is Verdict.FEW
    assert "measured on different devices" in alike.remarks[0]


def test_repeats_are_no_runs() -> None:
    """`profiles show` calls them runs, too: `5/5`."""
    a, b = repeats(list(noisy(10, 8, 1))), newer(repeats(list(noisy(9, 8, 2))), "b")
    (text,) = against(a, b).remarks[-1:]
    assert "fewer than 5 `fleet run` commands" in text
    assert "repeats of one command share a boot" in text


def test_many_questions_are_corrected() -> None:
    """Five repeats can give 0.008 at best: enough for one question, not for twenty."""
    a = [r for n in range(20) for r in separate([10, 10.1, 9.9, 10.2, 9.8], host=f"evk-{n:02}")]
    slow = separate([9, 9.1, 8.9, 9.2, 8.8], host="evk-00")
    b = newer(slow + [r for r in a if r.host != "evk-00"])
    row = against(a, b).rows[0]
    assert row.verdict is Verdict.FEW
    assert "20 metrics at once" in row.why
    one = against([r for r in a if r.host == "evk-00"], newer(slow)).rows[0]
    assert one.verdict is Verdict.SLOWER


def test_false_alarms_of_a_whole_table() -> None:
    """Twenty boards of which none changed: one table in twenty may name one, not each."""
    wrong = 0
    for seed in range(30):
        a = [r for n in range(20) for r in separate(noisy(10, 8, 1000 * seed + n), host=f"{n}")]
        b = [
            r for n in range(20) for r in separate(noisy(10, 8, 1000 * seed + 500 + n), host=f"{n}")
        ]
        found = against(a, newer(b))
        wrong += any(one.shown for one in found.rows)
    assert wrong <= 3


def test_what_does_not_count_is_left_out_and_said() -> None:
    a = separate(noisy(10, 12, 1))
    cut = [replace(one, problems=("cpu-fallback: x",), metrics=metrics(1)) for one in a[:4]]
    found = against(a, newer(cut + a[4:]))
    assert found.rows[0].difference.count_b == 8
    assert found.b.dropped == {"cpu-fallback": 4}
    warned = [one.what for one in found.findings if one.weight is Weight.WARNS]
    assert warned == ["runs that do not count"]
    warm = [replace(one, warmup=True) for one in a]
    assert against(a, warm).rows == ()


def test_a_single_published_value_says_where_it_lies_and_no_more() -> None:
    ours = separate(noisy(9.5, 10, 1))
    row = against([replace(separate([10.03])[0], identity=ours[0].identity)], ours).rows[0]
    assert row.verdict is Verdict.FEW
    assert row.difference.mid == pytest.approx(-0.053, abs=0.02)
    assert row.why == "too few runs: 1, but an interval needs 5"
    assert row.verdict_text == row.why, "the verdict stands there once"


def test_a_published_figure_is_held_against_the_interval_of_b() -> None:
    """It is a level, whose own noise nobody knows; a run of ours is not."""
    figure = Record.from_dict(references.plain("nemotron-iq9075")[0])
    for middle, count, verdict in (
        (9.5, 10, Verdict.SLOWER), (10.03, 10, Verdict.NONE), (9.5, 3, Verdict.FEW),
        (9.5, 5, Verdict.FEW),
    ):  # fmt: skip
        ours = [
            replace(made, prompt_sha256="", runner="genie")
            for made in separate(noisy(middle, count, 1))
        ]
        (row,) = against([figure], ours, "decode_tps").rows
        assert row.verdict is verdict, (middle, count, row.verdict_text)
    assert "6 runs of B are needed" in row.why
    assert (row.difference.count_a, row.difference.mid_a) == (1, 10.03)


def test_holes_and_resumed_runs_keep_their_places() -> None:
    made = repeats([1.0, 2.0, 3.0, 4.0])
    holes = [made[0], replace(made[1], problems=("failed",)), made[3]]
    rows = by_run(holes, "decode_tps")
    assert [None if math.isnan(v) else v for v in rows[0]] == [1, None, None, 4]
    again = [*holes, replace(made[1], metrics=metrics(7.0))]
    assert by_run(again, "decode_tps")[0][1] == 7
    far = [replace(made[0], repeat=10**9), made[1]]
    assert by_run(far, "decode_tps") == [[2.0, 1.0]]


def test_the_document_is_plain_data() -> None:
    a = separate(noisy(10, 12, 1), ops=(op("a", 1),))
    data = to_plain(against(a, newer(a)))
    assert data["schema"] == 1
    row = data["rows"][0]
    assert row["verdict"] == "no difference found" or row["verdict"] == "same"
    assert row["difference"]["count_a"] == 12
    assert data["a"]["emulated"] == [False]
    assert metric("nope", a).better == 0


def test_two_boards_of_one_name_are_told_apart() -> None:
    a = separate([10.0] * 6) + separate([10.0] * 6, identity="machine-id other")
    found = against(a, newer(a))
    assert len({one.board for one in found.rows}) == 2


def test_other_conditions_of_one_board_are_its_own() -> None:
    a = separate(noisy(10, 8, 1), host="a") + separate(noisy(10, 8, 2), host="b")
    b = [replace(r, conditions=conditions(60)) if r.host == "b" else r for r in newer(a)]
    warm = [one for one in against(a, b).findings if one.what == "start temperature"]
    assert [one.board for one in warm] == ["b"]
