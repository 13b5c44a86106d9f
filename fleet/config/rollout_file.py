"""The shape of `rollout:` in a playbook."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field, PlainValidator, WithJsonSchema

from fleet.config.fields import Duration, Strict, no_template, told, wrong
from fleet.config.yamlpos import describe
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
        raise wrong(f"the value must be a count or a percentage, not {describe(value)}", _HINT)
    return told(Amount.parse)(value)


def _waves(value: object) -> tuple[Amount, ...]:
    if not isinstance(value, list):
        raise wrong(f"'waves' must be a list, not {describe(value)}", "write it like [5%, 50%]")
    found = tuple(_amount(amount) for amount in value)
    told(check_rising)(found)
    return found


def _canary(value: object) -> Amount | tuple[str, ...]:
    words = value if isinstance(value, list) else [value]
    if isinstance(value, int) and not isinstance(value, bool):
        return _amount(value)
    if isinstance(value, str) and is_amount(value):
        return _amount(value)
    if not words or not all(isinstance(word, str) and word.strip() for word in words):
        raise wrong(
            f"'canary' must be a count, a percentage or host patterns, not {describe(value)}",
            "write it like 1, 5%, evk-01, or [evk-01, 'iq9[0]']",
        )
    return tuple(no_template(str(word)) for word in words)


AmountField = Annotated[Amount, PlainValidator(_amount), WithJsonSchema(_AMOUNT)]


class RolloutBody(Strict):
    """How a deploy goes over many devices."""

    canary: Annotated[
        Amount | tuple[str, ...],
        PlainValidator(_canary),
        WithJsonSchema(
            {
                "anyOf": [
                    {"type": "integer", "minimum": 0},
                    {"type": "string", "minLength": 1},
                    {"type": "array", "minItems": 1, "items": {"type": "string", "minLength": 1}},
                ]
            }
        ),
    ] = Field(
        default=NONE,
        description="Devices before all others: a count or percentage (the first of them), or "
        "host patterns.",
    )
    waves: Annotated[
        tuple[Amount, ...],
        PlainValidator(_waves),
        WithJsonSchema({"type": "array", "items": _SHARE}),
    ] = Field(
        default=(),
        description="Share of all devices that is done after each wave, canary included; the "
        "rest is the last wave.",
    )
    max_failed: AmountField = Field(
        default=NONE,
        description="How many devices of a wave may fail; a percentage is rounded down.",
    )
    max_unreachable: AmountField = Field(
        default=NONE,
        description="How many devices of a wave may be out of reach; they do not count as failed.",
    )
    soak: Duration | None = Field(
        default=None,
        description="Wait this long after each wave, then check its devices again: 90s, 5m, 1h.",
    )
    on_fail: Literal["stop", "continue", "rollback"] = Field(
        default="stop",
        description="After too many failures in a wave: stop, continue, or roll back the "
        "devices of this run.",
    )

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
