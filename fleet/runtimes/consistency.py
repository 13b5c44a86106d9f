"""A check that a runtime has one build: mixed stub, skel and backend fail with 1008 or 14001.

From QAIRT 2.48.40 on, the stub requests a symbol of the skel with the version in its name, so a mix
cannot work (docs/sources/qairt.md 1; `Stub lib id mismatch` in section 6).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from fleet.model.errors import RuntimeStoreError
from fleet.model.finding import Finding
from fleet.model.runtime import BROUGHT, Library, Runtime, RuntimeSource, no_runtime
from fleet.runtimes.scan import scan_file

_CURE = "extract the SDK again into an empty folder, so that files of two QAIRT versions do not mix"
_SOURCE = "docs/sources/qairt.md 1, 6"
_BACKENDS = ("libQnnHtp.so", "QnnHtp.dll")
_ONE_RUN = re.compile(r"Htp|Genie")  # backend, Prepare, stubs, skels, NetRunExtensions, Genie


def build_of(libraries: Sequence[Library]) -> Library | None:
    """Return the file that defines the build: libQnnHtp, else an HTP file, else any with a build
    id.
    """
    known = sorted(
        (item for item in libraries if item.build_id),
        key=lambda item: _ONE_RUN.search(item.name) is None,
    )
    return next((item for item in known if item.name in _BACKENDS), known[0] if known else None)


def check_consistent(libraries: Sequence[Library]) -> list[Finding]:
    """Return a finding for every file of another build than libQnnHtp; [] if all agree.

    HTP and Genie files are refused. Others (Gpu, Saver, Ir) take no part in an HTP run and give a
    warning. Files without a version (libQnnSystem, libc++) are ignored.
    """
    reference = build_of(libraries)
    if reference is None or reference.build_id is None:
        return []
    return [
        finding
        for item in libraries
        if (finding := _against(item, reference, reference.build_id)) is not None
    ]


def _against(item: Library, reference: Library, build: str) -> Finding | None:
    version = build.rsplit(".", 1)[0]
    if item.build_id is not None:
        have, need = item.build_id, build
    elif item.aisw_version is not None:
        have, need = item.aisw_version, version
    else:
        return None
    if have == need:
        return None
    return Finding(
        rule="one-build",
        severity="refuse" if _ONE_RUN.search(item.name) else "warn",
        message=f"{item.path} is from QAIRT {have}, but {reference.path} is from {build}",
        have=have,
        need=need,
        cure=_CURE,
        source=_SOURCE,
    )


def require_consistent(libraries: Sequence[Library], where: str) -> None:
    """Raise RuntimeStoreError with one mixed pair and the number of others.

    A pair with two full build ids is preferred, because it is the most informative.
    """
    problems = [item for item in check_consistent(libraries) if item.refuses]
    if not problems:
        return
    more = f" (and {len(problems) - 1} more files)" if len(problems) > 1 else ""
    clearest = max(problems, key=lambda item: item.have.count("."))
    raise RuntimeStoreError(f"{where} mixes QAIRT versions: {clearest.message}{more}", hint=_CURE)


def carried_runtime(folder: Path | None, target: str) -> Runtime:
    """Return the QAIRT that a program has in one flat folder, for the pre-flight only.

    Without one, return the empty runtime. Raises RuntimeStoreError for a damaged library.
    """
    none = no_runtime(target)
    paths = sorted(folder.glob("lib*.so*")) if folder is not None else []
    libraries = tuple(scan_file(path, path.name) for path in paths)
    witness = build_of(libraries)
    if folder is None or witness is None or witness.build_id is None:
        return none
    build = witness.build_id
    skels = {item.hexagon_arch for item in libraries if item.name.endswith("Skel.so")}
    return replace(
        none,
        id=f"qairt-{build} of the program",
        version=build.rsplit(".", 1)[0],
        build_id=build,
        root=folder,
        hexagon_archs=tuple(sorted(filter(None, skels))),
        source=RuntimeSource(BROUGHT, str(folder)),
        libraries=libraries,
    )
