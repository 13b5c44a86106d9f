"""Under which conditions a run was measured: heat, clocks, power, load."""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct, field

from fleet.model.plain import Number


class Sample(Struct, frozen=True):
    """One look at the device. `at`: seconds since the run began, below 0 before it.

    `zones`: name of the thermal zone → °C. `clocks`: `cpu:policy0`, `devfreq:<name>` → Hz as it
    is now. `load`: the average over one minute. What the device does not tell is not there.
    `limits`: only clocks whose limit is another one than before the run, in Hz.
    """

    at: Number = 0.0
    zones: Mapping[str, Number] = field(default_factory=dict)
    clocks: Mapping[str, Number] = field(default_factory=dict)
    load: Number | None = None
    uptime: Number | None = None
    limits: Mapping[str, Number] = field(default_factory=dict)

    @property
    def hottest(self) -> float | None:
        """°C of the hottest zone."""
        return max(self.zones.values(), default=None)


class Conditions(Struct, frozen=True):
    """What was so before, during and after one run. Empty where nothing was asked.

    `governors`: clock → governor; `limits`: clock → Hz at most (scaling_max_freq, max_freq)
    before the run; `maxima`: clock → Hz that the hardware could do (cpuinfo_max_freq).
    `power`: supply → what it says (`Charging`, `online`, `offline`). `boot_id` before,
    `boot_id_after`: not the same where the device started anew. `cost`: the share of one CPU
    that the looks took (0.01 is one percent); None where it is not known.
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
        """True where the device certainly started anew in between."""
        return bool(self.boot_id and self.boot_id_after) and self.boot_id != self.boot_id_after

    @property
    def samples(self) -> tuple[Sample, ...]:
        """All looks in their order."""
        first = (self.before,) if self.before else ()
        return (*first, *self.during, *((self.after,) if self.after else ()))
