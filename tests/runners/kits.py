"""Bundles and kits for tests of runners; nothing of them is on a disk but what a test writes."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any

from fleet.model.bundle import Bundle
from fleet.model.files import FileRef
from fleet.model.playbook import RunSpec
from fleet.runners import Kit


def bundle(kind: str, *names: str) -> Bundle:
    return Bundle(
        kind=kind,
        name="b",
        root=Path("/b"),
        config_name="",
        config={},
        backend=None,
        extensions={},
        qairt=None,
        qairt_source="",
        contexts=(),
        files=tuple(FileRef(Path("/b", name), name, 1, "0" * 64) for name in names),
        missing=(),
    )


def kit(kind: str, names: tuple[str, ...], run: RunSpec | None = None, **changes: Any) -> Kit:
    return Kit(bundle(kind, *names), run or RunSpec(), **changes)


def gguf(data: bytes = b"") -> bytes:
    """A GGUF file of one tensor with no elements, followed by `data`."""
    architecture = b"general.architecture", b"llama"
    key, value = (struct.pack("<Q", len(text)) + text for text in architecture)
    tensor = struct.pack("<Q", 1) + b"t" + struct.pack("<IQIQ", 1, 0, 0, 0)
    head = b"GGUF" + struct.pack("<IQQ", 3, 1, 1) + key + struct.pack("<I", 8) + value + tensor
    return head + bytes(-len(head) % 32) + data
