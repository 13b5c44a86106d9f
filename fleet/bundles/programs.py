"""Programs of the user's or of the SDK: what they are linked with has to be there.

A program whose library is not on the device was seen to be sent whole, 16 MB, and to end with
status 127 (`libgomp.so.1: cannot open shared object file`); qnn-net-run of SDK 2.25 with 112 MB
(`libpython3.10.so.1.0`).
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path

from fleet.bundles.elfsymbols import NotReadableError, read_needed
from fleet.bundles.rule import install
from fleet.data import load
from fleet.model.facts import Facts
from fleet.model.files import FileRef
from fleet.model.finding import Finding

RULE = "program-needs"
_PACKAGES = {  # of Debian 12 and Ubuntu 22.04; libc++1 comes with the libunwind.so.1 that it needs
    "libatomic.so.1": "libatomic1",
    "libc++.so.1": "libc++1",
    "libc++abi.so.1": "libc++abi1",
    "libgcc_s.so.1": "libgcc-s1",
    "libgomp.so.1": "libgomp1",
    "libstdc++.so.6": "libstdc++6",
    "libunwind.so.1": "libc++1",
}


def needs(own: Collection[Path], files: Iterable[FileRef]) -> dict[str, tuple[str, ...]]:
    """Library → programs and libraries that are linked with it, but for those of the release.

    `own` are the programs and the user's libraries, `files` is all of the release. What is no ELF
    file that a loader takes (a script, one without a dynamic segment) needs nothing.
    """
    names = {item.name.rsplit("/", 1)[-1] for item in files}
    found: dict[str, list[str]] = {}
    for path in own:
        try:
            needed = read_needed(path.read_bytes())
        except (NotReadableError, OSError):
            continue
        for library in needed:
            if library not in names:
                found.setdefault(library, []).append(path.name)
    return {library: tuple(users) for library, users in sorted(found.items())}


def lacking(
    wanted: Mapping[str, tuple[str, ...]], there: Collection[str], facts: Facts
) -> tuple[Finding, ...]:
    """A refusal for each library that neither the release nor the device has."""
    return tuple(
        Finding(
            RULE,
            "refuse",
            f"{' and '.join(users)} would not start: {library}, which the loader needs, is "
            "neither in the release nor on the device",
            f"no {library}",
            library,
            _cure(library, facts),
            "DT_NEEDED of the file; ld.so(8)",
        )
        for library, users in wanted.items()
        if library not in there
    )


def _cure(library: str, facts: Facts) -> str:
    """With the package where the device's own distribution has it."""
    package = _PACKAGES.get(library)
    python = re.fullmatch(r"libpython(3\.[0-9]+)\.so\.1\.0", library)
    if python and (facts.tools.python3_version or "").startswith(f"{python[1]}."):
        package = f"libpython{python[1]}"
    if package and facts.android is None and facts.os_id in {"debian", "ubuntu"}:
        return (
            f"{install(facts, package)}, or name a copy of {library} under "
            "`run: libraries:` in the playbook"
        )
    return (
        f"name a copy of {library}, made for this device, under `run: libraries:` in the playbook"
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
