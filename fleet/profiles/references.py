"""Records that fleet brings along: figures of others, each with its source.

What the source does not say is unknown in them: one run, no conditions, no hashes of files.
"""

from __future__ import annotations

import json
from importlib.resources import files
from typing import Any

from fleet.model.errors import InputError

_FOLDER = "references"


def names() -> tuple[str, ...]:
    """Names of all of them."""
    found = (files("fleet.data") / _FOLDER).iterdir()
    return tuple(sorted(file.name.removesuffix(".json") for file in found if file.is_file()))


def plain(name: str) -> dict[str, Any]:
    """The plain data of the record. Raises InputError for a name that is not there."""
    if name not in names():
        raise InputError(
            f"'{name}' is not one of the reference results that come with fleet",
            hint=f"use one of: {', '.join(f'reference:{known}' for known in names())}",
        )
    text = (files("fleet.data") / _FOLDER / f"{name}.json").read_text("utf-8")
    return dict(json.loads(text))
