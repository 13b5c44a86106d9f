"""The order of a deploy over many devices: canary, waves, allowed failures, and the reaction."""

from __future__ import annotations

import itertools
import re
from fractions import Fraction
from typing import Literal, get_args

from msgspec import Struct

from fleet.model.errors import InputError

OnFail = Literal["stop", "continue", "rollback"]
ON_FAIL: tuple[str, ...] = get_args(OnFail)
_AMOUNT = re.compile(r"([0-9]{1,9})(?:(\.[0-9]{1,3})?\s*(%))?")


class Amount(str):
    """A number of devices, `3` or `12.5%`. It is exact, so that rounding is the same everywhere."""

    __slots__ = ()

    @property
    def percent(self) -> bool:
        """True for a share of all devices."""
        return self.endswith("%")

    @property
    def number(self) -> Fraction:
        """The count, or the percentage."""
        return Fraction(self.removesuffix("%"))

    @classmethod
    def parse(cls, text: str | int) -> Amount:
        """Parse `3`, `"3"` or `"12.5%"`. Raises InputError for anything else, and above 100%."""
        match = None if isinstance(text, bool) else _AMOUNT.fullmatch(str(text).strip())
        if match is None:
            raise InputError(
                f"'{text}' is neither a number of devices nor a percentage",
                hint='write a count like 3, or a percentage like "10%"',
            )
        number = Fraction(match[1] + (match[2] or ""))
        plain = f"{float(number):g}" if number.denominator > 1 else f"{number}"
        amount = cls(plain + (match[3] or ""))
        if amount.percent and amount.number > 100:
            raise InputError(f"{text} is more than 100% of the devices", hint="write 100% or less")
        return amount

    def of(self, total: int, *, up: bool = False) -> int:
        """Return the number out of `total` devices. Fractions are dropped, or rounded up
        with `up`.
        """
        exact = self.number * total / 100 if self.percent else self.number
        whole = -(-exact.numerator // exact.denominator) if up else int(exact)
        return min(whole, total)


NONE = Amount("0")


def is_amount(text: str) -> bool:
    """Return True for `2`, `10%`, and also `200%`, which is an invalid amount but no host
    pattern.
    """
    return bool(_AMOUNT.fullmatch(text.strip()))


class RolloutSpec(Struct, frozen=True):
    """The `rollout:` section.

    `canary` is the number of first devices; `canary_hosts` are patterns of the inventory instead.
    `waves` are cumulative: the share of all devices that has the release after the wave.
    `max_failed` and `max_unreachable` count within a wave. `soak` is in seconds, 0 for none.
    """

    canary: Amount = NONE
    canary_hosts: tuple[str, ...] = ()
    waves: tuple[Amount, ...] = ()
    max_failed: Amount = NONE
    max_unreachable: Amount = NONE
    soak: float = 0.0
    on_fail: OnFail = "stop"


# For a playbook without `rollout:`: every device is attempted, whatever fails.
ALL_AT_ONCE = RolloutSpec(on_fail="continue")


def parse_on_fail(text: str) -> OnFail:
    """Return one of the three words. Raises InputError for another one."""
    for word in get_args(OnFail):
        if text == word:
            return word  # type: ignore[no-any-return]
    raise InputError(
        f"'{text}' is not a value of on_fail: fleet cannot do this when a wave fails",
        hint=f"use one of: {', '.join(ON_FAIL)}",
    )


def check_rising(waves: tuple[Amount, ...]) -> None:
    """Raise InputError unless each wave adds devices. Waves are cumulative.

    Counts and percentages can only be compared after the devices are known.
    """
    if any(wave.number == 0 for wave in waves):
        raise InputError("a wave cannot have 0 devices", hint="remove the 0 from the list of waves")
    for before, after in itertools.pairwise(waves):
        if before.percent == after.percent and after.number <= before.number:
            raise InputError(
                f"wave {after} follows wave {before}, but adds no device",
                hint="write increasing shares of all devices, one per wave: [5%, 25%, 100%]",
            )
