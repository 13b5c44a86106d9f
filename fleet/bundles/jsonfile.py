"""JSON and YAML files of a bundle. An error has the position of the mistake."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import yaml

from fleet.bundles.content import HEAD, pointer
from fleet.model.errors import BundleError, Position, reason

_MAX_BYTES = 16 * 1024 * 1024  # a configuration is a few kB; a tokenizer is never parsed here


def read_text(path: Path) -> str:
    """Return the text of a small UTF-8 file. Raises BundleError."""
    try:
        if path.stat().st_size > _MAX_BYTES:
            raise BundleError(
                f"{path} is too large for a configuration file",
                hint="check that this is the right file",
            )
        text = path.read_text("utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise BundleError(
            f"{path} cannot be read: {reason(error)}",
            hint=f"copy or export the file again; file '{path}' (shows what it is)",
        ) from error
    if found := pointer(text[:HEAD].encode(), path):
        raise BundleError(f"{path} is {found[0]}", hint=found[1])
    return text


def read_json(path: Path) -> dict[str, Any]:
    """Return a JSON object. Raises BundleError with the line and column of a mistake."""
    try:
        value = json.loads(read_text(path))
    except json.JSONDecodeError as error:
        raise BundleError(
            f"not valid JSON: {error.msg}",
            position=Position(path, error.lineno, error.colno),
            hint=f"python3 -m json.tool '{path}' (shows where the mistake is)",
        ) from error
    except (ValueError, RecursionError) as error:
        raise BundleError(
            f"the file is not JSON that fleet can read: {reason(error)}",
            position=Position(path),
            hint="export or copy the file again",
        ) from error
    if not isinstance(value, dict):
        raise BundleError(
            "the file must contain one JSON object",
            position=Position(path, 1, 1),
            hint="put { at the start of the file and } at its end",
        )
    return value


def read_version(path: Path, *keys: str) -> str | None:
    """Return a text value by keys from a small YAML or JSON file, or None if it is missing.

    Raises BundleError for a file that is not YAML.
    """
    try:
        value: Any = yaml.safe_load(read_text(path))
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark
        where = Position(path, mark.line + 1, mark.column + 1) if mark else Position(path)
        raise BundleError(
            f"not valid YAML: {error.problem}",
            position=where,
            hint="correct this line of the file, or export the bundle again",
        ) from error
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise BundleError(
            f"the file cannot be read: {reason(error)}",
            position=Position(path),
            hint="export the bundle again",
        ) from error
    for key in keys:
        value = value.get(key) if isinstance(value, dict) else None
    return str(value) if isinstance(value, str | float) else None
