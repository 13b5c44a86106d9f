"""JSON Schemas of the files that people write, made from the models that check them, and of
reports.
"""

from __future__ import annotations

import json
from importlib.resources import files
from typing import Any, Literal

from fleet.config.cause_file import cause_schema
from fleet.config.hostvars import inventory_schema
from fleet.config.playbook_file import PlaybookFile
from fleet.config.project import project_schema
from fleet.config.runners import OWN_RUNNERS
from fleet.config.shape_schema import struct_schema

DRAFT = "https://json-schema.org/draft/2020-12/schema"


Kind = Literal["inventory", "playbook", "project", "cause", "doctor", "record"]


# A playbook without a bundle deploys the runtime alone (fleet/config/playbook.py).
_WITHOUT_BUNDLE: dict[str, Any] = {
    "if": {"not": {"required": ["bundle"]}},
    "then": {
        "required": ["runtime"],
        "not": {"anyOf": [{"required": [key]} for key in ("run", "serve", "op_packages")]},
    },
}


def _needs_prompt(runner: str) -> dict[str, Any]:
    """Return the rule that a run with this runner has a prompt or an option that replaces it."""
    given: list[dict[str, Any]] = [{"required": [key]} for key in ("prompt", "prompt_file", "chat")]
    for option in OWN_RUNNERS[runner].instead_of_prompt:
        options = {"required": [option], "description": f"{option} stands in for a prompt."}
        given.append({"properties": {"options": options}, "required": ["options"]})
    return {
        "if": {"properties": {"runner": {"const": runner}}, "required": ["runner"]},
        "then": {"anyOf": given},
    }


def schema(kind: Kind) -> dict[str, Any]:
    """Return a JSON Schema (draft 2020-12). The inventory's schema covers only fleet's own keys.

    `project` is a fleet.yaml, and `cause` a cause file of the doctor. `doctor` is the output of
    `fleet doctor --json`. `record` is a record of a run (record.json, and each line of an export).
    """
    if kind in {"doctor", "record"}:
        text = (files("fleet.data") / "schemas" / f"{kind}.json").read_text("utf-8")
        return dict(json.loads(text))
    if kind == "inventory":
        body = inventory_schema()
    elif kind == "project":
        body = project_schema()
    elif kind == "cause":
        body = cause_schema()
    else:
        body = struct_schema(PlaybookFile) | _WITHOUT_BUNDLE
        body["$defs"]["RunBody"] |= {
            "allOf": [
                {"not": {"required": ["prompt", "prompt_file"]}},
                {"not": {"required": ["until", "sustained"]}},
                *map(_needs_prompt, (n for n, facts in OWN_RUNNERS.items() if facts.needs_prompt)),
            ],
        }
    return {"$schema": DRAFT, **body, "title": f"fleet {kind}"}
