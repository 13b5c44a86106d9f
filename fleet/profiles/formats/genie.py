"""Genie's profile JSON → metrics. Units are read, never assumed (deployment.md 3.5)."""

from __future__ import annotations

import json
import math
from typing import Any

from fleet.model.errors import RunnerError
from fleet.model.record import Metrics

_MILLISECONDS = {"us": 0.001, "ms": 1.0, "s": 1000.0, "ns": 0.000001}
_PER_SECOND = {"toks/sec", "tokens/sec", "tok/s", "tokens/s", ""}


def parse_profile(text: str) -> Metrics:
    """Metrics of a dialog. Several queries: rates and TTFT are averaged, tokens are summed.

    Raises RunnerError for text that is no Genie profile. A value with a unit that is not
    known is left out (None), not guessed.
    """
    try:
        data = json.loads(text)
    except ValueError as error:
        raise RunnerError(f"the profile is no JSON: {error}") from error
    if not isinstance(data, dict) or "components" not in data:
        raise RunnerError("the profile has no 'components': not a Genie profile")
    created: list[dict[str, Any]] = []
    queries: list[dict[str, Any]] = []
    for component in _dicts(data, "components"):
        for event in _dicts(component, "events"):
            kind = str(event.get("type", ""))
            if kind.endswith("_create"):
                created.append(event)
            elif kind.endswith("_query"):
                queries.append(event)
    return Metrics(
        init_ms=_mean([_time(event, "init-time") for event in created]),
        prompt_tokens=_sum([_number(event, "num-prompt-tokens") for event in queries]),
        prompt_tps=_mean([_rate(event, "prompt-processing-rate") for event in queries]),
        ttft_ms=_mean([_time(event, "time-to-first-token") for event in queries]),
        generated_tokens=_sum([_number(event, "num-generated-tokens") for event in queries]),
        decode_tps=_mean([_rate(event, "token-generation-rate") for event in queries]),
        decode_ms=_mean([_time(event, "token-generation-time") for event in queries]),
    )


def _dicts(holder: object, key: str) -> list[dict[str, Any]]:
    items = holder.get(key) if isinstance(holder, dict) else None
    return [item for item in items if isinstance(item, dict)] if isinstance(items, list) else []


def _number(event: dict[str, Any], key: str) -> float | None:
    holder = event.get(key)
    value = holder.get("value") if isinstance(holder, dict) else None
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        return None
    return float(value)


def _unit(event: dict[str, Any], key: str) -> str:
    holder = event.get(key)
    return str(holder.get("unit", "")) if isinstance(holder, dict) else ""


def _time(event: dict[str, Any], key: str) -> float | None:
    value, factor = _number(event, key), _MILLISECONDS.get(_unit(event, key))
    return value * factor if value is not None and factor is not None else None


def _rate(event: dict[str, Any], key: str) -> float | None:
    return _number(event, key) if _unit(event, key) in _PER_SECOND else None


def _mean(values: list[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if known else None


def _sum(values: list[float | None]) -> int | None:
    known = [value for value in values if value is not None]
    return int(sum(known)) if known else None
