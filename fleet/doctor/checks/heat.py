"""Whether the device is so hot that what it does now is slower than what it can."""

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


def heat(seen: Seen) -> Iterator[Check]:
    """The compute zones are below the temperature at which clocks are lowered."""
    zones = {zone.type or zone.name: zone.celsius for zone in seen.facts.thermal}
    found = hottest({name: celsius for name, celsius in zones.items() if celsius is not None})
    if found is None:
        yield _HEAT.unknown("fleet cannot read the temperature of the device")
        return
    said = f"{found.zone} {found.celsius:.0f} °C"
    if found.celsius < HOT_CELSIUS:
        yield _HEAT.ok(said, {"device.heat": "ok"}, _ZONES, said)
        return
    text = f"{said}: from {HOT_CELSIUS:.0f} °C the chip lowers its clocks{_limited(seen)}"
    yield _HEAT.warn(text, {"device.heat": "hot"}, _ZONES, said)


def _limited(seen: Seen) -> str:
    """The CPU clock that is held down most, as a share of what it can do."""
    shares = {
        name: int(limit) / int(most)
        for name, limit, most in (row for row in seen.pairs("clock") if len(row) == 3)
        if limit.isdecimal() and most.isdecimal() and int(most)
    }
    name = min(shares, key=lambda policy: shares[policy], default="")
    return f"; {name} runs at {shares[name]:.0%}" if name and shares[name] < 1 else ""
