"""The cause files as one file that is read at once: `python -m fleet.triage.knowledge` writes it.

Reading 75 YAML files and finding the literals of 1,300 patterns takes most of a short command.
The index is used only while it is of the files that are there.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from importlib.resources import as_file, files
from pathlib import Path
from typing import Any
from zlib import crc32

import msgspec

from fleet.model.cause import Cause

NAME = "causes.index.json"


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
    head["causes"] = [msgspec.json.decode(line, type=Cause) for line in lines[1:]]
    return dict(head)


def write(paths: Iterable[Path], causes: Iterable[Cause], head: Mapping[str, Any]) -> None:
    """One cause a line, so that a change of one is a change of a line."""
    rows = [{"digest": digest(paths), **head}, *causes]
    with as_file(files("fleet") / "data" / NAME) as path:
        path.write_bytes(b"\n".join((*map(msgspec.json.encode, rows), b"")))
