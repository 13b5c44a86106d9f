"""The check of the temperature: a hot device lowers its clocks."""

from __future__ import annotations

from collections.abc import Iterator

from fleet.doctor.checks.making import Maker
from fleet.doctor.seen import Seen
from fleet.engine.run.measuring.heat import hottest
from fleet.model.diagnosis import Check

# The first passive trip point of the CPUs of SC7280 (QCS6490): torvalds/linux
# arch/arm64/boot/dts/qcom/sc7280.dtsi, cpu0_alert0. Other chips begin higher.
HOT_CELSIUS = 90.0
_HEAT = Maker("heat", "session")
_ZONES = "for z in /sys/class/thermal/thermal_zone*; do echo $(cat $z/type $z/temp); done"


def heat(sample: Seen) -> Iterator[Check]:
    """The compute zones are below the temperature at which clocks are lowered."""
    zones = {zone.type or zone.name: zone.celsius for zone in sample.facts.thermal}
    hot_zone = hottest({name: celsius for name, celsius in zones.items() if celsius is not None})
    if hot_zone is None:
        yield _HEAT.unknown("fleet cannot read the temperature of the device")
        return
    output = f"{hot_zone.zone} {hot_zone.celsius:.0f} °C"
    if hot_zone.celsius < HOT_CELSIUS:
        yield _HEAT.ok(output, {"device.heat": "ok"}, _ZONES, output)
        return
    text = f"{output}: from {HOT_CELSIUS:.0f} °C the chip lowers its clocks{_limited(sample)}"
    yield _HEAT.warn(text, {"device.heat": "hot"}, _ZONES, output)


def _limited(sample: Seen) -> str:
    """Return a text about the most limited CPU clock, as a share of its maximum; "" for none."""
    shares = {
        name: int(limit) / int(most)
        for name, limit, most in (row for row in sample.pairs("clock") if len(row) == 3)
        if limit.isdecimal() and most.isdecimal() and int(most)
    }
    name = min(shares, key=lambda policy: shares[policy], default="")
    return f"; {name} runs at {shares[name]:.0%}" if name and shares[name] < 1 else ""
