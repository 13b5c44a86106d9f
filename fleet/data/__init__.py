"""Tables as data files with their sources. `load("socs")` returns socs.yaml."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

import yaml

_FOLDER = Path(__file__).parent
_LOADER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # libyaml: 5 times as fast


@cache
def load(name: str) -> dict[str, Any]:
    """Return the table `fleet/data/<name>.yaml`. It is shared, so callers must not change it."""
    text = (_FOLDER / f"{name}.yaml").read_text("utf-8")
    table = yaml.load(text, Loader=_LOADER)  # noqa: S506 - a safe loader
    if not isinstance(table, dict):
        raise TypeError(f"fleet/data/{name}.yaml must be a mapping")
    return table


def shipped_text(name: str) -> str:
    """Return the text of a file next to the tables."""
    return (_FOLDER / name).read_text("utf-8")


def shipped(part: str) -> Path:
    """Return a file or folder that comes with fleet, like `assets/tiny-genie`.

    It is part of the wheel, or else of the clone.
    """
    packed = _FOLDER / "demo" / part
    return packed if packed.exists() else _FOLDER.parents[1] / part


def frozen(row: Mapping[str, Any]) -> dict[str, Any]:
    """Return a row for a frozen dataclass: its lists as tuples."""
    return {key: tuple(value) if isinstance(value, list) else value for key, value in row.items()}
