"""Tables as data files, each with its sources. `load("socs")` gives socs.yaml."""

from __future__ import annotations

from functools import cache
from importlib.resources import files
from typing import Any

import yaml


@cache
def load(name: str) -> dict[str, Any]:
    """The table `fleet/data/<name>.yaml`. It is shared: do not change what it returns."""
    text = (files(__package__) / f"{name}.yaml").read_text("utf-8")
    table = yaml.safe_load(text)
    if not isinstance(table, dict):
        raise TypeError(f"fleet/data/{name}.yaml must be a mapping")
    return table
