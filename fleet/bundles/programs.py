"""A user's own programs and libraries: what they are linked with has to be there.

A program whose library is not on the device was seen to be sent whole, 16 MB, and to end with
status 127 (`libgomp.so.1: cannot open shared object file`).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from pathlib import Path

from fleet.bundles.elfsymbols import NotReadableError, read_dynamic
from fleet.data import load
from fleet.model.files import FileRef
from fleet.model.finding import Finding

RULE = "program-needs"


def needs(own: Collection[Path], files: Iterable[FileRef]) -> dict[str, tuple[str, ...]]:
    """Library → files of the user's that are linked with it, but for those of the release.

    `own` are program and libraries of the run, `files` is all of the release. What is no ELF
    file that a loader takes (a script, one without a dynamic segment) needs nothing.
    """
    names = {item.name.rsplit("/", 1)[-1] for item in files}
    found: dict[str, list[str]] = {}
    for path in own:
        try:
            dynamic = read_dynamic(path.read_bytes())
        except (NotReadableError, OSError):
            continue
        for library in dynamic.needed:
            if library not in names:
                found.setdefault(library, []).append(path.name)
    return {library: tuple(users) for library, users in sorted(found.items())}


def lacking(wanted: Mapping[str, tuple[str, ...]], there: Collection[str]) -> tuple[Finding, ...]:
    """A refusal for each library that neither the release nor the device has."""
    return tuple(
        Finding(
            RULE,
            "refuse",
            f"{' and '.join(users)} would not start: {library}, which the loader needs, is "
            "neither in the release nor on the device",
            f"no {library}",
            library,
            f"add {library} to `run: libraries:` in the playbook, or install it on the device",
            "DT_NEEDED of the file; ld.so(8)",
        )
        for library, users in wanted.items()
        if library not in there
    )


def executorch_pair(own: Collection[Path], qairt: str, *, emulator: bool) -> tuple[Finding, ...]:
    """An ExecuTorch and a QAIRT version that were seen to fail together on x86_64.

    A refusal only there, and only of the backend that was tried, which is known by its name: a
    build of the user's own may have other headers.
    """
    row = load("qairt_releases")["executorch"]
    if qairt not in row["fails"]:
        return ()
    tried = any(path.name == row["backend"] for path in own)
    where = "" if emulator else "; nobody has tried them on hardware"
    works = row["works"]
    return (
        Finding(
            "executorch-qairt",
            "refuse" if emulator and tried else "warn",
            f"{row['backend']} of ExecuTorch {row['version']} with QAIRT {qairt} fails with "
            f"error 14001 on the emulator (`unknown custom config socModel 0`){where}",
            f"QAIRT {qairt}",
            f"QAIRT {works}, or a backend built with the headers of {qairt}",
            f'set `runtime: "{works}"` in the playbook, or build the backend with the headers of '
            f"QAIRT {qairt}",
            "docs/runners.md: QnnDevice_create with both forms of QnnHtpDevice_CustomConfig_t",
        ),
    )
