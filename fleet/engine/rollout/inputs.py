"""What a run was started with: where it stands, and whether it is still the same."""

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
    """The files and patterns that were given. Paths are absolute."""

    playbook: Path
    inventory: Path
    limit: tuple[str, ...] = ()
    lock_file: Path | None = None

    @property
    def kept(self) -> bool:
        """True when they can be read again: a pipe cannot."""
        files = (self.playbook, self.inventory, self.lock_file)
        return all(path is None or path.is_file() for path in files)


def inputs_of(
    playbook: Path, inventory: Path, limit: list[str] | None = None, lock_file: Path | None = None
) -> Inputs:
    """The same with absolute paths, so that a run can be resumed from any folder."""
    lock = lock_file.absolute() if lock_file else None
    return Inputs(playbook.absolute(), inventory.absolute(), tuple(limit or ()), lock)


def file_hashes(inputs: Inputs) -> dict[str, str]:
    """What is read → sha256 of its content. Raises InputError for a file that is gone."""
    found = {f"playbook {inputs.playbook}": _file(inputs.playbook)}
    found[f"inventory {inputs.inventory}"] = _file(inputs.inventory)
    if inputs.lock_file is not None:
        found[f"lock file {inputs.lock_file}"] = _file(inputs.lock_file)
    return found


def content_hashes(playbook: Playbook, bundle: Bundle) -> dict[str, str]:
    """The same for what the playbook names: the prompt, and the bundle with its op packages.

    Nothing is read: the hashes of the bundle's files are known since it was inspected.
    """
    found = {}
    if playbook.run is not None:
        text = playbook.run.prompt.encode()
        found[f"prompt of {playbook.path}"] = hashlib.sha256(text).hexdigest()
    packages = [library.file for package in bundle.op_packages for library in package.libraries]
    lines = sorted(f"{item.name} {item.sha256}\n" for item in (*bundle.files, *packages))
    found[f"bundle {playbook.bundle}"] = hashlib.sha256("".join(lines).encode()).hexdigest()
    return found


def require_same(then: Mapping[str, str], now: dict[str, str], run_id: str) -> None:
    """Raise InputError naming what is not what the run was begun with."""
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
