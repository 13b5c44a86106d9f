"""Conditions as a line; records are plain data, maybe of an older fleet."""

from __future__ import annotations

import pytest
from msgspec import to_builtins

from fleet.cli.measured import _conditions, conditions_line
from fleet.model.conditions import Conditions, Sample


def look(at: float, heat: float) -> Sample:
    return Sample(at, {"nspss-0": heat, "battery": 99.0})


def test_a_line_of_several_runs() -> None:
    first = Conditions(
        look(0, 41.3), (look(1, 61.04),), look(2, 50), governors={"cpu:policy0": "performance"},
        power={"usb": "online", "battery": "Charging"}, cost=0.0014,
    )  # fmt: skip
    second = Conditions(look(0, 52.0), (), look(2, 52.0), cost=0.0021)
    records = [{"conditions": to_builtins(one)} for one in (first, second)]
    assert conditions_line(records) == (
        "temperature at the start 41.3 to 52.0 °C (nspss-0), 61.0 °C peak; governor performance; "
        "power battery Charging, usb online; "
        "fleet used at most 0.21% of one CPU core to read temperature and clocks"
    )


def test_what_is_not_known_is_not_said() -> None:
    assert conditions_line([{"conditions": to_builtins(Conditions())}]) == ""
    assert conditions_line([{}]) == ""
    cold = Conditions(before=Sample(0.0), after=look(1, 40.0))
    assert conditions_line([{"conditions": to_builtins(cold)}]) == ""
    alone = Conditions(before=look(0, 40.0))
    assert (
        conditions_line([{"conditions": to_builtins(alone)}])
        == "temperature at the start 40.0 °C (nspss-0)"
    )


def test_what_is_the_same_on_devices_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    def of(heat: float, cost: float) -> list[dict[str, object]]:
        return [{"conditions": to_builtins(Conditions(before=look(0, heat), cost=cost))}]

    _conditions({"evk-1": of(40, 0.0009), "evk-2": of(40, 0.001), "evk-3": of(52, 0.0001)})
    first, second = capsys.readouterr().err.replace("\n", " ").split("evk-3: ")
    assert first.startswith("evk-1, evk-2: temperature at the start 40.0 °C (nspss-0); ")
    assert "at most 0.10% of one CPU core" in first
    assert second.startswith("temperature at the start 52.0 °C")
    _conditions({f"evk-{n}": of(40, 0.001) for n in range(40)})
    assert capsys.readouterr().err.startswith("all devices: temperature at the start 40.0 °C")
