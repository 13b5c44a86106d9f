"""`fleet.yaml`: the defaults for a folder of inventories and playbooks."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fleet.config.hostvars import HostKey, ValuePlace, key_of, whole_number
from fleet.config.problems import Problems, suggest_or_list
from fleet.config.trusted import require
from fleet.config.values import FILE_PATH
from fleet.config.yamlpos import read
from fleet.model.errors import InputError
from fleet.model.home import fleet_home


def _count(description: str) -> HostKey:
    return HostKey(description, whole_number(9999, "write a number from 1 to 9999"))


PATHS: Mapping[str, HostKey] = {
    "inventory": key_of("The inventory of commands without --inventory.", FILE_PATH),
    "playbook": key_of("The playbook of commands that name none.", FILE_PATH),
    "runs": key_of(
        "Folder of records, journals and undo logs; default: one for this project in FLEET_HOME.",
        FILE_PATH,
    ),
}
KEYS: Mapping[str, HostKey] = {
    **PATHS,
    "parallel": _count("Number of devices to work on in parallel, like --parallel."),
    "repeats": _count("Number of measured runs of `fleet run`, like --repeats."),
    "executor": key_of(
        "dask://SCHEDULER:PORT, like --executor.", r"dask://\S+", "executor",
        "write dask://SCHEDULER:PORT",
    ),
}  # fmt: skip


@dataclass(frozen=True)
class Project:
    """The values of a fleet.yaml; paths are absolute. A missing key is None."""

    file: Path
    runs: Path
    inventory: Path | None = None
    playbook: Path | None = None
    parallel: int | None = None
    repeats: int | None = None
    executor: str | None = None


def load(path: Path) -> Project:
    """Read a fleet.yaml.

    Raises InputError if the file is not trusted, and for the first error, with line and column.
    """
    require(path)
    problems = Problems(InputError)
    document = read(path, InputError, problems)
    values: dict[str, Any] = {}
    for name, value in document.data.items():
        known, place = KEYS.get(name), ValuePlace(document, problems, (name,))
        if known is None:
            hint = suggest_or_list(name, tuple(KEYS))
            problems.add(f"unknown key '{name}'", document.key((name,)), hint)
        else:
            values[name] = known.take(place, value)
    problems.raise_first()
    for name in PATHS.keys() & values.keys():
        values[name] = path.parent / Path(values[name]).expanduser()
    return Project(path, **{"runs": _runs(path.parent), **values})


def _runs(folder: Path) -> Path:
    mark = hashlib.sha256(os.fsencode(folder.resolve())).hexdigest()[:8]
    return fleet_home() / "projects" / f"{folder.resolve().name or 'root'}-{mark}" / "runs"


def project_schema() -> dict[str, Any]:
    """Return the JSON Schema of a fleet.yaml, without dialect and title."""
    keys = {name: {"description": key.description, **key.schema} for name, key in KEYS.items()}
    return {"type": "object", "additionalProperties": False, "properties": keys}
