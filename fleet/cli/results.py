"""Tables of results: devices and plans."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from typing import TYPE_CHECKING

from fleet.cli import output
from fleet.model.files import human_bytes

if TYPE_CHECKING:  # records are shown without the engine
    from fleet.engine.pool import DeviceResult
    from fleet.model.plan import DevicePlan


def show_devices(title: str, results: Sequence[DeviceResult]) -> None:
    """One row a device; errors with their cure below. The wave where there are several."""
    waved = len({one.wave for one in results}) > 1
    rows = [
        (
            one.host.name,
            *((one.wave,) if waved else ()),
            one.outcome,
            one.text if one.error is None else "see below",
            f"{one.seconds:.1f} s",
            one.round_trips,
            human_bytes(one.bytes_sent)
            + (f" + {human_bytes(one.bytes_relayed)} relayed" if one.bytes_relayed else ""),
        )
        for one in results
    ]
    first = ("device", "wave") if waved else ("device",)
    output.table(title, (*first, "outcome", "", "time", "round trips", "sent"), rows)
    show_errors(results)


def show_errors(results: Sequence[DeviceResult]) -> None:
    """The errors of devices; those that say the same stand together."""
    said: dict[tuple[str, str], list[DeviceResult]] = {}
    for one in results:
        if one.error is not None:
            said.setdefault((one.error.message, one.error.hint), []).append(one)
    for alike in said.values():
        error = alike[0].error
        if error is not None:
            error.device = ", ".join(one.host.name for one in alike)
            output.show_error(error)


def show_plans(results: Sequence[DeviceResult]) -> None:
    """Every action literally, then findings and notes."""
    for one in results:
        plan = one.plan
        if plan is None:
            continue
        state = "refused" if plan.refused else "unchanged" if plan.unchanged else "will change"
        output.console.print(
            f"[bold]{one.host.name}[/]  {plan.target}  {plan.manifest.name}/{plan.manifest.id}"
            f"  {state}",
            markup=True,
            soft_wrap=True,
        )
        _show_actions(plan)
        for text in () if plan.refused or plan.unchanged else plan.then:
            output.say(f"  > {text}")
        for finding in plan.findings:
            mark = "REFUSED" if finding.refuses else "warning"
            output.say(
                f"  ! {mark} {finding.rule}: {finding.message} (have {finding.have}, "
                f"need {finding.need}); {finding.cure}"
            )
        for text in plan.notes:
            output.say(f"  - {text}")


def _show_actions(plan: DevicePlan) -> None:
    if plan.refused:
        return
    if plan.become:
        output.say(f"  root: {plan.become}")
    for action in plan.actions:
        output.say(f"  + {action.describe()}")
        for command in action.commands() if action.needs_root else ():
            output.say(f"      # {shlex.join(command.argv)}")


def show_admin(results: Sequence[DeviceResult]) -> None:
    """What an administrator has to run on each device, ready to copy into a root shell."""
    for one in results:
        steps = [step for step in one.plan.actions if step.needs_root] if one.plan else []
        if not steps:
            output.say(f"# {one.host.name}: nothing needs root")
            continue
        output.say(f"# {one.host.name}: as root on the device, then `fleet deploy`")
        output.say("set -e")
        for step in steps:
            output.say(f"# {step.describe()}")
            output.literal(step.as_shell())
