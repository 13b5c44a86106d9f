"""What `fleet doctor` does with devices; apart, as it loads most of a deploy."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from pathlib import Path

from fleet.cli import output
from fleet.cli.common import hosts_of
from fleet.cli.doctor_fix import Asked, cure
from fleet.cli.doctor_view import counting, report
from fleet.doctor.checks import LOOKS
from fleet.doctor.examine import Round, examine
from fleet.model.diagnosis import UNCHECKED, Diagnosis
from fleet.model.errors import InputError
from fleet.triage.knowledge import knowledge

__all__ = ["Asked", "Round", "known", "look", "show_known"]


def look(
    inventory: Path,
    limit: list[str] | None,
    how: Round,
    asked: Asked | None,
    bundle: Path | None,
    *,
    as_json: bool,
) -> list[Diagnosis]:
    """Examine, report and, where it is asked for, cure; the diagnoses as they are after it."""
    hosts = hosts_of(inventory, limit)
    with counting(len(hosts)) as listener:
        found = examine(hosts, listener, how)
    for diagnosis in found:
        if diagnosis.verdict == UNCHECKED and diagnosis.error is None:
            diagnosis.notes += (f"next: {_next(inventory, diagnosis.target, how)}",)
    report(found, as_json=as_json, shown=not (as_json and asked), bundle=bundle)
    return cure(hosts, found, how, asked) if asked else found


def _next(inventory: Path, name: str, how: Round) -> str:
    """What gives a device of which nothing was proven its session: a command to paste."""
    there, device = shlex.quote(str(inventory)), shlex.quote(name)
    if not how.session:
        return f"fleet doctor -i {there} --limit {device}"
    playbook = shlex.quote(str(_playbook(inventory) or "PLAYBOOK"))
    return f"fleet deploy {playbook} -i {there} --limit {device}"


def _playbook(inventory: Path) -> Path | None:
    """The playbook of the inventory's name, where `fleet init` puts it; None for another layout."""
    path = inventory.parent.parent / "playbooks" / inventory.name
    return path if path.is_file() else None


def known(only: Sequence[str]) -> tuple[str, ...]:
    """The same names. Raises InputError for one that is neither a check nor a layer."""
    names = {one.id for one in LOOKS} | {one.layer for one in LOOKS} | {"host", "link", "session"}
    for name in only:
        if name not in names:
            raise InputError(f"there is no check '{name}'", hint="fleet doctor --list")
    return tuple(only)


def show_known(*, as_json: bool) -> None:
    """All checks and causes."""
    causes = list(knowledge().causes.values())
    if as_json:
        output.emit_json(
            {
                "checks": [{"id": one.id, "layer": one.layer, "about": one.about} for one in LOOKS],
                "causes": [
                    {"id": one.id, "layer": one.layer, "title": one.title} for one in causes
                ],
            }
        )
        return
    output.table("checks", ("check", "layer", ""), [(o.id, o.layer, o.about) for o in LOOKS])
    output.table("causes", ("cause", "layer", ""), [(o.id, o.layer, o.title) for o in causes])
