"""How a deploy goes over many devices: canary, waves, what may go wrong, what then."""

from __future__ import annotations

import itertools
import re
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Literal, get_args

from fleet.model.errors import InputError

OnFail = Literal["stop", "continue", "rollback"]
ON_FAIL: tuple[str, ...] = get_args(OnFail)
_AMOUNT = re.compile(r"([0-9]{1,9})(?:(\.[0-9]{1,3})?\s*(%))?")


@dataclass(frozen=True)
class Amount:
    """`3` devices, or `12.5%` of them; exact, so that rounding is the same everywhere."""

    number: Fraction
    percent: bool = False

    @staticmethod
    def parse(text: str | int) -> Amount:
        """From `3`, `"3"` or `"12.5%"`. Raises InputError for anything else, and above 100%."""
        match = None if isinstance(text, bool) else _AMOUNT.fullmatch(str(text).strip())
        if match is None:
            raise InputError(
                f"'{text}' is neither a number of devices nor a percentage",
                hint='write a count like 3, or a percentage like "10%"',
            )
        found = Amount(Fraction(match[1] + (match[2] or "")), bool(match[3]))
        if found.percent and found.number > 100:
            raise InputError(f"{text} is more than 100% of the devices", hint="write 100% or less")
        return found

    def of(self, total: int, *, up: bool = False) -> int:
        """How many of `total` devices; fractions are cut off, or rounded up with `up`."""
        exact = self.number * total / 100 if self.percent else self.number
        whole = -(-exact.numerator // exact.denominator) if up else int(exact)
        return min(whole, total)

    def __str__(self) -> str:
        plain = f"{float(self.number):g}" if self.number.denominator > 1 else f"{self.number}"
        return f"{plain}%" if self.percent else plain


NONE = Amount(Fraction(0))


def is_amount(text: str) -> bool:
    """True for `2`, `10%`, and `200%`, which is a wrong amount and no host pattern."""
    return bool(_AMOUNT.fullmatch(text.strip()))


@dataclass(frozen=True)
class RolloutSpec:
    """The `rollout:` section.

    `canary` is how many of the first devices, `canary_hosts` are patterns of the inventory
    instead. `waves` are cumulative: how much of all devices has it when the wave has ended.
    `max_failed` and `max_unreachable` count within a wave. `soak` seconds, 0 for none.
    """

    canary: Amount = NONE
    canary_hosts: tuple[str, ...] = ()
    waves: tuple[Amount, ...] = ()
    max_failed: Amount = NONE
    max_unreachable: Amount = NONE
    soak: float = 0.0
    on_fail: OnFail = "stop"

    def as_dict(self) -> dict[str, Any]:
        """Plain data for JSON."""
        return {
            "canary": str(self.canary),
            "canary_hosts": list(self.canary_hosts),
            "waves": [str(wave) for wave in self.waves],
            "max_failed": str(self.max_failed),
            "max_unreachable": str(self.max_unreachable),
            "soak": self.soak,
            "on_fail": self.on_fail,
        }

    @staticmethod
    def from_dict(data: dict[str, Any]) -> RolloutSpec:
        """What as_dict() gave. Raises InputError, KeyError or TypeError for other data."""
        return RolloutSpec(
            canary=Amount.parse(data["canary"]),
            canary_hosts=tuple(data["canary_hosts"]),
            waves=tuple(Amount.parse(wave) for wave in data["waves"]),
            max_failed=Amount.parse(data["max_failed"]),
            max_unreachable=Amount.parse(data["max_unreachable"]),
            soak=float(data["soak"]),
            on_fail=parse_on_fail(data["on_fail"]),
        )


# A playbook without `rollout:`: everything is attempted, whatever fails.
ALL_AT_ONCE = RolloutSpec(on_fail="continue")


def parse_on_fail(text: str) -> OnFail:
    """One of the three words; InputError otherwise."""
    for word in get_args(OnFail):
        if text == word:
            return word  # type: ignore[no-any-return]
    raise InputError(
        f"'{text}' is not a value of on_fail: fleet cannot do this when a wave fails",
        hint=f"use one of: {', '.join(ON_FAIL)}",
    )


def check_rising(waves: tuple[Amount, ...]) -> None:
    """Waves are cumulative: each must bring more than the one before. Raises InputError.

    Counts and percentages can only be compared when the devices are known.
    """
    if any(wave.number == 0 for wave in waves):
        raise InputError("a wave cannot have 0 devices", hint="remove the 0 from the list of waves")
    for before, after in itertools.pairwise(waves):
        if before.percent == after.percent and after.number <= before.number:
            raise InputError(
                f"wave {after} follows wave {before}, but adds no device",
                hint="write increasing shares of all devices, one per wave: [5%, 25%, 100%]",
            )
