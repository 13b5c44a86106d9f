"""Records out of files: record.json, JSON Lines, a folder of a run."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any

from fleet.model.conditions import Conditions, Sample
from fleet.model.errors import InputError
from fleet.model.record import SCHEMA, Measure, Metrics, Op, Record

_NAMES = {one.name for one in fields(Record)}
_TUPLES = ("problems", "argv", "marks", "tags")


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
                yield record(json.loads(line))
            except (ValueError, TypeError, KeyError, AttributeError) as error:
                raise InputError(f"{path}:{number} is no record: {_said(error)}") from error
        return
    for one in whole if isinstance(whole, list) else [whole]:
        try:
            yield record(one)
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            raise InputError(f"{path} is no record: {_said(error)}") from error


def _said(error: Exception) -> str:
    return f"no {error}" if isinstance(error, KeyError) else str(error)[:200]


def record(data: object) -> Record:
    """A record from plain data, of this schema or an older one. Raises ValueError and kin."""
    if not isinstance(data, Mapping):
        raise TypeError("not an object")
    if int(data.get("schema", 1)) > SCHEMA:
        raise ValueError(f"schema {data['schema']} is newer than this fleet knows ({SCHEMA})")
    values: dict[str, Any] = {name: one for name, one in data.items() if name in _NAMES}
    metrics = dict(data["metrics"])
    for name in ("others", "source"):
        metrics[name] = {n: Measure(**one) for n, one in (metrics.get(name) or {}).items()}
    values["metrics"] = Metrics(**metrics)
    values["ops"] = tuple(Op(**one) for one in values.get("ops") or ())
    values["conditions"] = _conditions(values.get("conditions") or {})
    values.update({name: tuple(values.get(name) or ()) for name in _TUPLES})
    return Record(**values)


def _conditions(data: Mapping[str, Any]) -> Conditions:
    values = dict(data)
    for name in ("before", "after"):
        values[name] = Sample(**values[name]) if values.get(name) else None
    values["during"] = tuple(Sample(**one) for one in values.get("during") or ())
    return Conditions(**values)
