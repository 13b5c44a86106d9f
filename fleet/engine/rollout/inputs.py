"""The inputs of a run: their places, and a check that they have not changed."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path

from msgspec import Struct

from fleet.model.bundle import Bundle
from fleet.model.errors import InputError
from fleet.model.files import file_errors, sha256_file
from fleet.model.playbook import Playbook


class Inputs(Struct, frozen=True):
    """The given files and patterns. Paths are absolute."""

    playbook: Path
    inventory: Path
    limit: tuple[str, ...] = ()
    lock_file: Path | None = None

    @property
    def kept(self) -> bool:
        """True if the files can be read again, which a pipe cannot."""
        files = (self.playbook, self.inventory, self.lock_file)
        return all(path is None or path.is_file() for path in files)


def inputs_of(
    playbook: Path, inventory: Path, limit: list[str] | None = None, lock_file: Path | None = None
) -> Inputs:
    """Return inputs with absolute paths, so that a run can be resumed from any folder."""
    lock = lock_file.absolute() if lock_file else None
    return Inputs(playbook.absolute(), inventory.absolute(), tuple(limit or ()), lock)


def file_hashes(inputs: Inputs) -> dict[str, str]:
    """Return file → sha256 of its content. Raises InputError for a missing file."""
    hashes = {f"playbook {inputs.playbook}": _file(inputs.playbook)}
    hashes[f"inventory {inputs.inventory}"] = _file(inputs.inventory)
    if inputs.lock_file is not None:
        hashes[f"lock file {inputs.lock_file}"] = _file(inputs.lock_file)
    return hashes


def content_hashes(playbook: Playbook, bundle: Bundle) -> dict[str, str]:
    """Return the hashes of the playbook's prompt and bundle with its op packages.

    Nothing is read, because the hashes of the bundle's files are already known.
    """
    hashes = {}
    if playbook.run is not None:
        text = playbook.run.prompt.encode()
        hashes[f"prompt of {playbook.path}"] = hashlib.sha256(text).hexdigest()
    packages = [library.file for package in bundle.op_packages for library in package.libraries]
    lines = sorted(f"{item.name} {item.sha256}\n" for item in (*bundle.files, *packages))
    hashes[f"bundle {playbook.bundle}"] = hashlib.sha256("".join(lines).encode()).hexdigest()
    return hashes


def require_same(then: Mapping[str, str], now: dict[str, str], run_id: str) -> None:
    """Raise InputError that names the inputs that have changed since the run began."""
    changed = [name for name, value in now.items() if then.get(name) != value]
    if changed:
        raise InputError(
            f"these inputs changed since run {run_id} began: {', '.join(changed)}",
            hint="fleet deploy (starts a new run), or "
            f"fleet deploy --resume {run_id} --force-inputs",
        )


def _file(path: Path) -> str:
    with file_errors(path):
        return sha256_file(path)
