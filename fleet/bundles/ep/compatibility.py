"""The compatibility record that ONNX Runtime reads before it loads a compiled model."""

from __future__ import annotations

from dataclasses import dataclass

_PARTS = 8


@dataclass(frozen=True)
class Compatibility:
    """The fields of a record such as `v2:6:2.51.0:5.51.0:73:77:0:0`.

    The form is that of the script in the wheel of onnxruntime-qnn. `archs`, `soc_models` and
    `vtcm_mb` are empty if the record has 0 or nothing in their place.
    """

    backend_id: int
    qairt: str
    backend_api: str
    archs: tuple[int, ...]
    soc_models: tuple[int, ...]
    vtcm_mb: tuple[int, ...]


def parse(text: str) -> Compatibility | None:
    """Parse a record. Returns None for a text of another form or version.

    Such a text is unknown, not wrong.
    """
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
