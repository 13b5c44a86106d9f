"""Repeats until an interval is narrow, and for a time; marks that compare repeats."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest
from msgspec import structs

from fleet.engine.run.measuring.series import Series, metric_of, warm
from fleet.engine.run.measuring.validity import marks_of
from fleet.model.conditions import Conditions, Sample
from fleet.model.events import Cooling, StepStarted, Warned
from fleet.model.gates import CoolSpec, UntilSpec
from fleet.model.playbook import RunSpec
from fleet.model.record import Measure, Metrics, Record

from .conftest import ZONE, Rig


def record(
    rate: float | None = 10.0, *, problems: tuple[str, ...] = (), seen: Conditions | None = None
) -> Record:
    others = {"words": Measure(rate or 0.0, "")}
    return Record(
        run_id="r", host="h", name="n", release="x", runner="exec", repeat=0, warmup=False,
        started="", seconds=1.0, status=0, metrics=Metrics(decode_tps=rate, others=others),
        finish=None, problems=problems, emulated=True, argv=(), env={}, prompt_sha256="",
        files={}, origin={}, facts={}, identity="", conditions=seen or Conditions(),
    )  # fmt: skip


def taken(series: Series, rates: Sequence[float | None]) -> int:
    """How many of these runs the series wants."""
    done = [record(rate) for rate in rates]
    for number in range(len(done) + 1):
        if not series.wants(done[:number]):
            return number
    return len(done) + 1


QUIET = [10.0, 10.01, 9.99, 10.0, 10.0, 10.0]
LOUD = [10.0, 13.0, 8.0, 11.0, 9.0, 14.0, 7.0, 12.0, 10.0, 10.5]


def test_a_number_of_repeats() -> None:
    assert taken(Series(RunSpec(repeats=4)), LOUD) == 4


def test_until_the_interval_is_narrow() -> None:
    series = Series(RunSpec(until=UntilSpec(0.03)))
    assert taken(series, QUIET) == 5
    assert series.outcome == "after 5 runs, the confidence interval of decode_tps is 0.2% wide"
    assert series.warning == ""
    assert taken(Series(RunSpec(repeats=6, until=UntilSpec(0.03))), QUIET) == 6, "at least repeats"
    assert taken(Series(RunSpec(until=UntilSpec(0.03, metric="words"))), QUIET) == 5


def test_until_has_an_end() -> None:
    series = Series(RunSpec(until=UntilSpec(0.03, at_most=7)))
    assert taken(series, LOUD) == 7
    assert "asks for less than 3%" in series.warning
    assert series.outcome == ""


def test_until_goes_on_while_the_board_warms() -> None:
    """It falls by a quarter: an interval about the trend is narrow and means little."""
    falling = [10 * (0.75 + 0.25 * 0.7**run) for run in range(40)]
    series = Series(RunSpec(until=UntilSpec(0.03, at_most=20)))
    assert taken(series, falling) == 20
    assert "drift" in series.warning
    assert "--warmups" in series.warning
    two = [10.0, 10.05, 9.95, 10.02, 9.98, 9.7, 9.4, 9.1]
    assert taken(Series(RunSpec(until=UntilSpec(0.2))), [*two[:5], 10.0]) == 5
    assert taken(Series(RunSpec(repeats=8, until=UntilSpec(0.2, at_most=9))), [*two, 9.1]) == 9


def test_until_of_a_metric_that_no_run_has() -> None:
    series = Series(RunSpec(until=UntilSpec(0.03, metric="decode_tp")))
    assert taken(series, LOUD) == 3
    assert series.warning == "no run has the metric 'decode_tp'; the runs have: decode_tps, words"


def test_runs_that_do_not_count_narrow_nothing() -> None:
    series = Series(RunSpec(until=UntilSpec(0.03)))
    bad = [record(problems=("timeout",))] * 3
    assert not series.wants(bad)
    assert "no run was valid" in series.warning
    assert Series(RunSpec(until=UntilSpec(0.03))).wants([*bad, record(), record()])


def test_metrics_by_name() -> None:
    metrics = record(2.0).metrics
    assert (metric_of(metrics, "decode_tps"), metric_of(metrics, "words")) == (2.0, 2.0)
    assert metric_of(metrics, "others") is None
    assert metric_of(metrics, "ttft_ms") is None


def test_a_sustained_run_goes_on_for_its_time_without_a_pause(rig: Rig) -> None:
    """It cools before the first run only, though each run heats the board again."""
    rig.write(ZONE, 52000)
    rig.behave(f"put {ZONE} 60000; sleep 0.2")
    rig.hear = lambda event: rig.write(ZONE, 40000) if isinstance(event, Cooling) else None
    result = rig.run(sustained=1.5, cool=CoolSpec(45.0, timeout=20.0), sample=0.1)
    assert result.error is None, result.error
    assert len([one for one in rig.events if isinstance(one, Cooling)]) == 1
    records = result.records
    assert len(records) >= 2
    took = [one.seconds for one in records[:-1] if one.seconds is not None]
    assert len(took) == len(records) - 1
    assert sum(took) < 1.5
    ups = [one.conditions.before.uptime for one in records if one.conditions.before]
    assert None not in ups
    assert [one.conditions.before.zones["nspss-0"] for one in records if one.conditions.before][
        :2
    ] == [40.0, 60.0]


def test_until_on_a_board(rig: Rig) -> None:
    rig.behave("rate=10.0")
    result = rig.run(until=UntilSpec(0.03), sample=None)
    assert len(result.records) == 5
    text = "after 5 runs, the confidence interval of decode_tps is 0.0% wide"
    assert text in rig.said(StepStarted)
    assert rig.said(Warned) == []


def conditions(
    *looks: tuple[float, float], governor: str = "performance", limit: float = 2.4e9
) -> Conditions:
    """Looks as (°C, Hz) of one zone and one clock; the first is before, the last after."""
    samples = [
        Sample(float(at), {"cpuss-0": heat, "battery": 30.0}, {"cpu:policy0": hz})
        for at, (heat, hz) in enumerate(looks)
    ]
    return Conditions(
        before=samples[0],
        during=tuple(samples[1:-1]),
        after=samples[-1],
        governors={"cpu:policy0": governor},
        limits={"cpu:policy0": limit},
        maxima={"cpu:policy0": 2.4e9},
    )


UP, LOW = 2.4e9, 1.5e9
FELL = ("throttled: the clock of cpu:policy0 fell to 1.50 of 2.40 GHz at 81 °C",)
CLOCKS = [
    ([(50, UP), (70, UP), (80, LOW), (81, LOW)], {}, FELL),
    ([(50, UP), (70, UP), (80, LOW), (81, UP)], {}, ()),  # one look is not enough
    ([(50, UP), (51, UP), (52, LOW), (52, LOW)], {}, ()),  # not hot
    ([(50, LOW), (70, LOW), (80, LOW), (81, LOW)], {}, ()),  # it never was at its limit
    ([(50, UP), (70, UP), (80, LOW), (81, LOW)], {"governor": "schedutil"}, ()),
    ([(50, LOW)] * 4, {"limit": LOW}, ("capped: cpu:policy0 at 1.50 of 2.40 GHz",)),
]


@pytest.mark.parametrize(("looks", "changes", "marks"), CLOCKS)
def test_a_clock_that_falls(
    looks: list[tuple[float, float]], changes: dict[str, object], marks: tuple[str, ...]
) -> None:
    one = record(seen=conditions(*looks, **changes))  # type: ignore[arg-type]
    assert marks_of(one, []) == marks


def at(heat: float, rate: float) -> Record:
    return record(rate, seen=conditions((heat, UP), (heat, UP), governor="schedutil"))


AGAINST = "since the first 3 runs, while the device warmed from 51 °C to 60 °C"
FIRST = [at(50, 10.0), at(51, 10.1), at(52, 9.9)]
RATES = [
    (at(60, 8.0), (f"throttled: decode_tps fell by 20% {AGAINST}",)),
    (at(60, 9.5), ()),  # too little
    (at(53, 8.0), ()),  # hardly hotter
    (at(60, 12.0), ()),  # faster
    (record(8.0), ()),  # no temperature
    (record(None, seen=conditions((60, UP), (60, UP), governor="x")), ()),  # no rate
]  # fmt: skip


@pytest.mark.parametrize(("one", "marks"), RATES)
def test_a_rate_that_falls_while_it_gets_hotter(one: Record, marks: tuple[str, ...]) -> None:
    assert marks_of(one, FIRST) == marks
    assert marks_of(one, FIRST[:2]) == (), "two runs are no measure"
    assert marks_of(one, [record(problems=("timeout",))] * 3) == ()


def test_a_time_gets_longer() -> None:
    first = [record(v, seen=one.conditions) for v, one in zip((5.0, 5.1, 4.9), FIRST, strict=True)]
    slow = record(6.0, seen=at(60, 1).conditions)
    named = [one.metrics.others["words"] for one in first]
    assert len(named) == 3
    assert marks_of(slow, first) == (), "a higher rate is no throttling"

    def timed(one: Record) -> Record:
        value = one.metrics.others["words"]
        metrics = Metrics(others={"step_ms": value})
        return structs.replace(one, metrics=metrics)

    found = marks_of(timed(slow), [timed(one) for one in first], "step_ms")
    assert found == (f"throttled: step_ms rose by 20% {AGAINST}",)
    assert marks_of(timed(at(60, 4.0)), [timed(one) for one in first], "step_ms") == ()


def test_a_limit_that_falls_while_it_cools_is_somebody_elses() -> None:
    before = Sample(0.0, {"cpuss-0": 60.0})
    cooler = Sample(1.0, {"cpuss-0": 50.0}, limits={"cpu:policy0": 1.2e9})
    seen = Conditions(before=before, during=(cooler,), limits={"cpu:policy0": 2.4e9})
    assert marks_of(record(seen=seen), []) == ()
    hotter = Sample(1.0, {"cpuss-0": 70.0}, limits={"cpu:policy0": 1.2e9})
    seen = Conditions(before=before, during=(hotter,), limits={"cpu:policy0": 2.4e9})
    assert marks_of(record(seen=seen), [])[0].startswith(
        "throttled: the clock limit of cpu:policy0"
    )


@pytest.mark.parametrize(
    ("rates", "runs"),
    [
        ([9.0, 9.1, 5.0], 2),
        ([5.0, 9.0, 8.9], 3),
        ([5.0, 8.0, 9.0, 9.5], 4),
        ([9.0, 8.0, 7.0, 6.0, 5.0], 4),
    ],
)
def test_two_to_four_warm_ups(rates: list[float], runs: int) -> None:
    run = RunSpec(warmups=2, settle=2)
    records = [record(rate) for rate in rates]
    assert next(count for count in range(5) if warm(run, records[:count])) == runs
    assert warm(replace(run, settle=0), records[:2])
    assert warm(RunSpec(), [])
