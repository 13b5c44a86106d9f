"""File names in a bundle's configuration. Only files inside the bundle are accepted."""

from __future__ import annotations

import os
import re
from pathlib import Path, PurePosixPath

from fleet.model.errors import BundleError, InputError, reason
from fleet.model.files import check_name

_LONGEST = 1024
_ODD = re.compile("[\n\t\0\ud800-\udfff]")
_CURE = "move the file into the bundle folder, and write its relative path into"


def clean_name(text: str, named_by: str) -> str:
    """Return a name in its short form: `./a//b.bin` → `a/b.bin`.

    Raises BundleError for a name that leads out of the bundle.
    """
    try:
        text.encode("utf-8")
        check_name(text)
    except (UnicodeEncodeError, InputError) as error:
        raise BundleError(
            f"{named_by} refers to {text!r}, but this is outside the bundle folder or not a "
            "file name",
            hint=f"{_CURE} {named_by}",
        ) from error
    return PurePosixPath(text).as_posix()


def name_in(root: Path, text: str, *, files_only: bool = False) -> str | None:
    r"""Return the name in the bundle of a file or folder that a configuration spells `text`.

    The name itself is tried first. For a path of another system or machine (`models\a.bin`,
    `C:\x\a.bin`, `/sdcard/x/a.bin`, `your/path/to/a.bin`), the longest end of the path that
    exists in the bundle is returned. Returns None if the bundle has no such file, or with
    `files_only` only a folder.
    """
    if len(text) > _LONGEST or _ODD.search(text):
        return None
    parts = [part for part in re.split(r"[/\\]", text) if part not in {"", "."}]
    if ".." in parts or not parts or (files_only and parts == [text] and "." not in text):
        return None
    foreign = "\\" in text or text.startswith("/") or parts[0].endswith(":")
    for start in range(len(parts) if foreign or not files_only else 1):
        name = "/".join(parts[start:])
        path = os.path.join(root, name)  # noqa: PTH118
        if os.path.isfile(path) or (not files_only and os.path.isdir(path)):  # noqa: PTH112, PTH113
            return name
    return None


def inside(root: Path, name: str, named_by: str) -> Path | None:
    """Return the path of the regular file `name` of the bundle, or None if there is none.

    Raises BundleError for a link that leads out of the bundle. Its target is not a part of the
    bundle, and is often missing on the next machine.
    """
    path = root / name
    real = os.path.realpath(path)
    if not Path(real).is_relative_to(os.path.realpath(root)):
        raise BundleError(
            f"{named_by} refers to {name}, but this is a symbolic link to {real}, outside the "
            "bundle folder",
            hint=f"cp --remove-destination '{real}' '{path}' (replaces the link with the file)",
        )
    try:
        return path if path.is_file() else None
    except (OSError, ValueError) as error:
        raise BundleError(
            f"{named_by} refers to the file {name}, but fleet cannot read this file: "
            f"{reason(error)}",
            hint=f"correct the path in {named_by}",
        ) from error


def refuse_case_twins(names: list[str]) -> None:
    """Raise BundleError if two names differ only in case.

    Memory cards and Windows hosts would keep only one of the two files.
    """
    spellings: dict[str, str] = {}
    for name in names:
        other = spellings.setdefault(name.casefold(), name)
        if other != name:
            raise BundleError(
                f"the names of the files {other} and {name} differ only in upper and lower "
                "case, so Windows and some file systems would keep only one of these files",
                hint="rename one of the two files, and correct its name in the bundle's "
                "configuration",
            )
