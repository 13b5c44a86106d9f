"""The record by which ONNX Runtime judges a compiled model before it loads it."""

from __future__ import annotations

from dataclasses import dataclass

_PARTS = 8


@dataclass(frozen=True)
class Compatibility:
    """`v2:6:2.51.0:5.51.0:73:77:0:0`, as the script in the wheel of onnxruntime-qnn has it.

    `archs`, `soc_models`, `vtcm_mb` are empty where the record says 0 or nothing.
    """

    backend_id: int
    qairt: str
    backend_api: str
    archs: tuple[int, ...]
    soc_models: tuple[int, ...]
    vtcm_mb: tuple[int, ...]


def parse(text: str) -> Compatibility | None:
    """None for text of another form or version: unknown, not wrong."""
    parts = text.strip().split(":")
    if len(parts) != _PARTS or parts[0] != "v2":
        return None
    try:
        archs, models, vtcm = (_numbers(part) for part in parts[4:7])
        backend = int(parts[1])
    except ValueError:
        return None
    return Compatibility(backend, parts[2], parts[3], archs, models, vtcm)


def _numbers(part: str) -> tuple[int, ...]:
    return tuple(number for text in part.split(",") if (number := int(text or 0)))
