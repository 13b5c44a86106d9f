"""Which device is in which wave: names and a spec in, waves out, nothing else."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from msgspec import Struct, field

from fleet.model.rollout import RolloutSpec

CANARY = "canary"


class Wave(Struct, frozen=True):
    """Devices that are worked on together. `name` is `canary`, `1`, `2`, ..."""

    name: str = field(name="wave")
    hosts: tuple[str, ...]

    @property
    def title(self) -> str:
        """`the canary`, `wave 2`."""
        return "the canary" if self.name == CANARY else f"wave {self.name}"

    @property
    def strict(self) -> bool:
        """True where nothing may go wrong, whatever the limits are: in the canary."""
        return self.name == CANARY


def plan_waves(
    names: Sequence[str], spec: RolloutSpec, canaries: Collection[str] = ()
) -> tuple[Wave, ...]:
    """Every name in exactly one wave, in the order of `names`; `canaries` come first.

    Without `canaries` the canary is the first of the names (a percentage is rounded up).
    A wave ends where its share of all names is reached, canary included, rounded up; one that
    brings nothing is left out; what no wave covers is one more.
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
