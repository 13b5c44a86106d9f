"""Tables of results: devices and plans."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from fleet.cli import output
from fleet.cli.hints import completed
from fleet.model.files import human_bytes
from fleet.model.finding import with_hosts
from fleet.model.plain import to_plain

if TYPE_CHECKING:  # records can be shown without the engine
    from fleet.engine.pool import DeviceResult
    from fleet.model.errors import FleetError
    from fleet.model.plan import DevicePlan
    from fleet.ops.lease import Holders

Value = TypeVar("Value")

_DROPS = ("round trips", "time", "sent")


def show_devices(title: str, results: Sequence[DeviceResult[Any]]) -> None:
    """Print one row for each device, with its wave if there are several, then errors with their
    cure.
    """
    waved = len({result.wave for result in results}) > 1
    rows = [
        (
            result.host.name,
            *((result.wave,) if waved else ()),
            result.outcome,
            result.text if result.error is None else "see below",
            f"{result.seconds:.1f} s",
            result.round_trips,
            human_bytes(result.bytes_sent)
            + (f" + {human_bytes(result.bytes_relayed)} relayed" if result.bytes_relayed else ""),
        )
        for result in results
    ]
    first = ("device", "wave") if waved else ("device",)
    output.table(title, (*first, "outcome", "", "time", "round trips", "sent"), rows, _DROPS)
    show_errors(results)


def emit(
    results: Sequence[DeviceResult[Value]],
    *members: str,
    plain: Callable[[Value | None], Mapping[str, object]] = to_plain,
) -> None:
    """Print devices as JSON: host, outcome, these members (text, round_trips, error), the value.

    `plain` converts a value to members of the object.
    """

    def row(result: DeviceResult[Value]) -> dict[str, object]:
        values = {name: getattr(result, name) for name in members}
        head = {"host": result.host.name, "outcome": result.outcome}
        return {**head, **values, **(plain(result.value) or {})}

    output.emit_json([row(result) for result in results])


def tell_holders(results: Sequence[DeviceResult[Any]]) -> None:
    """Print who holds a board that the command read, and which boards it did not attempt."""
    for result in results:
        if result.outcome == "not attempted":
            output.note(
                f"{result.host.name}: not attempted, because an earlier wave failed; correct its "
                "devices, then run the command on the others (--limit)"
            )
        holders: Holders | None = result.value.holders if result.value else None
        for text in holders.notes if holders else ():
            output.note(f"{result.host.name}: {text}")


def show_errors(results: Sequence[DeviceResult[Any]]) -> None:
    """Print the errors of devices; the same error of several devices is shown once."""
    devices: dict[tuple[str, str], list[str]] = {}
    errors: dict[tuple[str, str], FleetError] = {}
    for result in results:
        if result.error is not None:
            key = result.error.message, result.error.hint
            devices.setdefault(key, []).append(result.host.name)
            errors.setdefault(key, result.error)
    for key, error in errors.items():
        error.device = ", ".join(devices[key])
        output.show_error(error)


_FIX = "      fix: "
_NAMED = 3
_LEGEND = {"+": "change", "#": "as root", ">": "then", "!": "finding", "*": "remark"}


def show_plans(results: Sequence[DeviceResult[Any]]) -> None:
    """Print every action literally, then findings and notes; once for devices with the same
    plan.
    """
    plans = {result.host.name: _plan_lines(result.plan) for result in results if result.plan}
    groups: dict[object, list[str]] = {}
    for name, lines in plans.items():
        groups.setdefault(name if output.shape == "wide" else lines, []).append(name)
    if output.shape == "name":
        output.literal("\n".join(plans))
        return
    sizes = sorted(groups.values(), key=len, reverse=True)
    for number, names in enumerate(sizes):
        head, *rest = plans[names[0]]
        few = names if len(names) <= _NAMED and len(names) < max(len(plans), 2) else []
        rest = [_named(line, few) for line in rest]
        output.prose(f"{_who(names, len(plans), most=number == 0)}  {head}", style="bold")
        for line in rest:
            (output.say if line.lstrip().startswith("#") else output.prose)(line)
    if len(plans) > 1 and output.shape != "wide":
        others = len(plans) - len(sizes[0])
        differ = f"; {others} differ{'s' * (others == 1)}" if others else ""
        most = len(sizes[0])
        output.say(
            f"the plan is the same on {most} device{'s' * (most > 1)}{differ}"
            if most > 1
            else ("each device has a different plan")
        )
    used = {line.split()[0] for lines in plans.values() for line in lines[1:]}
    legend = [f"{mark} {text}" for mark, text in _LEGEND.items() if mark in used]
    if legend:
        output.say(f"legend: {', '.join(legend)}", style="dim")


def _named(line: str, hosts: Sequence[str]) -> str:
    """Return a line of a plan; a command that cures a finding gets these devices."""
    if not line.startswith(_FIX):
        return line
    return completed(with_hosts(line, hosts))


def _who(names: Sequence[str], count: int, *, most: bool) -> str:
    """Return the names of devices. With `most`, several are given as all except the devices
    below.
    """
    if len(names) < 4:
        return ", ".join(names)
    if len(names) == count:
        return f"all {count} devices"
    return f"{len(names)} devices (all except the devices below)" if most else ", ".join(names)


def _plan_lines(plan: DevicePlan) -> tuple[str, ...]:
    """Return a head without the device, then a line with a mark for each item."""
    state = "refused" if plan.refused else "unchanged" if plan.unchanged else "will change"
    lines = [f"{plan.target}  {plan.manifest.name}/{plan.manifest.id}  {state}"]
    if not plan.refused:
        lines += [f"  root: {plan.become}"] if plan.become else []
        for action in plan.actions:
            lines.append(f"  + {action.describe()}")
            commands = action.commands() if action.needs_root else ()
            lines += [f"      # {shlex.join(command.argv)}" for command in commands]
        lines += [f"  > {text}" for text in (() if plan.unchanged else plan.then)]
    for finding in plan.findings:
        mark = "REFUSED" if finding.refuses else "warning"
        lines.append(f"  ! {mark} {finding.rule}: {finding.summary}")
        lines.append(f"{_FIX}{finding.cure}")
    return (*lines, *(f"  * {text}" for text in plan.notes))


def show_admin(results: Sequence[DeviceResult[Any]]) -> None:
    """Print the commands for an administrator on each device, ready to copy into a root shell."""
    for result in results:
        steps = [step for step in result.plan.actions if step.needs_root] if result.plan else []
        if not steps:
            output.say(f"# {result.host.name}: no command needs root")
            continue
        output.say(f"# {result.host.name}: run this as root on the device, then run `fleet deploy`")
        output.say("set -e")
        for step in steps:
            output.say(f"# {step.describe()}")
            output.literal(step.as_shell())
