"""Names of fleet's own files in a release folder: no file that is deployed can have them.

The programs that write them: fleet/device/sh/store/{stage,stage_tar,switch}.sh and those of
fleet/device/store. tests/ops/test_own_names.py reads them, and fails for a name that is not here.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from fleet.model.errors import InputError

KEPT = ("env.sh", "env.ps1", "manifest.json", ".installed")
PASSING = (".files", ".end", ".new-link")  # while a release folder is made
STAMP = ".seal"  # what begins so, in any folder: seals of earlier versions leave all of it out
CURE = "rename the file, or move it into a subfolder"

_ROOT = frozenset((*KEPT, *(f"{name}.new" for name in KEPT), *PASSING))


def own_name(name: str, *, windows: bool = False) -> str:
    """The part of a file's name in a release that is a name of fleet's own, "" for none.

    `windows`: as Windows reads it, which ignores case, blanks and dots at the end, and a stream.
    """
    if not windows and name.partition("/")[0] not in _ROOT and STAMP not in name and name[0] != ".":
        return ""
    parts = [part for part in name.split("/") if part not in {"", "."}]
    read = [part.partition(":")[0].rstrip(" .").casefold() if windows else part for part in parts]
    for part, seen in zip(parts, read, strict=True):
        if seen.startswith(STAMP):
            return part
    return parts[0] if read[0] in _ROOT else ""


def taken(names: Iterable[str], *, windows: bool = False) -> Iterator[tuple[str, str]]:
    """Of the files that would stand in the place of one of fleet's own, name and reason."""
    for name in names:
        own = own_name(name, windows=windows)
        if own:
            yield name, f"{name} cannot be deployed: the name {own} is reserved for a file of fleet"


def refuse(names: Iterable[str], *, windows: bool = False) -> None:
    """Raise InputError for the first of them."""
    for _, why in taken(names, windows=windows):
        raise InputError(why, hint=CURE)
