"""`fleet doctor --fix`: the plan, the question, the outcome."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import typer

from fleet.cli import output
from fleet.cli.live import listening
from fleet.config.playbook import load_playbook
from fleet.doctor.cure import Cure, apply_cures, plan_cures
from fleet.doctor.examine import Round
from fleet.model.diagnosis import Diagnosis
from fleet.model.errors import InputError
from fleet.model.inventory import Host


@dataclass(frozen=True)
class Asked:
    """How the user wants it."""

    playbook: Path | None
    dry_run: bool
    yes: bool
    as_json: bool


def cure(
    hosts: Sequence[Host], found: Sequence[Diagnosis], how: Round, asked: Asked
) -> list[Diagnosis]:
    """Plan, show, ask, apply, look again; the diagnoses as they are after it.

    Raises InputError where a question is needed and nobody can answer.
    """
    wanted = load_playbook(asked.playbook) if asked.playbook is not None else None
    with listening(as_json=False) as listener:
        cures = plan_cures(hosts, found, listener, wanted, parallel=how.parallel)
    if not asked.as_json:
        _show(cures, dry_run=asked.dry_run)
    able = [one for one in cures if one.remedy and not one.why]
    if able and not asked.dry_run:
        _ask(able, yes=asked.yes)
        with listening(as_json=False) as listener:
            apply_cures(cures, how, listener, wanted)
        if not asked.as_json:
            _outcomes(cures)
    after = {one.host.name: one.diagnosis for one in cures if one.diagnosis is not None}
    result = [after.get(one.target) or one for one in found]
    if asked.as_json:
        output.emit_json(
            {
                "schema": 1,
                "targets": [one.as_dict() for one in result],
                "fixes": [one.as_dict() for one in cures],
            }
        )
    return result


def _show(cures: Sequence[Cure], *, dry_run: bool) -> None:
    if not cures:
        output.say("nothing to fix")
    for one in cures:
        if one.why:
            output.say(f"{one.host.name}: no cure by fleet: {one.why}")
            continue
        output.say(f"{one.host.name}: {one.remedy} for {one.cause}")
        for step in one.steps:
            output.say(f"  + {step}")
        for command in one.commands:
            for line in command.splitlines():
                output.say(f"      # {line}")
    if dry_run and any(not one.why for one in cures):
        output.say("nothing was changed; the same without --dry-run applies it")


def _ask(cures: Sequence[Cure], *, yes: bool) -> None:
    if yes:
        return
    if not sys.stdin.isatty():
        raise InputError("nobody is there to answer", hint="fleet doctor --fix --yes, or --dry-run")
    if not typer.confirm(f"apply this to {len(cures)} device(s)?"):
        raise typer.Exit(1)


def _outcomes(cures: Sequence[Cure]) -> None:
    rows = [(one.host.name, one.cause, one.remedy or "none", one.outcome, one.why) for one in cures]
    output.table("fixes", ("device", "cause", "cure", "outcome", ""), rows)
