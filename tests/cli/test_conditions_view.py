"""Conditions as a line; records are plain data, maybe of an older fleet."""

from __future__ import annotations

from dataclasses import asdict

from fleet.cli.measured import conditions_line
from fleet.model.conditions import Conditions, Sample


def look(at: float, heat: float) -> Sample:
    return Sample(at, {"nspss-0": heat, "battery": 99.0})


def test_a_line_of_several_runs() -> None:
    first = Conditions(
        look(0, 41.3), (look(1, 61.04),), look(2, 50), governors={"cpu:policy0": "performance"},
        power={"usb": "online", "battery": "Charging"}, cost=0.0014,
    )  # fmt: skip
    second = Conditions(look(0, 52.0), (), look(2, 52.0), cost=0.0021)
    records = [{"conditions": asdict(one)} for one in (first, second)]
    assert conditions_line(records) == (
        "temperature at the start 41.3 to 52.0 °C (nspss-0), 61.0 °C peak; governor performance; "
        "power battery Charging, usb online; "
        "fleet used at most 0.21% of one CPU core to read temperature and clocks"
    )


def test_what_is_not_known_is_not_said() -> None:
    assert conditions_line([{"conditions": asdict(Conditions())}]) == ""
    assert conditions_line([{}]) == ""
    cold = Conditions(before=Sample(0.0), after=look(1, 40.0))
    assert conditions_line([{"conditions": asdict(cold)}]) == ""
    alone = Conditions(before=look(0, 40.0))
    assert (
        conditions_line([{"conditions": asdict(alone)}])
        == "temperature at the start 40.0 °C (nspss-0)"
    )
