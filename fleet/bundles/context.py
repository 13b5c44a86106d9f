"""A context binary: its compiler, its chip, and whether the file is complete.

libQnnSystem refuses every truncated or extended file (QNN_SYSTEM_CONTEXT_ERROR_MALFORMED_BINARY,
30010; 30001 for an empty file). This was measured with cuts of 1, 16, 4096 bytes and more on files
of QAIRT 2.47 and 2.51. libQnnSystem does not detect changed or zeroed weights; only a hash does.
"""

from __future__ import annotations

import json
import mmap
import os
import re
import signal
import subprocess
import sys
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from fleet.bundles.content import HEAD, described
from fleet.model.bundle import ContextBinary
from fleet.model.errors import BundleError, reason
from fleet.model.files import sha256_file

# Markers: plain text in every context binary with build id, SoC, Hexagon arch and VTCM.
#
# fleet reads them if no libQnnSystem can be loaded. It has no parser of the binary layout.
# Source: docs/sources/qairt.md 3 (QAIRT 2.47 to 2.51).

_MARKERS_BUILD_ID = re.compile(rb"v(\d{1,3}\.\d{1,4}\.\d{1,4}\.\d{6,12})(?:_\d+)?(?!\d)")
_SOC = re.compile(rb"soc_type=([A-Za-z0-9_]{1,40});arch=(\d{2,3});")
_VTCM = re.compile(rb"vtcm_size=(\d{1,12})(?!\d)")
_UNKNOWN_SOC = "UNKNOWN_SDM"  # compiled with neither soc_model nor arch; its arch text is 68
_MEBI = 1024 * 1024


@dataclass(frozen=True)
class Markers:
    """The values of the markers, None for a missing marker."""

    build_id: str | None = None
    soc_type: str | None = None
    hexagon_arch: str | None = None
    vtcm_mb: int | None = None


def read_markers(path: Path) -> Markers:
    """Return the first value of each marker. Raises OSError.

    Reads up to the whole file, at about 1 GB/s.
    """
    if path.stat().st_size == 0:
        return Markers()
    with path.open("rb") as stream, mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ) as data:
        build = _MARKERS_BUILD_ID.search(data)
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
    """Return bytes of VTCM as MB of 2^20 bytes, rounded up, or None for 0, which means unknown."""
    return -(-count // _MEBI) if count else None


SECONDS = 30.0  # a 3 GB file took 0.3 s; a cold disk or NFS takes longer
_CODES = {
    30001: "the file is empty",
    30010: "truncated or damaged (QNN_SYSTEM_CONTEXT_ERROR_MALFORMED_BINARY, 30010)",
}
_NO_MARKERS = "the file is not a context binary, or is damaged: it contains no QAIRT build id; {}"
_LIBRARY = "libQnnSystem"
_TEXT = "markers"
_HTP = 6
_BUILD_ID = re.compile(r"v?(\d{1,3}\.\d{1,4}\.\d{1,4}\.\d{6,12})(_.*)?")
_PACKAGE_PARENT = str(Path(__file__).parents[2])


def inspect_context(
    path: Path, system_library: Path | None = None, *, name: str = "", sha256: str | None = None
) -> ContextBinary:
    """Return the known facts of a context binary. A damaged binary has a `problem`; it is no error.

    `system_library` is an x86_64 libQnnSystem.so that this host can load. Without the library, or
    if it cannot be loaded, the plain-text markers are read. `name` is the name in the bundle.
    `sha256` is a known hash of the file. Raises BundleError if the file cannot be read.
    """
    try:
        size = path.stat().st_size
        digest = sha256_file(path) if sha256 is None else sha256
        base = ContextBinary(name or path.name, size, digest, "nothing")
        if size == 0:
            return replace(base, problem="the file is empty")
        markers = read_markers(path)
        with path.open("rb") as stream:
            head = stream.read(HEAD)
    except (OSError, ValueError) as error:
        raise BundleError(
            f"the context binary {path} cannot be read: {reason(error)}",
            hint=f"correct the path; ls -l {path.parent} (shows what is there)",
        ) from error
    answer = ask_library(system_library, path) if system_library else None
    if answer is None:
        return _from_markers(base, markers, head)
    return _from_library(base, markers, answer)


def _from_markers(base: ContextBinary, markers: Markers, head: bytes) -> ContextBinary:
    if markers.build_id is None:
        return replace(base, problem=_NO_MARKERS.format(described(head)))
    return replace(base, read_by=_TEXT, **vars(markers))


def _from_library(base: ContextBinary, markers: Markers, answer: dict[str, Any]) -> ContextBinary:
    base = replace(base, read_by=_LIBRARY, **vars(markers))
    info = answer.get("binary")
    if info is None:
        return replace(base, problem=answer["problem"])
    graphs = answer.get("graphs", [])
    vtcm = [item["vtcm"] for item in graphs if item["vtcm"]]
    arch, model = info.get("dsp_arch"), info.get("soc_model")
    problem = ""
    if info["blob_size"] > base.size:
        problem = (
            f"truncated: the file has {base.size} bytes, but its context alone needs "
            f"{info['blob_size']}"
        )
    build = _BUILD_ID.fullmatch(info["build_id"].strip())
    if build is None:
        problem = problem or (f"damaged: its QAIRT build id is {info['build_id']!r:.40}")
    unknown = not arch or (arch == 68 and not model)  # docs/sources/deployment.md 4
    return replace(
        base,
        build_id=build[1] if build else base.build_id,
        soc_model=model or None,
        hexagon_arch=None if unknown else f"v{arch}",
        soc_type=None if unknown and arch else base.soc_type,
        backend_api=info["backend_api"],
        backend_id=info["backend_id"],
        blob_version=info["blob_version"],
        blob_size=info["blob_size"],
        graphs=tuple(item["name"] for item in graphs),
        graph_vtcm_mb=megabytes(max(vtcm)) if vtcm else None,
        problem=problem,
    )


def ask_library(library: Path, path: Path) -> dict[str, Any] | None:
    """Return the output of the reading process, or None if the library cannot be used.

    If the file cannot be read, the answer has a `problem`.
    """
    environment = {
        "PATH": os.defpath,
        "PYTHONPATH": _PACKAGE_PARENT,
        "LD_LIBRARY_PATH": str(library.parent),
    }
    argv = [sys.executable, "-m", "fleet.bundles.qnnsystem", str(library), str(path.absolute())]
    try:
        done = subprocess.run(
            argv, env=environment, capture_output=True, timeout=SECONDS, check=False
        )
    except subprocess.TimeoutExpired as error:
        if not error.stdout:
            return None  # the library hangs before the file is opened
        return {"problem": f"libQnnSystem did not finish reading the file within {SECONDS:g} s"}
    except OSError:
        return None
    answer: dict[str, Any] = {}
    for line in done.stdout.splitlines():
        try:
            answer |= json.loads(line)
        except ValueError:
            continue  # a line that was cut by a crash
    if "system" not in answer:
        return None
    if "binary" not in answer:
        answer["problem"] = _problem(answer.get("code"), done.returncode)
    return answer


def _problem(code: int | None, status: int) -> str:
    if code is not None:
        return _CODES.get(code, f"libQnnSystem rejects the file with error {code}")
    if status < 0:
        return f"damaged: libQnnSystem crashed on it with {signal.Signals(-status).name}"
    return "damaged: libQnnSystem could not read the file"


def is_htp(context: ContextBinary) -> bool:
    """Return True unless the file is known to be for another backend, such as the GPU."""
    return context.backend_id in {None, _HTP}
