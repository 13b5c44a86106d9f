"""The thermal zones that count, and their temperatures."""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, NamedTuple

from fleet.model.gates import AUTO

if TYPE_CHECKING:
    from fleet.model.conditions import Conditions, Sample

# Types of zones at the compute of an SoC, as boards show them: nspss-0, nsphvx-0, cpuss-1,
# cpu-1-0, gpuss-0, aoss-0, tsens_tz_sensor4, soc-thermal. Not `soc`: that is Qualcomm's battery.
_COMPUTE = re.compile(
    r"(nsp|npu|cdsp|q6|hvx|hmx|hexagon|cpu|cluster|apc|gpu|aoss|tsens|soc[-_]|x86_pkg)",
    re.IGNORECASE,
)


class Heat(NamedTuple):
    """The hottest of the zones that count, in °C."""

    zone: str
    celsius: float


def matching(zones: Mapping[str, object], zone: str = AUTO) -> list[str]:
    """Return the names of the zones that count: a name, a glob or `auto`.

    `auto` matches the zones of NPU, CPU and SoC, or all zones if no name is like that.
    """
    if zone in zones:
        return [zone]
    if zone != AUTO:
        return [name for name in zones if fnmatch.fnmatchcase(name, zone)]
    return [name for name in zones if _COMPUTE.match(name)] or list(zones)


def hottest(zones: Mapping[str, float], zone: str = AUTO) -> Heat | None:
    """Return the hottest matching zone; None if no zone has a temperature."""
    heats = [Heat(name, zones[name]) for name in matching(zones, zone)]
    return max(heats, key=lambda heat: heat.celsius, default=None)


def heat_of(sample: Sample | None) -> float | None:
    """Return the °C at the compute cores in one sample; None if unknown."""
    heat = hottest(sample.zones) if sample else None
    return heat.celsius if heat else None


def peak(conditions: Conditions) -> float | None:
    """Return the highest °C at the compute cores in any sample of a run; None if unknown."""
    heats = [heat for sample in conditions.samples if (heat := heat_of(sample)) is not None]
    return max(heats, default=None)
