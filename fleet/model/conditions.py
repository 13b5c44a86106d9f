"""The conditions of a measured run: heat, clocks, power, load."""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct, field

from fleet.model.plain import Number


class Sample(Struct, frozen=True):
    """A sample of the device. `at` is in seconds since the start of the run, negative before it.

    `zones` maps thermal zones to °C, `clocks` maps `cpu:policy0` or `devfreq:<name>` to the current
    Hz. `load` is the average over one minute. Values that the device does not report are left out.
    `limits` are in Hz, only of clocks whose limit has changed since before the run.
    """

    at: Number = 0.0
    zones: Mapping[str, Number] = field(default_factory=dict)
    clocks: Mapping[str, Number] = field(default_factory=dict)
    load: Number | None = None
    uptime: Number | None = None
    limits: Mapping[str, Number] = field(default_factory=dict)

    @property
    def hottest(self) -> float | None:
        """The temperature of the hottest zone in °C."""
        return max(self.zones.values(), default=None)


class Conditions(Struct, frozen=True):
    """The conditions before, during and after one run. Empty if nothing was sampled.

    `governors` maps clocks to governors; `limits` maps clocks to their maximum Hz before the run
    (scaling_max_freq, max_freq); `maxima` maps clocks to the Hz of the hardware (cpuinfo_max_freq).
    `power` maps supplies to their state (`Charging`, `online`, `offline`). `boot_id` and
    `boot_id_after` differ if the device rebooted. `cost` is the share of one CPU that the samples
    took (0.01 is one percent), None if unknown.
    """

    before: Sample | None = None
    during: tuple[Sample, ...] = ()
    after: Sample | None = None
    governors: Mapping[str, str] = field(default_factory=dict)
    limits: Mapping[str, Number] = field(default_factory=dict)
    power: Mapping[str, str] = field(default_factory=dict)
    boot_id: str = ""
    boot_id_after: str = ""
    interval: Number | None = None
    cost: Number | None = None
    maxima: Mapping[str, Number] = field(default_factory=dict)

    @property
    def rebooted(self) -> bool:
        """True if the device certainly rebooted in between."""
        return bool(self.boot_id and self.boot_id_after) and self.boot_id != self.boot_id_after

    @property
    def samples(self) -> tuple[Sample, ...]:
        """The samples in order."""
        first = (self.before,) if self.before else ()
        return (*first, *self.during, *((self.after,) if self.after else ()))
