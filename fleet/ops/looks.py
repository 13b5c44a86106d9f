"""A parser for the output of conditions.sh: columns of a sample, then samples -> Conditions.

The kernel's interface has millidegrees Celsius (Documentation/driver-api/thermal/sysfs-api.rst),
but drivers use other values too. -274000 is THERMAL_TEMP_INVALID (include/linux/thermal.h),
2147483647 and 2147483 are INT_MAX, and 0 is a sensor that is off. Qualcomm's battery zones (`soc`,
`bcl-*`, `vbat`, `ibat`) contain percent, flags, volts and amperes. A number is therefore a
temperature from 1,000 to 200,000 (1 to 200 °C) or from -50,000 to -1,000. A smaller one may be
degrees, a percentage or a flag, and is unknown.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache

from msgspec.structs import replace

from fleet.device.shell import device_script
from fleet.facts.values import service_zones
from fleet.model.command import Command, script
from fleet.model.conditions import Conditions, Sample

LOOKS = ".looks"  # in the work folder of a run
MOST_SAMPLES = 300  # of one record; the file contains all of them
_HEAD = "fleet-look 1"
_CPU = "devices/system/cpu/cpufreq"
_TICKS = 100.0  # USER_HZ on every Linux with a Hexagon
_INTEGER = re.compile(r"-?[0-9]{1,10}")
_NUMBER = re.compile(r"[0-9]{1,10}(?:\.[0-9]{1,6})?")
_BOOT = re.compile(r"[0-9A-Za-z-]{8,64}")
_FIXED = 4  # words of a sample before its columns: tag, uptime, cost, load


@cache
def _with_looks(name: str) -> str:
    return device_script("conditions").argv[2] + device_script(name).argv[2]


def look_command() -> Command:
    """Return the command for one sample, as text for `conditions_of`."""
    return script(_with_looks("look"), "")


def run_command(every: float, *args: str) -> Command:
    """Return run.sh with its arguments; it samples the device every `every` seconds."""
    return script(_with_looks("run"), f"{every:g}", *args)


def zones_of(text: str) -> dict[str, float | None]:
    """Return every thermal zone of a sample → °C, None for a zone without a temperature."""
    read = _read(text)
    names = _zone_names(read)
    look = next(iter(read.looks), None)
    zones = _sample(look, read, names).zones if look else {}
    return {name: zones.get(name) for name in names.values()} or dict(read.android_zones("before"))


def celsius(text: str) -> float | None:
    """Return the °C of a thermal zone's value, None if it is not a temperature (see above)."""
    if not _INTEGER.fullmatch(text):
        return None
    milli = int(text)
    if 1_000 <= milli <= 200_000 or -50_000 <= milli <= -1_000:
        return milli / 1000
    return None


def hertz(text: str, factor: int) -> float | None:
    """Return a clock in Hz, None for 0 or no number. cpufreq has kHz (factor 1000), devfreq Hz."""
    hz = int(text) * factor if _INTEGER.fullmatch(text) else 0
    return float(hz) if hz > 0 else None


@dataclass
class _Read:
    """The answer of the device by lines."""

    columns: list[str] = field(default_factory=list)
    static: dict[str, str] = field(default_factory=dict)
    boots: list[str] = field(default_factory=list)
    looks: list[list[str]] = field(default_factory=list)
    service: dict[str, list[str]] = field(default_factory=dict)
    start: float | None = None

    def android_zones(self, tag: str) -> dict[str, float]:
        """Return the zones of Android's thermal service, for devices without other zones."""
        text = "\n".join(self.service.get(tag, ()))
        zones = service_zones({"thermalservice": [text]})
        return {
            zone.type: zone.celsius
            for zone in zones
            if zone.celsius is not None and celsius(f"{zone.celsius * 1000:.0f}") is not None
        }


def conditions_of(text: str, interval: float | None = None) -> Conditions:
    """Parse the lines of conditions.sh. Damaged lines are ignored; nothing raises.

    `interval` is the requested interval between two samples in seconds.
    """
    read = _read(text)
    names = _zone_names(read)
    samples = {tag: [_sample(words, read, names) for words in read.looks if words[0] == tag]
               for tag in ("before", "during", "after")}  # fmt: skip
    before = next(iter(samples["before"]), None)
    limits = before.limits if before else {}
    return Conditions(
        before=replace(before, limits={}) if before else None,
        during=tuple(_fallen(sample, limits) for sample in _thinned(samples["during"])),
        after=next((_fallen(sample, limits) for sample in samples["after"]), None),
        governors=dict(_static(read, "scaling_governor", "governor")),
        limits=limits,
        maxima={
            name: value
            for name, text in _static(read, "cpuinfo_max_freq", "")
            if (value := hertz(text, 1000)) is not None
        },
        power=_power(read.static),
        boot_id=read.boots[0] if read.boots else "",
        boot_id_after=read.boots[1] if len(read.boots) > 1 else "",
        interval=interval,
        cost=_cost(read),
    )


