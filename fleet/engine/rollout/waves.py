"""The assignment of devices to waves: names and a spec in, waves out."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from msgspec import Struct, field

from fleet.model.rollout import RolloutSpec

CANARY = "canary"


class Wave(Struct, frozen=True):
    """A group of devices that are deployed together. `name` is `canary`, `1`, `2`, ..."""

    name: str = field(name="wave")
    hosts: tuple[str, ...]

    @property
    def title(self) -> str:
        """The title `the canary` or `wave 2`."""
        return "the canary" if self.name == CANARY else f"wave {self.name}"

    @property
    def strict(self) -> bool:
        """True for the canary, where nothing may fail whatever the limits are."""
        return self.name == CANARY


def plan_waves(
    names: Sequence[str], spec: RolloutSpec, canaries: Collection[str] = ()
) -> tuple[Wave, ...]:
    """Return waves that contain every name once, in the order of `names`; `canaries` come first.

    Without `canaries` the canary consists of the first names (a percentage is rounded up). A wave
    ends at its share of all names, including the canary, rounded up. A wave without new names is
    left out. Names that no wave covers form another wave.
    """
    chosen = set(canaries)
    order = [name for name in names if name in chosen] + [
        name for name in names if name not in chosen
    ]
    first = len(chosen) if chosen else spec.canary.of(len(order), up=True)
    waves = [Wave(CANARY, tuple(order[:first]))] if first else []
    done = first
    for share in (*(wave.of(len(order), up=True) for wave in spec.waves), len(order)):
        if share > done:
            number = len(waves) + 1 - bool(first)
            waves.append(Wave(str(number), tuple(order[done:share])))
            done = share
    return tuple(waves)
