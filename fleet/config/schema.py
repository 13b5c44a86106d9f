"""JSON Schemas of the two files, for editors and CI; made from the models that check them."""

from __future__ import annotations

from typing import Any, Literal

from fleet.config.hostvars import InventoryFile
from fleet.config.playbook_file import PlaybookFile

DRAFT = "https://json-schema.org/draft/2020-12/schema"


def schema(kind: Literal["inventory", "playbook"]) -> dict[str, Any]:
    """The JSON Schema (draft 2020-12). That of the inventory is for fleet's own keys only."""
    if kind == "inventory":
        body = InventoryFile.model_json_schema()
    else:
        body = PlaybookFile.model_json_schema()
        body["$defs"]["RunBody"]["oneOf"] = [
            {"required": ["prompt"]},
            {"required": ["prompt_file"]},
        ]
    return {"$schema": DRAFT, **body, "title": f"fleet {kind}"}
