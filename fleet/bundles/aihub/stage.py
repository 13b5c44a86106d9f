"""A folder that is there whole or not at all."""

from __future__ import annotations

import fcntl
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from fleet.model.errors import AiHubError, InputError, reason


def require_free(folder: Path) -> None:
    """Raises InputError when something is there already."""
    if folder.exists() or folder.is_symlink():
        raise InputError(
            f"the folder {folder} already exists, and fleet does not overwrite it",
            hint=f"name another folder with -o FOLDER, or remove {folder}",
        )
    if not folder.parent.is_dir():
        raise InputError(f"there is no folder {folder.parent}", hint=f"mkdir -p '{folder.parent}'")


@contextmanager
def whole(folder: Path) -> Iterator[Path]:
    """An empty folder beside `folder`; renamed to it at the end, removed when something fails.

    What a killed process left is removed first. Raises AiHubError while another process makes
    the same folder, InputError when somebody else made it meanwhile.
    """
    require_free(folder)
    stage = folder.with_name(f".{folder.name}.part")
    try:
        stage.mkdir(exist_ok=True)
        descriptor = os.open(stage, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    except OSError as error:
        raise AiHubError(
            f"the folder {folder.parent} cannot be written: {reason(error)}",
            hint="name a folder that you can write to: -o FOLDER",
        ) from error
    try:
        _lock(descriptor, folder)
        shutil.rmtree(stage / "bundle", ignore_errors=True)
        shutil.rmtree(stage / "download", ignore_errors=True)
        try:
            bundle = stage / "bundle"
            bundle.mkdir()
            yield bundle
            require_free(folder)
            bundle.rename(folder)
        finally:
            shutil.rmtree(stage, ignore_errors=True)
    finally:
        os.close(descriptor)


def _lock(descriptor: int, folder: Path) -> None:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        raise AiHubError(
            f"another fleet process is writing to {folder}",
            hint="wait until the other process has ended, or name another folder: -o FOLDER",
        ) from None
