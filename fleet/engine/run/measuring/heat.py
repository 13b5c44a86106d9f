"""Which thermal zone counts, and how hot it is."""

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
    """The hottest zone of those that count, in °C."""

    zone: str
    celsius: float


def matching(zones: Mapping[str, object], zone: str = AUTO) -> list[str]:
    """Names of the zones that count: a name, a glob, or `auto`.

    `auto` takes those of NPU, CPU and SoC, and all where none is called so.
    """
    if zone in zones:
        return [zone]
    if zone != AUTO:
        return [name for name in zones if fnmatch.fnmatchcase(name, zone)]
    return [name for name in zones if _COMPUTE.match(name)] or list(zones)


def hottest(zones: Mapping[str, float], zone: str = AUTO) -> Heat | None:
    """The hottest of them; None where none has a temperature."""
    found = [Heat(name, zones[name]) for name in matching(zones, zone)]
    return max(found, key=lambda heat: heat.celsius, default=None)


def heat_of(sample: Sample | None) -> float | None:
    """°C at the compute in one look; None where it is unknown."""
    found = hottest(sample.zones) if sample else None
    return found.celsius if found else None


def peak(conditions: Conditions) -> float | None:
    """The highest °C at the compute in any look of a run."""
    found = [heat for sample in conditions.samples if (heat := heat_of(sample)) is not None]
    return max(found, default=None)
