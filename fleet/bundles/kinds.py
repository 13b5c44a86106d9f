"""A guess at the kind of a folder without a Genie configuration, for a useful error message."""

from __future__ import annotations

import json
import os
import shlex
from collections.abc import Iterable, Iterator, Mapping
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from fleet.bundles.chips import NamedChip, chips_in, chips_of_extensions
from fleet.bundles.jsonfile import read_json
from fleet.model.bundle import KINDS
from fleet.model.errors import BundleError

CONFIG = "genie_config.json"
_SHOWN = 12
_ARCHIVES = (".zip", ".tar.gz", ".tgz", ".tar", ".tar.xz")


def guess(names: list[str]) -> tuple[str, str] | None:
    """Return the kind that fits the file names, and a description of the folder, or None."""
    for kind in KINDS.values():
        for pattern, what in kind.marks:
            if any(fnmatchcase(name, pattern) for name in names):
                return kind.name, what
    return None


def _other_json(path: Path) -> str:
    """Return what a JSON file is that is a part of a bundle, but none by itself; "" if unknown."""
    if path.suffix != ".json" or not path.is_file():
        return ""
    try:
        data = read_json(path)
    except BundleError as error:
        return f"{path.name} cannot be read ({error.message})"
    what = _json_kind(data)
    return f"{path.name} {what}" if what else ""


def _json_kind(data: Mapping[str, Any]) -> str:
    if isinstance(wrapped := data.get("backend_extensions"), dict):
        library, config = (wrapped.get(key) for key in ("shared_library_path", "config_file_path"))
        return (
            f"is a --config_file of qnn-net-run, which opens the library {library} and "
            f"the file {config}"
        )
    if isinstance(data.get("devices"), list) or isinstance(data.get("graphs"), list):
        chips = _words(chips_of_extensions(data)) or "a chip that it does not name"
        return f"has settings of the HTP backend, for {chips}"
    if "input_model" in data and "passes" in data:
        chips = " and ".join(str(row["chip"]) for row in chips_in(json.dumps(data)))
        target = chips and f" for {chips}"
        return f"is a recipe of Olive, which makes a model{target} when it runs"
    if "architectures" in data or "model_type" in data:
        return "describes a model of Hugging Face, which is not compiled for the NPU"
    return ""


def _words(chips: Iterable[NamedChip]) -> str:
    return " and ".join(" ".join(filter(None, (item.chip, item.arch))) for item in chips)


def not_supported(root: Path, names: list[str], nodes: dict[str, str]) -> BundleError:
    """Return the error for a folder without a Genie dialog.

    `nodes` are the other configurations of Genie with the section of each. They belong to the nodes
    of a pipeline, or to an embedding model alone.
    """
    if set(nodes.values()) == {"embedding"}:
        return BundleError(
            f"the folder {root} has no Genie dialog, only an embedding model ({', '.join(nodes)}): "
            "genie-t2e-run takes it, genie-t2t-run does not",
            hint=f"start genie-t2e-run with `run: {{runner: exec}}` and bundle: {{path: {root.name}"
            ", kind: files}",
        )
    if nodes:
        return BundleError(
            f"the folder {root} has no Genie dialog and no genie-app script, only "
            f"configurations of a pipeline's nodes: {', '.join(nodes)}",
            hint="copy the genie-app script of the model into the folder, under the name "
            "genie-app-script.txt",
        )
    have = ", ".join(names[:_SHOWN]) or "nothing"
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    if known := guess(names):
        return BundleError(
            f"the folder {root} has no genie_config.json and no other JSON file with a section "
            f"`dialog` (only: {have}{more}); the folder looks like {known[1]}",
            hint=f"set the kind in the playbook: bundle: {{path: {root.name}, kind: {known[0]}}}",
        )
    if texts := [text for name in names if (text := _other_json(root / name))]:
        return BundleError(
            f"the folder {root} has no model: {'; '.join(texts)}",
            hint="copy the file into the folder of the model that it is for (genie_config.json and "
            "its .bin files, or the model of qnn-net-run), and inspect that folder",
        )
    below = next(iter(_folders_with_models(root)), None)
    packed = next((name for name in names if name.endswith(_ARCHIVES)), None)
    cure = (
        "give the path of a folder with a model (genie_config.json, .bin, .dlc, .onnx, .pte, ...)"
    )
    if below is not None:
        cure = f"fleet bundle inspect {shlex.quote(str(below))} (this folder has a model)"
    elif packed is not None:
        path = shlex.quote(str(root / packed))
        how = "unzip" if packed.endswith(".zip") else "tar xf"
        cure = f"{how} {path} (the bundle may be in this archive), then inspect the new folder"
    return BundleError(
        f"the folder {root} has no model that fleet knows: no genie_config.json, no other JSON "
        f"file with a section `dialog`, and no compiled model (only: {have}{more})",
        hint=cure,
    )


def _folders_with_models(root: Path) -> Iterator[Path]:
    """Yield the folders below with a model, the nearest first, at most two levels down."""
    for pattern in ("*/", "*/*/"):
        for folder in sorted(root.glob(pattern)):
            names = [path.name for path in folder.iterdir()] if os.access(folder, os.R_OK) else []
            if CONFIG in names or guess(names):
                yield folder
