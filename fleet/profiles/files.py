"""Readers of record files."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

from fleet.model.errors import InputError, reason
from fleet.model.files import file_errors
from fleet.model.record import Record

_IMPORT = (
    "give a record.json or JSON Lines file of fleet; to read other formats: fleet profiles "
    "import FILE"
)


def read_records(path: Path) -> list[Record]:
    """Return the records of a file, or of every record.json below a folder.

    Raises InputError with the file and line of text that is not a record of a known schema.
    """
    if path.is_dir():
        paths = sorted(path.rglob("record.json"))
        if not paths:
            raise InputError(
                f"the folder {path} contains no record.json", hint="fleet profiles list"
            )
        return [record for file in paths for record in read_records(file)]
    return list(_of_file(path))


def _of_file(path: Path) -> Iterator[Record]:
    with file_errors(path):
        text = path.read_text("utf-8")
    try:
        whole = json.loads(text)
    except ValueError:
        if not text.strip():
            raise InputError(f"{path} contains no result of a run", hint=_IMPORT) from None
        lines = [(n, line) for n, line in enumerate(text.splitlines(), 1) if line.strip()]
        for number, line in lines:
            try:
                yield Record.from_dict(json.loads(line))
            except (ValueError, InputError) as error:
                raise InputError(
                    f"line {number} of {path} is not a result of a run: {_message_of(error)}",
                    hint="remove the line, or export the file again",
                ) from error
        return
    for data in whole if isinstance(whole, list) else [whole]:
        try:
            yield Record.from_dict(data)
        except InputError as error:
            raise InputError(
                f"{path} is not a result of a run: {_message_of(error)}", hint=error.hint or _IMPORT
            ) from error


def _message_of(error: Exception) -> str:
    return error.message if isinstance(error, InputError) else reason(error)
