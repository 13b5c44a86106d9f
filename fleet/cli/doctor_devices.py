"""The work of `fleet doctor` on devices, in a module of its own because it loads most of a
deploy.
"""

from __future__ import annotations

import shlex
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import typer

from fleet.cli import output, project
from fleet.cli.common import hosts_of
from fleet.cli.doctor_view import ReportFlags, counting, report
from fleet.cli.hints import completed
from fleet.cli.live import listening
from fleet.config.playbook import load_playbook
from fleet.doctor.checks import LOOKS
from fleet.doctor.cure import Cure, apply_cures, plan_cures
from fleet.doctor.examine import Round, examine
from fleet.doctor.recent import last_failures
from fleet.model.diagnosis import UNCHECKED, Diagnosis
from fleet.model.errors import FleetError, InputError
from fleet.model.inventory import Host
from fleet.model.playbook import Playbook
from fleet.profiles.runs import RunStore
from fleet.triage.explain import titles
from fleet.triage.knowledge import knowledge


@dataclass(frozen=True)
class FixRequest:
    """The options of `fleet doctor --fix`."""

    playbook: Path | None
    dry_run: bool
    yes: bool
    as_json: bool


def look(
    inventory: Path,
    limit: list[str] | None,
    how: Round,
    asked: FixRequest | None,
    flags: ReportFlags,
    *,
    as_json: bool,
    whole: bool = False,
) -> list[Diagnosis]:
    """Examine the devices, report, and repair them if requested. Return the final diagnoses."""
    hosts = hosts_of(inventory, limit)
    failures = last_failures(RunStore(project.runs()), [host.name for host in hosts])
    how = replace(how, playbook=_loaded(inventory, asked), failures=failures)
    with counting(len(hosts)) as listener:
        diagnoses = examine(hosts, listener, how)
    for diagnosis in diagnoses:
        if diagnosis.verdict == UNCHECKED and diagnosis.error is None:
            failure = failures.get(diagnosis.target)
            hint = failure.hint if failure else ""
            diagnosis.notes += (f"next: {hint or _next(inventory, diagnosis.target, how)}",)
    shown = not (as_json and asked)
    offers = asked is None
    report(diagnoses, flags, as_json=as_json, shown=shown, whole=whole, offers=offers)
    hints = dict.fromkeys(str(device.error["hint"]) for device in diagnoses if device.error)
    for hint in hints:
        if hint.startswith("fleet lab up"):
            output.advise(f"next: {hint}")
    return cure(hosts, diagnoses, how, asked) if asked else diagnoses


def _next(inventory: Path, name: str, how: Round) -> str:
    """Return the command that opens a session on a device without a proven one, ready to paste."""
    there, device = shlex.quote(str(inventory)), shlex.quote(name)
    if not how.session:
        return f"fleet doctor -i {there} --limit {device}"
    playbook = shlex.quote(str(_playbook(inventory) or "PLAYBOOK"))
    return f"fleet deploy {playbook} -i {there} --limit {device}"


def _loaded(inventory: Path, asked: FixRequest | None) -> Playbook | None:
    """Load the given playbook, else the project's, or return None if that cannot be read."""
    if asked is not None and asked.playbook is not None:
        return load_playbook(asked.playbook)
    path = _playbook(inventory)
    try:
        return None if path is None else load_playbook(path)
    except FleetError as error:
        output.advise(f"fleet cannot use the playbook for repairs: {error}")
        if error.hint:
            output.advise(f"  try: {error.hint}")
        return None


def _playbook(inventory: Path) -> Path | None:
    """Return the playbook with the inventory's name, where `fleet init` puts it; else the
    project's.
    """
    path = inventory.parent.parent / "playbooks" / inventory.name
    return path if path.is_file() else project.supplied("playbook")


def known(only: Sequence[str]) -> tuple[str, ...]:
    """Return the names. Raises InputError for a name that is neither a check nor a layer."""
    names = {"host", "link", "session"}.union(*((check.id, check.layer) for check in LOOKS))
    for name in only:
        if name not in names:
            raise InputError(f"'{name}' is not a check or layer", hint="fleet doctor --list")
    return tuple(only)


def show_known(*, as_json: bool) -> None:
    """Show all checks and causes."""
    causes = titles(knowledge().causes.values())
    if as_json:
        checks = [{"id": c.id, "layer": c.layer, "about": c.about} for c in LOOKS]
        output.emit_json({"checks": checks, "causes": causes})
        return
    output.table("checks", ("check", "layer", ""), [(c.id, c.layer, c.about) for c in LOOKS])
    output.table("causes", ("cause", "layer", ""), [tuple(c.values()) for c in causes])


def cure(
    hosts: Sequence[Host], diagnoses: Sequence[Diagnosis], how: Round, asked: FixRequest
) -> list[Diagnosis]:
    """Plan, show, ask, apply and examine again; return the final diagnoses.

    Raises InputError if fleet has to ask and standard input is no terminal.
    """
    cures = plan_cures(hosts, diagnoses)
    if not asked.as_json:
        _show(cures, asked)
    able = [fix for fix in cures if not fix.why]
    if able and not asked.dry_run:
        _ask(able, yes=asked.yes)
        with listening(as_json=False) as listener:
            apply_cures(cures, how, listener)
        if not asked.as_json:
            _outcomes(cures)
    after = {fix.host.name: fix.diagnosis for fix in cures if fix.diagnosis is not None}
    result = [after.get(diagnosis.target) or diagnosis for diagnosis in diagnoses]
    if asked.as_json:
        output.emit_json({"schema": 1, "targets": result, "fixes": cures})
    return result


def _show(cures: Sequence[Cure], asked: FixRequest) -> None:
    if not cures:
        output.say("fleet found no problem to fix")
    for fix in cures:
        if fix.why:
            output.say(f"{fix.host.name}: fleet cannot repair this device: {fix.why}")
            continue
        output.say(
            f"{fix.host.name}: to remove the cause {fix.remedy.cause}, fleet would apply "
            f"{fix.remedy.operation}:"
        )
        for step in fix.remedy.steps:
            output.say(f"  + {step}")
        for command in fix.remedy.commands:
            for line in command.splitlines():
                output.say(f"      # {line}")
    if asked.dry_run and any(not fix.why for fix in cures):
        command = "fleet doctor --fix"
        if asked.playbook:
            command += f" --playbook {shlex.quote(str(asked.playbook))}"
        command = completed(command)
        output.say(f"fleet changed nothing; to apply these steps: {command}")


def _ask(cures: Sequence[Cure], *, yes: bool) -> None:
    if yes:
        return
    if not sys.stdin.isatty():
        raise InputError(
            "fleet cannot ask before the repair: standard input is not a terminal",
            hint="fleet doctor --fix --yes, or fleet doctor --fix --dry-run",
        )
    if not typer.confirm(f"Apply these steps to {len(cures)} device(s)?"):
        raise typer.Exit(1)


def _outcomes(cures: Sequence[Cure]) -> None:
    rows = [
        (fix.host.name, fix.remedy.cause, fix.remedy.operation or "none", fix.outcome)
        for fix in cures
    ]
    output.table("fixes", ("device", "cause", "cure", "outcome"), rows)
    for fix in cures:
        if fix.outcome in {"undone", "failed"}:
            output.say(f"{fix.host.name}: {fix.why}")
            output.say(f"  next: {completed(fix.hint)}")
