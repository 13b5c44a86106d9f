"""`fleet config runners`: the runners, their origin, kinds of bundles and options."""

from __future__ import annotations

from typing import Any

from fleet.cli import options as opt
from fleet.cli import output
from fleet.model.errors import InputError
from fleet.runners.registry import names, options_of, origin, runner


def runners(as_json: opt.Json = False) -> None:
    """List the runners for playbooks: origin, kinds of bundles, options and defaults.

    A runner that cannot be loaded is listed with its error. See docs/runners.md.

    Example: fleet config runners
    """
    rows = [_row(name) for name in names()]
    if as_json:
        output.emit_json(rows)
        return
    shown = []
    for row in rows:
        options = row["error"] or ", ".join(row["options"]) or "-"
        shown.append((row["name"], row["origin"], ", ".join(row["kinds"]), options))
    output.table("runners", ("runner", "from", "bundle kinds", "options"), shown)


def _row(name: str) -> dict[str, Any]:
    row: dict[str, Any] = {"name": name, "origin": origin(name), "kinds": [], "options": {}}
    try:
        member = runner(name)
    except InputError as error:
        return {**row, "error": error.message}
    return {**row, "kinds": list(member.kinds), "options": options_of(member), "error": ""}
