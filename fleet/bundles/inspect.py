"""A bundle folder → `Bundle`: what it needs, what goes to the device, what is wrong with it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import replace
from fnmatch import fnmatchcase
from pathlib import Path

from fleet.bundles.found import SUMS, Found
from fleet.bundles.genie import CONFIG, GenieConfig, Named, read_config
from fleet.bundles.jsonfile import read_json
from fleet.bundles.kinds import not_supported
from fleet.bundles.ort import inspect_ort
from fleet.bundles.paths import inside
from fleet.bundles.plain import inspect_plain, read_bundle
from fleet.model.bundle import Bundle, MissingFile
from fleet.model.errors import BundleError, reason

# Sent although no configuration names them: small, and people look for them on the device.
_COMPANIONS = (
    "sample_prompt*.txt",
    "tool-versions.yaml",
    "metadata.json",
    "metadata.yaml",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "generation_config.json",
    "chat_template.jinja",
    "LICENSE*",
    "NOTICE*",
    "README*",
    SUMS,
)
_COMPANION_BYTES = 1024 * 1024


def inspect_bundle(
    folder: Path, system_library: Path | None = None, *, hashes: bool = True, kind: str = "genie"
) -> Bundle:
    """What fleet knows of a bundle folder; missing and damaged files are data, no errors.

    `kind` is that of the playbook: genie has a configuration that names its files, of the
    others all files go along.

    `system_library` is an x86_64 libQnnSystem.so for this host (see `inspect_context`).
    `hashes=False` leaves every sha256 empty: for a look, not for a deploy. Raises BundleError
    when there is no configuration, or it cannot be understood, or leads out of the folder.
    """
    root = folder.expanduser().absolute()
    if kind == "ort":
        return inspect_ort(root, system_library, hashes=hashes)
    if kind != "genie":
        return inspect_plain(root, system_library, kind, hashes=hashes)
    return _inspect_genie(root, system_library, hashes=hashes)


def _inspect_genie(root: Path, system_library: Path | None, *, hashes: bool) -> Bundle:
    config = read_config(_config_path(root))
    bundle = read_bundle(
        root, "genie", lambda found: _collect(config, found), system_library, hashes=hashes
    )
    sent = {file.name: file.source for file in bundle.files}
    extensions = sent.get(config.extensions or "")
    return replace(
        bundle,
        config_name=config.path.name,
        config=config.data,
        backend=config.backend,
        extensions=read_json(extensions) if extensions else {},
        context_size=config.context_size,
        extensions_name=config.extensions or "",
    )


def _config_path(root: Path) -> Path:
    """genie_config.json, else the only *genie_config*.json of the folder."""
    try:
        names = sorted(item.name for item in root.iterdir())
    except OSError as error:
        raise BundleError(
            f"the bundle folder {root} cannot be read: {reason(error)}",
            hint="give the path of the folder that holds genie_config.json",
        ) from error
    found = [CONFIG] if CONFIG in names else []
    found = found or [name for name in names if fnmatchcase(name, "*genie_config*.json")]
    if len(found) > 1:
        raise BundleError(
            f"{root} has more than one Genie configuration: {', '.join(found)}",
            hint=f"rename one configuration to {CONFIG}, and move the others out of the folder",
        )
    path = inside(root, found[0], "the bundle") if found else None
    if path is None:
        raise not_supported(root, names)
    return path


def _collect(config: GenieConfig, found: Found) -> list[str]:
    """Fill in paths, missing and warnings; the names of the shards that are there."""
    found.paths[config.path.name] = config.path
    shards = []
    for item in config.named:
        for name in _expand(item, found.root):
            path = inside(found.root, name, f"{config.path.name} ({item.key})")
            if path is None:
                found.missing.append(MissingFile(name, f"{config.path.name}: {item.key}"))
            elif name not in found.paths:
                found.paths[name] = path
                shards += [name] if item.shard else []
    for name in _loose(found.root):
        if any(fnmatchcase(name, pattern) for pattern in _COMPANIONS):
            path = inside(found.root, name, "the bundle")
            if path is not None and path.stat().st_size <= _COMPANION_BYTES:
                found.paths.setdefault(name, path)
        elif name.endswith(".bin") and name not in found.paths:
            found.warnings.append(
                f"fleet does not send {name}, because {config.path.name} does not use it"
            )
    return shards


def _expand(item: Named, root: Path) -> Iterator[str]:
    """A folder stands for its files."""
    folder = root / item.name
    if not item.folder or not folder.is_dir():
        yield item.name
        return
    for parent, _, names in os.walk(folder):
        for name in sorted(names):
            yield (Path(parent) / name).relative_to(root).as_posix()


def _loose(root: Path) -> Iterator[str]:
    """Names in the bundle folder and in `artifacts/` (QAIRT GGUF route)."""
    for folder in (root, root / "artifacts"):
        if folder.is_dir():
            for path in sorted(folder.iterdir()):
                yield path.relative_to(root).as_posix()
