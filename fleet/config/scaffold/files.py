"""Several files at once: all of them, or none; never one that was there before."""

from __future__ import annotations

import os
import secrets
from collections.abc import Mapping
from pathlib import Path

from fleet.model.errors import InputError, reason


def write_all(files: Mapping[Path, str]) -> None:
    """Write the files beside their places, then give them their names.

    Raises InputError when one exists (also one that appears meanwhile) or cannot be written;
    files and folders made so far are then taken away.
    """
    made: list[Path] = []
    folders: list[Path] = []
    try:
        for path in files:
            if os.path.lexists(path):
                raise FileExistsError(0, "", str(path))
        parts = {}
        for path, text in files.items():
            _make(path.parent, folders)
            parts[path] = path.with_name(f".{path.name}.{secrets.token_hex(4)}.part")
            with parts[path].open("x", encoding="utf-8") as stream:
                made.append(parts[path])
                stream.write(text)
        for path, part in parts.items():
            _name(part, path)
            made.append(path)
        for part in parts.values():
            part.unlink(missing_ok=True)
    except BaseException as error:
        _take_away(made, folders)
        if isinstance(error, FileExistsError):
            raise InputError(
                f"fleet wrote nothing, because the file {error.filename2 or error.filename} "
                "exists already",
                hint="fleet init FOLDER (writes to another folder)",
            ) from error
        if isinstance(error, OSError):
            raise InputError(
                f"fleet wrote nothing, because it cannot write {error.filename}: {reason(error)}",
                hint="fleet init FOLDER (writes to another folder)",
            ) from error
        raise


def _name(part: Path, path: Path) -> None:
    """A link, since a rename would replace; file systems without links get a look and a rename."""
    try:
        os.link(part, path)
    except FileExistsError:
        raise
    except OSError:
        if os.path.lexists(path):
            raise FileExistsError(0, "", str(path)) from None
        part.replace(path)


def _make(folder: Path, made: list[Path]) -> None:
    lacking = [parent for parent in (folder, *folder.parents) if not os.path.lexists(parent)]
    for parent in reversed(lacking):
        parent.mkdir()
        made.append(parent)


def _take_away(files: list[Path], folders: list[Path]) -> None:
    for path in files:
        path.unlink(missing_ok=True)
    for folder in reversed(folders):
        try:
            folder.rmdir()
        except OSError:  # somebody put something in
            return