def _read(text: str) -> _Read:
    lines = text.splitlines()
    read = _Read()
    if _HEAD not in lines:
        return read
    for line in lines[lines.index(_HEAD) + 1 :]:
        tag, _, rest = line.partition(" ")
        if tag == "list":
            read.columns = rest.split()
        elif tag == "is":
            path, _, value = rest.partition(" ")
            read.static[path] = "".join(c for c in value if c.isprintable())[:64].strip()
        elif tag == "boot":
            read.boots.append(rest.strip() if _BOOT.fullmatch(rest.strip()) else "")
        elif tag == "start":
            read.start = _number(rest)
        elif tag == "service":
            which, _, line_of_it = rest.partition(" ")
            read.service.setdefault(which, []).append(line_of_it)
        elif tag in {"before", "during", "after"}:
            words = line.split()
            if len(words) == _FIXED + len(read.columns):
                read.looks.append(words)
    return read


def _number(text: str) -> float | None:
    return float(text) if _NUMBER.fullmatch(text) else None


def _zone_names(read: _Read) -> dict[str, str]:
    """Return folder of a zone → its type, with a number if several zones have that type."""
    types: dict[str, str] = {}
    for path in read.columns:
        if path.startswith("class/thermal/"):
            folder = path.split("/")[2]
            types[folder] = read.static.get(f"class/thermal/{folder}/type") or folder
    kinds = list(types.values())
    return {
        folder: kind
        if kinds.count(kind) == 1
        else f"{kind}#{folder.removeprefix('thermal_zone')}"
        for folder, kind in types.items()
    }  # fmt: skip


def clock_name(path: str) -> str:
    """Return `cpu:policy0` or `devfreq:<name>` for a path below /sys."""
    folder = path.rsplit("/", 2)[1]
    return f"cpu:{folder}" if path.startswith(_CPU) else f"devfreq:{folder}"


def _sample(words: Sequence[str], read: _Read, names: dict[str, str]) -> Sample:
    uptime = _number(words[1])
    zones: dict[str, float] = {}
    clocks: dict[str, float] = {}
    limits: dict[str, float] = {}
    for path, text in zip(read.columns, words[_FIXED:], strict=True):
        if path.startswith("class/thermal/"):
            value, into, name = celsius(text), zones, names[path.split("/")[2]]
        else:
            value = hertz(text, 1000 if path.startswith(_CPU) else 1)
            into = limits if path.endswith("max_freq") else clocks
            name = clock_name(path)
        if value is not None:
            into[name] = value
    zones = zones or read.android_zones(words[0])
    at = 0.0 if uptime is None or read.start is None else round(uptime - read.start, 2)
    return Sample(at, zones, clocks, _number(words[3]), uptime, limits)


def _fallen(sample: Sample, before: Mapping[str, float]) -> Sample:
    """Return the sample with only the limits that differ from those before the run."""
    other = {name: hz for name, hz in sample.limits.items() if before.get(name) != hz}
    return replace(sample, limits=other)


def _thinned(samples: list[Sample]) -> list[Sample]:
    step = -(-len(samples) // MOST_SAMPLES)
    return samples[:: max(1, step)]


def _static(read: _Read, cpu: str, devfreq: str) -> Iterator[tuple[str, str]]:
    for path, value in read.static.items():
        if path.rsplit("/", 1)[1] == (cpu if path.startswith(_CPU) else devfreq):
            yield clock_name(path), value


def _power(static: dict[str, str]) -> dict[str, str]:
    """Return supply → its status, or `online` and `offline` for a supply without a status."""
    power: dict[str, str] = {}
    for path, value in static.items():
        if not path.startswith("class/power_supply/"):
            continue
        name, what = path.split("/")[2:4]
        if what == "online":
            power.setdefault(name, {"1": "online", "0": "offline"}.get(value, value))
        elif what == "status":
            power[name] = value
    return power


def _cost(read: _Read) -> float | None:
    """Return the share of one CPU that the sampler and its `sleep` used; None if it is unknown."""
    last = next((words for words in reversed(read.looks) if words[0] == "during"), None)
    uptime = _number(last[1]) if last else None
    if last is None or uptime is None or read.start is None or uptime <= read.start:
        return None
    parts = last[2].split(":")
    if len(parts) != 5 or not _all_digits(parts[1:]):
        return None
    nanos, user, system, *kids = parts
    own = int(nanos) / 1e9 if _all_digits([nanos]) else (int(user) + int(system)) / _TICKS
    return round((own + sum(map(int, kids)) / _TICKS) / (uptime - read.start), 6)


def _all_digits(words: Iterable[str]) -> bool:
    return all(word.isascii() and word.isdigit() and len(word) <= 18 for word in words)
