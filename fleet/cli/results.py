"""Tables of results: devices and plans."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from typing import TYPE_CHECKING

from fleet.cli import output
from fleet.model.files import human_bytes

if TYPE_CHECKING:  # records are shown without the engine
    from fleet.engine.pool import DeviceResult
    from fleet.model.errors import FleetError
    from fleet.model.plan import DevicePlan


def show_devices(title: str, results: Sequence[DeviceResult]) -> None:
    """One row a device; errors with their cure below. The wave where there are several."""
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
    output.table(title, (*first, "outcome", "", "time", "round trips", "sent"), rows)
    show_errors(results)


def emit(results: Sequence[DeviceResult], *members: str) -> None:
    """The devices as JSON: host, outcome, these members (text, round_trips, error), details."""

    def plain(result: DeviceResult) -> dict[str, object]:
        values = {name: getattr(result, name) for name in members}
        if values.get("error") is not None:
            values["error"] = values["error"].as_dict()
        return {"host": result.host.name, "outcome": result.outcome, **values, **result.details}

    output.emit_json([plain(result) for result in results])


def tell_holders(results: Sequence[DeviceResult]) -> None:
    """Who holds which board, where a command went on beside them; boards that it left alone."""
    for result in results:
        if result.outcome == "not attempted":
            output.note(f"{result.host.name}: not attempted")
        notes = result.details.get("notes")
        for text in notes if isinstance(notes, list) else ():
            output.note(f"{result.host.name}: {text}")


def show_errors(results: Sequence[DeviceResult]) -> None:
    """The errors of devices; the same error of several devices is shown once."""
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


def show_plans(results: Sequence[DeviceResult]) -> None:
    """Every action literally, then findings and notes."""
    for result in results:
        plan = result.plan
        if plan is None:
            continue
        state = "refused" if plan.refused else "unchanged" if plan.unchanged else "will change"
        output.console.print(
            f"[bold]{result.host.name}[/]  {plan.target}  {plan.manifest.name}/{plan.manifest.id}"
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
