"""The JSON Schema of a record, generated from its Structs.

`python -m fleet.config.record_schema > fleet/data/schemas/record.json` regenerates the file.
"""

from __future__ import annotations

import json
import sys
from inspect import cleandoc
from typing import Any

import msgspec

from fleet.model.metrics import METRICS
from fleet.model.record import Record


def made() -> dict[str, Any]:
    """Return the schema. It allows unknown keys, because readers ignore them."""
    parts = msgspec.json.schema(Record)["$defs"]
    body = parts.pop("Record")
    for metric in METRICS:
        if metric.about:
            parts["Metrics"]["properties"][metric.name]["description"] = metric.about
    body["properties"]["counts"] = {
        "type": "boolean",
        "description": "True for a whole run on the NPU that is no warm-up; a reader works it out.",
    }
    body, parts = _tidy(body), _tidy(parts)
    head = {"$schema": "https://json-schema.org/draft/2020-12/schema"}
    return {**head, **body, "$defs": parts, "title": "fleet record"}


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


if __name__ == "__main__":
    sys.stdout.write(json.dumps(made(), indent=2, ensure_ascii=False) + "\n")
