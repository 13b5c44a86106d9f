"""A Genie configuration: which files it names, its backend, its context size.

Keys and layouts: ai-hub-models `llm_helpers.py` and docs.qualcomm.com 80-63442-100
(docs/sources/deployment.md 4).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fleet.bundles.jsonfile import read_json
from fleet.bundles.paths import clean_name
from fleet.model.errors import BundleError, Position

CONFIG = "genie_config.json"
# Keys whose values are one file or a list of files.
_FILE_KEYS = {"path", "extensions", "lut-path", "model-bin", "ctx-bins", "bin-sections"}
_FOLDER_KEYS = {"forecast-prefix-name"}  # a folder (ssd dialogs)
_SHARDS = {"ctx-bins"}  # bin-sections are LoRA weights, no context binaries


@dataclass(frozen=True)
class Named:
    """A file that the configuration names. `key` is where, like `dialog.tokenizer.path`."""

    name: str
    key: str
    shard: bool = False
    folder: bool = False


@dataclass(frozen=True)
class GenieConfig:
    """What a Genie configuration says."""

    path: Path
    data: dict[str, Any]
    named: tuple[Named, ...]
    backend: str | None
    extensions: str | None
    context_size: int | None


def read_config(path: Path) -> GenieConfig:
    """Read and understand a Genie configuration. Raises BundleError."""
    data = read_json(path)
    if not isinstance(data.get("dialog"), dict):
        have = ", ".join(sorted(data)) or "nothing"
        raise BundleError(
            f"the Genie configuration has no `dialog` section (only: {have}), and fleet does "
            "not support other Genie pipelines",
            position=Position(path, 1, 1),
            hint="use a bundle whose genie_config.json has a `dialog` section",
        )
    try:
        named = tuple(dict.fromkeys(_named(data, path.name, "")))
    except RecursionError as error:
        raise BundleError(
            "the configuration is nested too deeply",
            position=Position(path),
            hint="export the bundle again",
        ) from error
    dialog = data["dialog"]
    backends = [engine.get("backend") for engine in _engines(dialog)]
    types = [backend.get("type") for backend in backends if isinstance(backend, dict)]
    context = dialog.get("context")
    size = context.get("size") if isinstance(context, dict) else None
    extensions = [item.name for item in named if item.key.endswith(".extensions")]
    return GenieConfig(
        path=path,
        data=data,
        named=named,
        backend=next((text for text in types if isinstance(text, str)), None),
        extensions=extensions[0] if extensions else None,
        context_size=size if type(size) is int else None,
    )


def _engines(dialog: dict[str, Any]) -> list[dict[str, Any]]:
    """`engine` is one object, or a list of them (spd, kv-share)."""
    engine = dialog.get("engine")
    many = engine if isinstance(engine, list) else [engine]
    return [item for item in many if isinstance(item, dict)]


def _named(value: object, config: str, where: str) -> Iterator[Named]:
    if isinstance(value, list):
        for index, item in enumerate(value):
            yield from _named(item, config, f"{where}[{index}]")
    if not isinstance(value, dict):
        return
    for key, item in value.items():
        place = f"{where}.{key}" if where else str(key)
        if key in _FILE_KEYS or key in _FOLDER_KEYS:
            for text in item if isinstance(item, list) else [item]:
                if not isinstance(text, str) or not text:
                    raise BundleError(
                        f"{config}: {place} must be a file name, not {text!r:.40}",
                        hint=f"correct {place} in {config}",
                    )
                name = clean_name(text, f"{config} ({place})")
                yield Named(name, place, key in _SHARDS, key in _FOLDER_KEYS)
        else:
            yield from _named(item, config, place)
