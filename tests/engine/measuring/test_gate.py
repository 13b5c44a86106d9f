"""The gate `cool` on a board that a test heats and cools."""

from __future__ import annotations

from fleet.model.errors import DeviceError
from fleet.model.events import Cooling, Event, StepStarted, Warned
from fleet.model.gates import CoolSpec

from .conftest import ZONE, Rig
from .test_conditions import cut

COOL = CoolSpec(45.0, timeout=20.0)


def test_it_waits_until_the_hottest_zone_is_cool(rig: Rig) -> None:
    """Each run heats the board again; the test cools it after two looks."""
    rig.behave(f"put {ZONE} 52000")
    rig.write("class/thermal/thermal_zone3/temp", 99000)  # ddr is none of auto's
    looks = 0

    def hear(event: Event) -> None:
        nonlocal looks
        if isinstance(event, Cooling):
            looks += 1
            if looks % 2 == 0:
                rig.write(ZONE, 44900)

    rig.hear = hear
    first, second = rig.run(cool=COOL, repeats=2).records
    assert looks == 2, "the first run found it cool, the second waited"
    seen = [one for one in rig.events if isinstance(one, Cooling)]
    assert (seen[0].zone, seen[0].celsius, seen[0].below) == ("nspss-0", 52.0, 45.0)
    assert 0 < seen[1].left < seen[0].left <= 20.0
    assert "nspss-0 is 52.0 °C, fleet waits until it is below 45 °C, at most 0:20 min" in rig.said(
        StepStarted
    )
    for one in (first, second):
        assert one.conditions.before is not None
        assert one.conditions.before.zones["nspss-0"] < 45.0
        assert one.marks == ()


def test_warm_ups_are_not_waited_for(rig: Rig) -> None:
    rig.write(ZONE, 52000)
    rig.hear = lambda event: rig.write(ZONE, 40000) if isinstance(event, Cooling) else None
    records = rig.run(cool=COOL, warmups=2).records
    assert [one.warmup for one in records] == [True, True, False]
    heats = [one.conditions.before.zones["nspss-0"] for one in records if one.conditions.before]
    assert heats == [52.0, 52.0, 40.0]


def test_a_cool_board_is_asked_once(rig: Rig) -> None:
    """The look that ends a run tells of the next one, too."""
    plain, gated = rig.run(repeats=3), rig.run(repeats=3, cool=COOL)
    assert [one.error for one in (plain, gated)] == [None, None]
    assert gated.round_trips == plain.round_trips + 1


def test_a_board_that_stays_warm_is_an_error_with_its_last_temperature(rig: Rig) -> None:
    rig.write(ZONE, 52000)
    rig.hear = lambda event: rig.write(ZONE, 51500) if isinstance(event, Cooling) else None
    result = rig.run(cool=CoolSpec(45.0, timeout=1.0))
    assert isinstance(result.error, DeviceError)
    last = 51.5 if any(isinstance(one, Cooling) for one in rig.events) else 52.0
    assert result.error.message == f"nspss-0 is {last} °C, not below 45 °C after 0:01 min"
    assert result.error.step == "cool"
    assert "otherwise: go on" in result.error.hint
    assert result.records == []


def test_records_of_before_stay_when_the_gate_gives_up(rig: Rig) -> None:
    rig.behave(f"put {ZONE} 52000")
    result = rig.run(cool=CoolSpec(45.0, timeout=0.3), repeats=3)
    assert isinstance(result.error, DeviceError)
    assert len(result.records) == 1
    assert result.records[0].counts


def test_going_on_marks_the_record(rig: Rig) -> None:
    rig.write(ZONE, 52000)
    result = rig.run(cool=CoolSpec(45.0, timeout=0.2, otherwise="go on"))
    assert result.error is None
    assert result.records[0].marks == (
        "started without cooling down: nspss-0 is 52.0 °C, not below 45 °C",
    )
    assert any("fleet runs the model anyway" in text for text in rig.said(Warned))


def test_a_named_zone_counts(rig: Rig) -> None:
    rig.write("class/thermal/thermal_zone3/temp", 99000)
    result = rig.run(cool=CoolSpec(45.0, "dd*", timeout=0.1))
    assert result.error is not None
    assert result.error.message.startswith("ddr is 99.0 °C")


def test_an_unknown_zone_lists_those_that_are_there(rig: Rig) -> None:
    result = rig.run(cool=CoolSpec(45.0, "nspss-9", otherwise="go on"))
    assert result.error is not None
    words = "no thermal zone 'nspss-9'; it has: nspss-0, nspss-1, cpuss-0, ddr"
    assert words in result.error.message
    assert result.records == []


def test_no_zone_at_all(rig: Rig) -> None:
    for number in range(4):
        for name in ("type", "temp"):
            (rig.root / f"sys/class/thermal/thermal_zone{number}/{name}").unlink()
    result = rig.run(cool=COOL)
    assert result.error is not None
    assert "cannot read any thermal zone" in result.error.message
    assert "otherwise: go on" in result.error.hint
    (record,) = rig.run(cool=CoolSpec(45.0, otherwise="go on")).records
    assert record.marks == ("started without cooling down: fleet could not read a temperature",)
    assert record.conditions.before is not None
    assert record.conditions.before.zones == {}


def test_a_zone_that_gives_no_temperature_is_not_cool(rig: Rig) -> None:
    rig.write(ZONE, "-274000")
    result = rig.run(cool=CoolSpec(45.0, "nspss-0"))
    assert result.error is not None
    assert "zone nspss-0 reports no temperature" in result.error.message


def test_a_link_that_breaks_while_cooling_is_made_anew(rig: Rig) -> None:
    rig.write(ZONE, 52000)
    looks = 0

    def hear(event: Event) -> None:
        nonlocal looks
        if isinstance(event, Cooling):
            looks += 1
            if looks == 1:
                cut(rig.lab)
            elif looks == 2:
                rig.write(ZONE, 40000)

    rig.hear = hear
    result = rig.run(cool=COOL)
    assert result.error is None, result.error
    assert looks == 2
    assert any("fleet tries again in" in text for text in rig.said(Warned))
    assert result.records[0].counts
