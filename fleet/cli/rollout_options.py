"""The options of a rollout, and the table of its waves."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Annotated, Any

import typer
from msgspec import structs

from fleet.cli import output
from fleet.cli.options import WAVES
from fleet.model.deadline import parse_duration
from fleet.model.errors import InputError
from fleet.model.plain import to_plain
from fleet.model.rollout import NONE, Amount, RolloutSpec, check_rising, is_amount, parse_on_fail

if TYPE_CHECKING:  # `fleet exec` does not load playbooks
    from fleet.engine.rollout.waves import Wave
    from fleet.model.playbook import Playbook

Canary = Annotated[
    str | None,
    typer.Option(
        rich_help_panel=WAVES,
        help="Deploy to these devices first: a number, a share like 5%, or name patterns.",
    ),
]
Waves = Annotated[
    str | None,
    typer.Option(
        rich_help_panel=WAVES,
        help="Deploy in waves: share of all devices that is done after each wave, like "
        "5%,25%,100%.",
    ),
]
MaxFailed = Annotated[
    str | None,
    typer.Option(
        rich_help_panel=WAVES,
        help="Stop if more than this number or share of a wave's devices fail: 1, 10%.",
    ),
]
MaxUnreachable = Annotated[
    str | None,
    typer.Option(
        rich_help_panel=WAVES,
        help="Stop if more than this number or share of a wave's devices are unreachable: 1, 10%.",
    ),
]
Soak = Annotated[
    str | None,
    typer.Option(
        rich_help_panel=WAVES,
        help="After each wave wait this long, then check its devices again: 90s, 5m; 0: do "
        "not wait.",
    ),
]
OnFail = Annotated[
    str | None,
    typer.Option(
        rich_help_panel=WAVES,
        help="What to do if a wave fails: stop, continue with the next wave, or roll back.",
    ),
]


@dataclass(frozen=True)
class RolloutFlags:
    """The options of a rollout as typed; for None, the playbook's value applies."""

    canary: Canary = None
    waves: Waves = None
    max_failed: MaxFailed = None
    max_unreachable: MaxUnreachable = None
    soak: Soak = None
    on_fail: OnFail = None


def with_rollout(playbook: Playbook, flags: RolloutFlags) -> Playbook:
    """Return the playbook with the values of the options. Raises InputError like `spec_of`."""
    spec = spec_of(playbook.rollout, flags)
    return playbook if spec is playbook.rollout else replace(playbook, rollout=spec)


def spec_of(spec: RolloutSpec | None, flags: RolloutFlags) -> RolloutSpec | None:
    """Return `spec` with the values of the options. Raises InputError that names the option."""
    canary = flags.canary
    amount = canary is not None and is_amount(canary)
    changes = {
        "canary": _read("--canary", canary if amount else None, Amount.parse),
        "waves": _read("--waves", flags.waves, _shares),
        "max_failed": _read("--max-failed", flags.max_failed, Amount.parse),
        "max_unreachable": _read("--max-unreachable", flags.max_unreachable, Amount.parse),
        "soak": _read("--soak", flags.soak, _seconds),
        "on_fail": _read("--on-fail", flags.on_fail, parse_on_fail),
    }
    changes = {name: value for name, value in changes.items() if value is not None}
    if canary is not None:
        changes |= {"canary_hosts": ()} if amount else {"canary": NONE, "canary_hosts": (canary,)}
    if not changes:
        return spec
    return structs.replace(spec or RolloutSpec(), **changes)


def _shares(text: str) -> tuple[Amount, ...]:
    shares = tuple(Amount.parse(share) for share in text.split(","))
    check_rising(shares)
    return shares


def _seconds(text: str) -> float:
    return 0.0 if text.strip() == "0" else parse_duration(text)


def _read(option: str, text: str | None, read: Any) -> Any:  # noqa: ANN401 - one reader, one value
    try:
        return None if text is None else read(text)
    except InputError as error:
        raise InputError(f"{option}: {error.message}", hint=error.hint) from error


_NAMED = 4  # devices of a wave that a terminal lists


def _who(names: Sequence[str]) -> str:
    """Return `a, b, c and 35 more`, or all names if they fit."""
    if output.width() is None or len(names) <= _NAMED:
        return ", ".join(names)
    return f"{', '.join(names[: _NAMED - 1])} and {len(names) - _NAMED + 1} more (-o wide)"


def show_waves(waves: Sequence[Wave], spec: RolloutSpec | None, *, as_json: bool) -> None:
    """Print the devices of each wave, and the limits of the rollout; nothing without a rollout."""
    if spec is None:
        return
    from fleet.engine.rollout.judge import limits  # noqa: PLC0415 - only for deploys

    if as_json:
        shown = [{**to_plain(wave), **to_plain(limits(wave, spec))} for wave in waves]
        output.emit_line({"event": "Waves", "host": "", "rollout": spec, "waves": shown})
        return
    total, done, rows = sum(len(wave.hosts) for wave in waves), 0, []
    for wave in waves:
        done += len(wave.hosts)
        allowed = limits(wave, spec)
        share = f"{done}/{total}"
        cells = (wave.name, len(wave.hosts), share, allowed.failed, allowed.unreachable)
        rows.append((*cells, _who(wave.hosts)))
    columns = ("wave", "devices", "then", "may fail", "may be unreachable", "who")
    output.table("rollout", columns, rows)
    soak = f"waits {spec.soak:g} s after each wave, then checks its devices" if spec.soak else ""
    output.note("; ".join(text for text in (soak, f"on_fail: {spec.on_fail}") if text))
