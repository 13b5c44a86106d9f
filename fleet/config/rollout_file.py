"""The shape of `rollout:` in a playbook."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from fleet.config.fields import Duration
from fleet.config.shape import Before, Body, Doc, Schema
from fleet.config.values import no_template
from fleet.config.yamlpos import describe
from fleet.model.errors import InputError
from fleet.model.rollout import NONE, Amount, RolloutSpec, check_rising, is_amount

_PERCENT = r"^\s*([0-9]{1,9}|(100|[0-9]{1,2})(\.[0-9]{1,3})?\s*%)\s*$"
_AMOUNT: dict[str, Any] = {
    "anyOf": [{"type": "integer", "minimum": 0}, {"type": "string", "pattern": _PERCENT}]
}
_SHARE: dict[str, Any] = {
    "anyOf": [{"type": "integer", "minimum": 1}, {"type": "string", "pattern": _PERCENT}]
}
_HINT = 'write a count like 3, or a percentage like "10%"'


def _amount(value: object) -> Amount:
    if isinstance(value, bool) or not isinstance(value, int | str):
        raise InputError(
            f"the value must be a count or a percentage, not {describe(value)}", hint=_HINT
        )
    return Amount.parse(value)


def _waves(value: object) -> tuple[Amount, ...]:
    if not isinstance(value, list):
        raise InputError(
            f"'waves' must be a list, not {describe(value)}", hint="write it like [5%, 50%]"
        )
    found = tuple(_amount(amount) for amount in value)
    check_rising(found)
    return found


def _canary(value: object) -> Amount | tuple[str, ...]:
    words = value if isinstance(value, list) else [value]
    if isinstance(value, int) and not isinstance(value, bool):
        return _amount(value)
    if isinstance(value, str) and is_amount(value):
        return _amount(value)
    if not words or not all(isinstance(word, str) and word.strip() for word in words):
        raise InputError(
            f"'canary' must be a count, a percentage or host patterns, not {describe(value)}",
            hint="write it like 1, 5%, evk-01, or [evk-01, 'iq9[0]']",
        )
    return tuple(no_template(str(word)) for word in words)


AmountField = Annotated[Amount, Before(_amount, final=True), Schema(_AMOUNT)]


class RolloutBody(Body, frozen=True, kw_only=True):
    """How a deploy goes over many devices."""

    canary: Annotated[
        Annotated[
            Amount | tuple[str, ...],
            Before(_canary, final=True),
            Schema(
                {
                    "anyOf": [
                        {"type": "integer", "minimum": 0},
                        {"type": "string", "minLength": 1},
                        {
                            "type": "array",
                            "minItems": 1,
                            "items": {"type": "string", "minLength": 1},
                        },
                    ]
                }
            ),
        ],
        Doc(
            "Devices before all others: a count or percentage (the first of them), or "
            "host patterns."
        ),
    ] = NONE
    waves: Annotated[
        Annotated[
            tuple[Amount, ...],
            Before(_waves, final=True),
            Schema({"type": "array", "items": _SHARE}),
        ],
        Doc(
            "Share of all devices that is done after each wave, canary included; the "
            "rest is the last wave."
        ),
    ] = ()
    max_failed: Annotated[
        AmountField, Doc("How many devices of a wave may fail; a percentage is rounded down.")
    ] = NONE
    max_unreachable: Annotated[
        AmountField,
        Doc("How many devices of a wave may be out of reach; they do not count as failed."),
    ] = NONE
    soak: Annotated[
        Duration | None,
        Doc("Wait this long after each wave, then check its devices again: 90s, 5m, 1h."),
    ] = None
    on_fail: Annotated[
        Literal["stop", "continue", "rollback"],
        Doc(
            "After too many failures in a wave: stop, continue, or roll back the "
            "devices of this run."
        ),
    ] = "stop"

    def spec(self) -> RolloutSpec:
        """What the engine works with."""
        named = self.canary if isinstance(self.canary, tuple) else ()
        return RolloutSpec(
            canary=NONE if isinstance(self.canary, tuple) else self.canary,
            canary_hosts=named,
            waves=self.waves,
            max_failed=self.max_failed,
            max_unreachable=self.max_unreachable,
            soak=self.soak or 0.0,
            on_fail=self.on_fail,
        )
