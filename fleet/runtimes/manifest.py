"""`runtime.json`: what the store knows of a runtime, and the only proof that it is complete."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import asdict
from pathlib import Path
from typing import Any

from fleet.model.errors import RuntimeStoreError, reason
from fleet.model.files import sha256_file
from fleet.model.runtime import Library, Runtime, RuntimeSource
from fleet.runtimes.layout import targets_of

NAME = "runtime.json"
_SCHEMA = 1


def make(
    build_id: str, root: Path, sources: tuple[RuntimeSource, ...], libraries: Iterable[Library]
) -> Runtime:
    """A Runtime of these files; version, targets and Hexagon archs follow from them."""
    ordered = tuple(sorted(libraries, key=lambda item: item.path))
    skels = {item.hexagon_arch for item in ordered if item.name.endswith("Skel.so")}
    return Runtime(
        id=f"qairt-{build_id}",
        version=build_id.rsplit(".", 1)[0],
        build_id=build_id,
        root=root,
        targets=targets_of(item.path for item in ordered),
        hexagon_archs=tuple(sorted(arch for arch in skels if arch)),
        source=sources[0],
        libraries=ordered,
        sources=sources,
    )


def write(runtime: Runtime, folder: Path) -> None:
    """Write `runtime.json` into `folder` in one step, so that a reader sees old or new."""
    value = {
        "schema": _SCHEMA,
        "build_id": runtime.build_id,
        "sources": [asdict(item) for item in runtime.sources],
        "files": [asdict(item) for item in runtime.libraries],
    }
    temporary = folder / f".{NAME}.new"
    temporary.write_text(json.dumps(value, indent=1) + "\n", "utf-8")
    temporary.replace(folder / NAME)


def read(folder: Path) -> Runtime:
    """The runtime in `folder`. Raises RuntimeStoreError when its record cannot be read."""
    try:
        value: dict[str, Any] = json.loads((folder / NAME).read_text("utf-8"))
        if value["schema"] != _SCHEMA:
            raise ValueError(
                f"its format is {value['schema']}, but this version of fleet reads only {_SCHEMA}"
            )
        sources = tuple(
            RuntimeSource(**{**item, "provides": tuple(item["provides"])})
            for item in value["sources"]
        )
        libraries = [Library(**item) for item in value["files"]]
        return make(value["build_id"], folder, sources, libraries)
    except (OSError, ValueError, KeyError, TypeError, IndexError) as error:
        raise RuntimeStoreError(
            f"fleet cannot read the description of the runtime {folder.name}: {reason(error)}",
            hint=f"fleet runtime remove {folder.name}, then add or fetch the runtime again",
        ) from error


def damaged(runtime: Runtime, *, deep: bool = False) -> list[tuple[str, str]]:
    """Files that are missing or changed: (path, why). `deep` compares the hashes too."""
    found = []
    for item in runtime.libraries:
        path = runtime.root / item.path
        try:
            size = path.stat().st_size
        except OSError:
            found.append((item.path, "is missing"))
            continue
        if size != item.size:
            found.append((item.path, f"has {size} bytes instead of {item.size}"))
        elif deep and sha256_file(path) != item.sha256:
            found.append((item.path, "was modified (its SHA-256 differs)"))
    return found
