"""JSON Schemas of the files that people write, made from the models that check them, and of
reports.
"""

from __future__ import annotations

import json
from importlib.resources import files
from inspect import cleandoc
from typing import Any, Literal

import msgspec

from fleet.config.cause_file import cause_schema
from fleet.config.hostvars import inventory_schema
from fleet.config.playbook_file import PlaybookFile
from fleet.config.project import project_schema
from fleet.config.runners import OWN_RUNNERS
from fleet.config.shape import struct_schema
from fleet.model.metrics import METRICS
from fleet.model.record import Record

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
    if kind == "doctor":
        text = (files("fleet.data") / "schemas" / "doctor.json").read_text("utf-8")
        return dict(json.loads(text))
    if kind == "record":
        body = _record()
    elif kind == "inventory":
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


def _record() -> dict[str, Any]:
    """Return the schema of a record. It allows unknown keys, because readers ignore them."""
    parts = msgspec.json.schema(Record)["$defs"]
    body = parts.pop("Record")
    for metric in METRICS:
        if metric.about:
            parts["Metrics"]["properties"][metric.name]["description"] = metric.about
    body["properties"]["counts"] = {
        "type": "boolean",
        "description": "True for a whole run on the NPU that is no warm-up; a reader works it out.",
    }
    made: dict[str, Any] = _tidy({**body, "$defs": parts})
    return made


def _tidy(node: Any) -> Any:  # noqa: ANN401 - any part of a schema
    """Return a part with cleaned docstrings, and with one `number` for integers and floats."""
    if isinstance(node, list):
        return [_tidy(item) for item in node]
    if not isinstance(node, dict):
        return node
    made = {key: _tidy(value) for key, value in node.items()}
    if isinstance(made.get("description"), str):
        made["description"] = cleandoc(made["description"])
    if made.get("type") == "number":
        return {"type": "number"}
    kinds = made.get("anyOf", [])
    if {"type": "number"} in kinds:
        kinds = [kind for kind in kinds if kind.get("type") != "integer"]
        made |= {"anyOf": kinds} if len(kinds) > 1 else kinds[0]
        if len(kinds) == 1:
            del made["anyOf"]
    return made
