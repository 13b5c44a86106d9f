"""`fleet config runners`: what can run a bundle, from where, with which options."""

from __future__ import annotations

import sys
from typing import Any

from fleet.cli import options as opt
from fleet.cli import output
from fleet.config.shape import keys_of
from fleet.model.errors import InputError
from fleet.runners import Runner
from fleet.runners.options import Options
from fleet.runners.registry import names, origin, runner


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
        found = runner(name)
    except InputError as error:
        return {**row, "error": error.message}
    return {**row, "kinds": list(found.kinds), "options": _options(found), "error": ""}


def _options(found: Runner) -> dict[str, Any]:
    """Names and defaults of the option model that stands in the runner's module; None: needed."""
    module = sys.modules.get(type(found).__module__)
    kinds = [value for value in vars(module).values() if isinstance(value, type)]
    models = [kind for kind in kinds if issubclass(kind, Options) and kind is not Options]
    chosen = [model for model in models if model.__module__ == type(found).__module__]
    main = next((model for model in chosen if model.__name__.endswith("Options")), None)
    if main is None:
        return {}
    return {name: None if key.needed else key.default for name, key in keys_of(main).items()}
