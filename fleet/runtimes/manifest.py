"""The record `runtime.json` of a runtime, whose existence proves that the runtime is complete."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path

from msgspec import Struct

from fleet.model.errors import InputError, RuntimeStoreError, reason
from fleet.model.files import sha256_file
from fleet.model.plain import read_plain, to_plain
from fleet.model.runtime import Library, Runtime, RuntimeSource
from fleet.runtimes.layout import targets_of

NAME = "runtime.json"
_SCHEMA = 1


class _Stored(Struct, frozen=True):
    schema: int
    build_id: str
    sources: tuple[RuntimeSource, ...]
    files: tuple[Library, ...]


def make(
    build_id: str, root: Path, sources: tuple[RuntimeSource, ...], libraries: Iterable[Library]
) -> Runtime:
    """Return a Runtime of these files, which determine version, targets and Hexagon archs."""
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
    """Write `runtime.json` into `folder` atomically."""
    value = _Stored(_SCHEMA, runtime.build_id, runtime.sources, runtime.libraries)
    temporary = folder / f".{NAME}.new"
    temporary.write_text(json.dumps(to_plain(value), indent=1) + "\n", "utf-8")
    temporary.replace(folder / NAME)


def read(folder: Path) -> Runtime:
    """Return the runtime in `folder`. Raises RuntimeStoreError if its record cannot be read."""
    try:
        value = json.loads((folder / NAME).read_text("utf-8"))
        stored = read_plain(_Stored, value, NAME, "")
        if stored.schema != _SCHEMA:
            raise ValueError(
                f"its format is {stored.schema}, but this version of fleet reads only {_SCHEMA}"
            )
        return make(stored.build_id, folder, stored.sources, stored.files)
    except (OSError, ValueError, IndexError, InputError) as error:
        raise RuntimeStoreError(
            f"fleet cannot read the description of the runtime {folder.name}: {reason(error)}",
            hint=f"fleet runtime remove {folder.name}, then add or fetch the runtime again",
        ) from error


def damaged(runtime: Runtime, *, deep: bool = False) -> list[tuple[str, str]]:
    """Return missing or changed files as (path, reason). `deep` compares the hashes too."""
    damage = []
    for item in runtime.libraries:
        path = runtime.root / item.path
        try:
            size = path.stat().st_size
        except OSError:
            damage.append((item.path, "is missing"))
            continue
        if size != item.size:
            damage.append((item.path, f"has {size} bytes instead of {item.size}"))
        elif deep and sha256_file(path) != item.sha256:
            damage.append((item.path, "was modified (its SHA-256 differs)"))
    return damage
