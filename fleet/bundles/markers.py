"""Plain text that stands in every context binary: build id, SoC, Hexagon arch, VTCM.

Used where no libQnnSystem can be loaded. fleet has no parser of the binary layout.
Source: docs/sources/qairt.md 3 (QAIRT 2.47 to 2.51).
"""

from __future__ import annotations

import mmap
import re
from dataclasses import dataclass
from pathlib import Path

_BUILD_ID = re.compile(rb"v(\d{1,3}\.\d{1,4}\.\d{1,4}\.\d{6,12})(?:_\d+)?(?!\d)")
_SOC = re.compile(rb"soc_type=([A-Za-z0-9_]{1,40});arch=(\d{2,3});")
_VTCM = re.compile(rb"vtcm_size=(\d{1,12})(?!\d)")
_UNKNOWN_SOC = "UNKNOWN_SDM"  # compiled with neither soc_model nor arch; its arch text says 68
_MEBI = 1024 * 1024


@dataclass(frozen=True)
class Markers:
    """What the text says; None for what it does not say."""

    build_id: str | None = None
    soc_type: str | None = None
    hexagon_arch: str | None = None
    vtcm_mb: int | None = None


def read_markers(path: Path) -> Markers:
    """The first of each marker. Reads up to the whole file, about 1 GB/s. Raises OSError."""
    if path.stat().st_size == 0:
        return Markers()
    with path.open("rb") as stream, mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ) as data:
        build = _BUILD_ID.search(data)
        if build is None:
            return Markers()
        soc = _SOC.search(data)
        vtcm = _VTCM.search(data)
        name = soc[1].decode("ascii") if soc else None
        arch = f"v{int(soc[2])}" if soc else None
        known = name != _UNKNOWN_SOC
        return Markers(
            build_id=build[1].decode("ascii"),
            soc_type=name if known else None,
            hexagon_arch=arch if known else None,
            vtcm_mb=megabytes(int(vtcm[1])) if vtcm else None,
        )


def megabytes(count: int) -> int | None:
    """Bytes of VTCM as MB of 2^20, rounded up; None for 0, which stands for no answer."""
    return -(-count // _MEBI) if count else None
