"""Tables of results: devices, plans, and measured runs."""

from __future__ import annotations

import shlex
import statistics
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from fleet.cli import output
from fleet.cli.conditions_view import conditions_line
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
        output.say(f"# {one.host.name}: as root on the device, then fleet deploy again")
        output.say("set -e")
        for step in steps:
            output.say(f"# {step.describe()}")
            output.literal(step.as_shell())


def _median(records: Sequence[dict[str, Any]], key: str) -> str:
    values = [r["metrics"][key] for r in records if r["counts"] and r["metrics"][key] is not None]
    digits = 2 if key.endswith("_tps") else 1
    return f"{statistics.median(values):.{digits}f}" if values else "-"


def _others(records: Sequence[dict[str, Any]]) -> str:
    """`words 5, wall_ms 12.0 ms`: medians of numbers that only some runners have."""
    found: dict[tuple[str, str], list[float]] = {}
    for record in records:
        for name, one in record["metrics"].get("others", {}).items():
            found.setdefault((name, one["unit"]), []).append(one["value"])
    return ", ".join(
        f"{name} {statistics.median(values):g}{f' {unit}' if unit else ''}"
        for (name, unit), values in sorted(found.items())
    )


def _short(build_id: str) -> str:
    """`2.51.0.260929`, as the folders of an SDK are named; the record has the whole id."""
    version, _, stamp = build_id.rpartition(".")
    return f"{version}.{stamp[:6]}" if version else stamp


def _emulated(records: Sequence[dict[str, Any]]) -> str | None:
    """yes, no, mixed; None where nobody said it."""
    said = {record["emulated"] for record in records}
    if len(said) > 1:
        return "mixed"
    return {True: "yes", False: "no"}.get(said.pop())


def show_records(title: str, records: Sequence[dict[str, Any]]) -> None:
    """Medians of the runs that count, one row a device; what does not count is said."""
    hosts: dict[str, list[dict[str, Any]]] = {}
    for record in records:
        if not record["warmup"]:
            hosts.setdefault(record["host"], []).append(record)
    rows = []
    for host, mine in hosts.items():
        good = [r for r in mine if r["counts"]]
        rows.append(
            (
                host or None,
                mine[0]["facts"].get("soc", {}).get("chip"),
                _short(str(mine[0]["origin"].get("build_id") or "")) or None,
                f"{len(good)}/{len(mine)}",
                *(_median(mine, k) for k in ("init_ms", "ttft_ms", "prompt_tps", "decode_tps")),
                _median(mine, "generated_tokens").removesuffix(".0"),
                _emulated(mine),
            )
        )
    columns = ("device", "chip", "QAIRT", "runs", "init ms", "TTFT ms", "prompt tok/s")
    if rows:
        output.table(title, (*columns, "gen tok/s", "tokens", "emulated"), rows)
    for host, mine in hosts.items():
        others = _others([r for r in mine if r["counts"]])
        if others:
            output.note(f"{host or 'unknown device'} also: {others}")
        line = conditions_line(mine)
        if line:
            output.note(f"{host or 'unknown device'} {line}")
    if any(r["emulated"] for r in records):
        output.note("emulated: lab devices or the HTP emulator on x86_64; these are no NPU numbers")
    for record in records:
        turn = f"{'warm-up' if record['warmup'] else 'run'} {record['repeat'] + 1}"
        for problem in record["problems"]:
            host = record["host"] or "unknown device"
            output.note(f"{host} {turn}: {problem}; not counted")
        for mark in record.get("marks", ()):
            output.note(f"{record['host'] or 'unknown device'} {turn}: {mark}")
