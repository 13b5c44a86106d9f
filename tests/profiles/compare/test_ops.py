"""Operations joined: new, gone, off the NPU, movers."""

from __future__ import annotations

from fleet.profiles.compare.comparing import compare
from fleet.profiles.compare.groups import group
from fleet.profiles.compare.ops import compare_ops

from .made import metrics, newer, op, record

A = (op("conv", 100), op("matmul", 300), op("softmax", 50), op("cast", 50))
B = (op("conv", 101), op("matmul", 360), op("softmax", 60, "cpu"), op("transpose", 9))


def test_new_gone_moved_and_movers() -> None:
    (found,) = compare_ops([record(ops=A)], [record(ops=B)])
    assert [one.name for one in found.new] == ["transpose"]
    assert [one.name for one in found.gone] == ["cast"]
    assert [one.name for one in found.left_npu] == ["softmax"]
    assert [(one.name, round(one.share, 3)) for one in found.movers] == [
        ("matmul", 0.12), ("softmax", 0.02), ("conv", 0.002),
    ]  # fmt: skip
    assert (found.joined, found.total_a, found.total_b) == (3, 500, 530)


def test_medians_over_runs_and_sums_within_one() -> None:
    runs = [record(n, ops=(op("a", v), op("a", 1))) for n, v in enumerate((1, 2, 90))]
    (found,) = compare_ops(runs, runs[:1])
    assert (found.movers[0].a, found.movers[0].b) == (3, 2)


def test_shape_is_part_of_the_name_unless_one_side_has_none() -> None:
    (found,) = compare_ops(
        [record(ops=(op("a", 1, shape="1x8"),))], [record(ops=(op("a", 1, shape="1x9"),))]
    )
    assert (found.joined, len(found.new), len(found.gone)) == (0, 1, 1)
    (bare,) = compare_ops(
        [record(ops=(op("a", 1, shape="1x8"),))], [record(ops=(op("a", 2, shape=""),))]
    )
    assert (bare.joined, bare.new, bare.gone) == (1, (), ())


def test_off_the_npu_on_one_board_of_two() -> None:
    b = [record(ops=(op("a", 1),)), record(host="x", ops=(op("a", 1, "cpu"),))]
    (found,) = compare_ops([record(ops=(op("a", 1),))], b)
    assert [one.ran_on_b for one in found.left_npu] == ["cpu+npu"]
    (whole,) = compare_ops(b, b[1:])
    assert [one.ran_on_a for one in whole.left_npu] == ["cpu+npu"]
    (back,) = compare_ops(b, [record(ops=(op("a", 1),))])
    assert back.left_npu == ()
    (unknown,) = compare_ops([record(ops=(op("a", 1),))], [record(ops=(op("a", 1, ""),))])
    assert unknown.left_npu == ()


def test_cycles_are_not_held_against_microseconds() -> None:
    a, b = [record(ops=(op("a", 1, unit="cycles"),))], [record(ops=(op("a", 1, unit="us"),))]
    assert compare_ops(a, b) == []
    found = compare(group("A", a), group("B", newer(b)))
    assert [text for text in found.remarks if "operations" in text] == [
        "operations not compared: only A measured them in cycles",
        "operations not compared: only B measured them in us",
    ]  # fmt: skip


def test_runs_that_do_not_count_have_no_operations() -> None:
    bad = [record(ops=B, metrics=metrics(1), problems=("cpu-fallback",))]
    assert compare_ops([record(ops=A)], bad) == []
