"""Options of a rollout, and how its waves look."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Annotated, Any

import typer

from fleet.cli import output
from fleet.engine.rollout.judge import limits
from fleet.engine.rollout.waves import Wave
from fleet.model.deadline import parse_duration
from fleet.model.errors import InputError
from fleet.model.playbook import Playbook
from fleet.model.rollout import (
    NONE,
    Amount,
    RolloutSpec,
    check_rising,
    is_amount,
    parse_on_fail,
)

CanaryOption = Annotated[
    str | None,
    typer.Option("--canary", help="Devices before all others: 1, 5%, or host patterns."),
]
WavesOption = Annotated[
    str | None,
    typer.Option("--waves", help="How much of all has it after each wave: 5%,25%,100%."),
]
MaxFailedOption = Annotated[
    str | None, typer.Option("--max-failed", help="Failures allowed in a wave: 1, 10%.")
]
MaxUnreachableOption = Annotated[
    str | None,
    typer.Option("--max-unreachable", help="Devices of a wave that may be out of reach: 1, 10%."),
]
SoakOption = Annotated[
    str | None,
    typer.Option("--soak", help="Wait after each wave, then look again: 90s, 5m; 0 for none."),
]
OnFailOption = Annotated[str | None, typer.Option("--on-fail", help="stop, continue or rollback.")]


def with_rollout(
    playbook: Playbook,
    canary: str | None = None,
    waves: str | None = None,
    max_failed: str | None = None,
    max_unreachable: str | None = None,
    soak: str | None = None,
    on_fail: str | None = None,
) -> Playbook:
    """The playbook with what the options say instead. Raises InputError naming the option."""
    changes: dict[str, Any] = {}
    if canary is not None:
        amount = is_amount(canary)
        changes["canary"] = _said("--canary", canary, Amount.parse) if amount else NONE
        changes["canary_hosts"] = () if amount else (canary,)
    if waves is not None:
        changes["waves"] = _said("--waves", waves, _shares)
    if max_failed is not None:
        changes["max_failed"] = _said("--max-failed", max_failed, Amount.parse)
    if max_unreachable is not None:
        changes["max_unreachable"] = _said("--max-unreachable", max_unreachable, Amount.parse)
    if soak is not None:
        changes["soak"] = 0.0 if soak.strip() == "0" else _said("--soak", soak, parse_duration)
    if on_fail is not None:
        changes["on_fail"] = _said("--on-fail", on_fail, parse_on_fail)
    if not changes:
        return playbook
    return replace(playbook, rollout=replace(playbook.rollout or RolloutSpec(), **changes))


def _shares(text: str) -> tuple[Amount, ...]:
    found = tuple(Amount.parse(one) for one in text.split(","))
    check_rising(found)
    return found


def _said(option: str, text: str, read: Any) -> Any:  # noqa: ANN401 - one reader, one value
    try:
        return read(text)
    except InputError as error:
        raise InputError(f"{option}: {error.message}", hint=error.hint) from error


def show_waves(waves: Sequence[Wave], spec: RolloutSpec | None, *, as_json: bool) -> None:
    """Who is in which wave, and what ends the rollout; nothing for a playbook without waves."""
    if spec is None:
        return
    if as_json:
        shown = [{**wave.as_dict(), **limits(wave, spec).as_dict()} for wave in waves]
        output.emit_line({"event": "Waves", "host": "", "rollout": spec.as_dict(), "waves": shown})
        return
    total, done, rows = sum(len(wave.hosts) for wave in waves), 0, []
    for wave in waves:
        done += len(wave.hosts)
        allowed = limits(wave, spec)
        rows.append(
            (
                wave.name,
                len(wave.hosts),
                f"{done}/{total}",
                allowed.failed,
                allowed.unreachable,
                ", ".join(wave.hosts),
            )
        )
    columns = ("wave", "devices", "then", "may fail", "may be unreachable", "who")
    output.table("rollout", columns, rows)
    soak = f"soak {spec.soak:g} s after each wave, then a look at its devices" if spec.soak else ""
    output.note("; ".join(one for one in (soak, f"on_fail: {spec.on_fail}") if one))
