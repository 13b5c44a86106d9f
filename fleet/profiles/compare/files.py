"""Records out of files: record.json, JSON Lines, a folder of a run."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

from fleet.model.errors import InputError
from fleet.model.record import Record


def read_records(path: Path) -> list[Record]:
    """The records of a file or of all record.json below a folder.

    Raises InputError with file and line for what is no record of a schema that is known.
    """
    if path.is_dir():
        found = sorted(path.rglob("record.json"))
        if not found:
            raise InputError(f"{path} has no record.json", hint="fleet profiles list")
        return [one for file in found for one in read_records(file)]
    return list(_of_file(path))


def _of_file(path: Path) -> Iterator[Record]:
    try:
        text = path.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"cannot read {path}: {error}") from error
    try:
        whole = json.loads(text)
    except ValueError:
        if not text.strip():
            raise InputError(f"{path} has no record in it") from None
        lines = [(n, line) for n, line in enumerate(text.splitlines(), 1) if line.strip()]
        for number, line in lines:
            try:
                yield Record.from_dict(json.loads(line))
            except (ValueError, InputError) as error:
                raise InputError(f"{path}:{number} is no record: {_said(error)}") from error
        return
    for one in whole if isinstance(whole, list) else [whole]:
        try:
            yield Record.from_dict(one)
        except InputError as error:
            raise InputError(f"{path} is no record: {_said(error)}") from error


def _said(error: Exception) -> str:
    return error.message if isinstance(error, InputError) else str(error)[:200]
