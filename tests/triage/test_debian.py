"""Documents of an ordinary Debian are no failures of a board."""

from __future__ import annotations

import gzip
import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from fleet.triage.text import decode
from fleet.triage.triage import triage

FOLDERS = ("/usr/share/doc", "/var/log", "/etc")
COUNT = 500
MOST = 100_000  # bytes of each


def texts() -> Iterator[tuple[Path, bytes]]:
    paths = sorted(
        path
        for folder in FOLDERS
        for path in Path(folder).rglob("*")
        if path.is_file() and not path.is_symlink()
    )
    random.Random(25).shuffle(paths)
    for path in paths:
        try:
            data = path.read_bytes()
            text = gzip.decompress(data) if path.suffix == ".gz" else data
        except (OSError, EOFError):
            continue
        if text.strip() and b"\0" not in text[:4000]:
            yield path, text[:MOST]


def test_five_hundred_documents_have_no_cause() -> None:
    found = list(zip(texts(), range(COUNT), strict=False))
    if len(found) < COUNT:
        pytest.skip(f"this machine has {len(found)} readable documents, not {COUNT}")
    alarms = []
    for (path, data), _ in found:
        diagnosis = triage(decode(data))
        if diagnosis.causes or diagnosis.verdict == "healthy":
            first = diagnosis.causes[0] if diagnosis.causes else None
            alarms.append((str(path), first and (first.cause.id, first.confidence)))
    assert alarms == []
