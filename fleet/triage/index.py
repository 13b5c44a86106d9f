"""The cause files as one file that is read at once: `python -m fleet.triage.knowledge` writes it.

Reading 75 YAML files and finding the literals of 1,300 patterns takes most of a short command.
The index is used only while it is of the files that are there.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict
from importlib.resources import as_file, files
from pathlib import Path
from typing import Any
from zlib import crc32

from fleet.model.cause import Cause, Example, Fix, Predicate, Signature, Twin

NAME = "causes.index.json"
_PARTS = {"signatures": Signature, "probe": Predicate, "twins": Twin, "fix": Fix}


def digest(paths: Iterable[Path]) -> str:
    """Of names and bytes, so that a change of a file is seen."""
    whole, size = 0, 0
    for path in sorted(paths):
        data = path.name.encode() + b"\0" + path.read_bytes() + b"\0"
        whole, size = crc32(data, whole), size + len(data)
    return f"{whole:08x}-{size}"


def read(paths: Iterable[Path]) -> dict[str, Any] | None:
    """What was written for exactly these files; None where they are others."""
    with as_file(files("fleet") / "data" / NAME) as path:
        try:
            lines = path.read_text("utf-8").splitlines()
            head = json.loads(lines[0])
        except (OSError, ValueError, IndexError):
            return None
    if head["digest"] != digest(paths):
        return None
    head["causes"] = [json.loads(line) for line in lines[1:]]
    return dict(head)


def write(paths: Iterable[Path], causes: Iterable[Cause], head: Mapping[str, Any]) -> None:
    """One cause a line, so that a change of one is a change of a line."""
    rows = [{"digest": digest(paths), **head}, *(asdict(cause) for cause in causes)]
    text = "\n".join(json.dumps(row, separators=(",", ":"), ensure_ascii=False) for row in rows)
    with as_file(files("fleet") / "data" / NAME) as path:
        path.write_text(text + "\n", "utf-8")


def cause_of(row: dict[str, Any]) -> Cause:
    """A cause as it was written."""
    for name, kind in _PARTS.items():
        row[name] = tuple(kind(**_tuples(part)) for part in row[name])
    row["examples"] = tuple(Example(**part) for part in row["examples"])
    return Cause(**_tuples(row))


def _tuples(row: dict[str, Any]) -> dict[str, Any]:
    """JSON has lists where a cause has tuples, at any depth."""
    return {key: _tuple(value) for key, value in row.items()}


def _tuple(value: Any) -> Any:  # noqa: ANN401 - what JSON holds
    return tuple(map(_tuple, value)) if isinstance(value, list) else value
