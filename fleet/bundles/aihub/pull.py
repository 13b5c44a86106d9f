"""`aihub:ID` → a bundle folder with its record."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from fleet.bundles.aihub.archive import RECORD, lay_out, safe_name
from fleet.bundles.aihub.hub import Hub
from fleet.bundles.aihub.source import HubSource, checked_id, date_of, find
from fleet.bundles.aihub.stage import require_free, whole
from fleet.bundles.aihub.target import Target, target_of
from fleet.bundles.aihub.versions import qairt_of, record_version
from fleet.bundles.found import SUMS
from fleet.bundles.inspect import guessed
from fleet.model.errors import FleetError
from fleet.model.files import listed

_WEIGHTS = ("*.bin", "*.dlc", "*.data", "*.onnx", "*.tflite")
_RUNTIME = re.compile(r"--target_runtime[= ]+([A-Za-z0-9_]+)")


@dataclass(frozen=True)
class Pulled:
    """A new bundle folder. `record` is what aihub.json says, `notes` are for people."""

    folder: Path
    record: dict[str, Any]
    notes: tuple[str, ...]

    @property
    def next_commands(self) -> list[str]:
        """What fits the files: a look, and wrappers where context binaries have none."""
        kind = self.record["kind"]
        names = [file["name"] for file in self.record["files"]]
        folder = shlex.quote(str(self.folder))
        commands = [f"fleet bundle inspect --kind {kind} {folder}"]
        if kind == "qnn" and any(name.endswith(".bin") for name in names):
            commands.append(f"fleet bundle wrap-ep {folder}/*.bin")
        return commands


def pull(
    reference: str,
    folder: Path | None,
    *,
    wait_seconds: float = 0.0,
    verbose: bool = False,
    say: Callable[[str], None] = lambda _: None,
) -> Pulled:
    """Get the model of `reference` into `folder`, which must not exist; default: named after it.

    Raises InputError and AiHubError; then there is no folder.
    """
    name = checked_id(reference)
    if folder is not None:
        folder = folder.expanduser()
        require_free(folder)
    hub = Hub()
    source = find(hub, name, wait_seconds, say)
    model_id = str(source.model.model_id)
    title = safe_name(source.model.name, model_id)
    folder = folder or Path(f"{_stem(title)}-{name}")
    target, notes = _target(hub, source)
    with whole(folder) as bundle:
        download = bundle.with_name("download")
        download.mkdir()
        lay_out(hub.download(model_id, download, verbose), bundle, _stem(title))
        record, more = _record(hub, source, target, bundle)
        notes += more
        record = {"reference": reference, **record, "notes": notes}
        text = json.dumps(record, indent=2, ensure_ascii=False)
        (bundle / RECORD).write_text(text + "\n", "utf-8")
    return Pulled(folder, record, tuple(notes))


def _stem(title: str) -> str:
    """A name without the endings that say what it is: the file brings its own."""
    return re.sub(r"(\.(zip|genie|onnx|bin|dlc|tflite|onnxruntime_genai))+$", "", title) or "model"


def _target(hub: Hub, source: HubSource) -> tuple[Target, list[str]]:
    device = getattr(source.job, "device", None)
    name, os = (device.name, device.os) if device else ("", "")
    attributes = list(device.attributes) if device else []
    notes: list[str] = []
    if name and not attributes:
        try:
            listed = hub.device(name, os)
        except FleetError as error:
            notes.append(
                f"fleet could not get the attributes of device {name} from AI Hub: {error.message}"
            )
        else:
            attributes = list(listed.attributes) if listed else []
    target = target_of(name, os, attributes, hub.metadata_of(source.model))
    return target, notes + list(target.notes)


def _record(
    hub: Hub, source: HubSource, target: Target, bundle: Path
) -> tuple[dict[str, Any], list[str]]:
    metadata = hub.metadata_of(source.model)
    version, where, notes = qairt_of(metadata, source.tools)
    notes += record_version(bundle, version)
    files = _files(bundle)
    job, model = source.job, source.model
    options = hub.clean(job.options) if job is not None else ""
    wanted = _RUNTIME.search(options)
    model_type = hub.model_type_of(model.model_type)
    record = {
        "schema": 1,
        "job": {
            "id": source.job_id,
            "kind": source.kind,
            "name": job.name,
            "state": source.state,
            "options": options,
            "submitted": date_of(job.creation_time),
            "finished": date_of(job.completion_time),
            "tool_versions": source.tools,
        }
        if job is not None
        else None,
        "model": {
            "id": model.model_id,
            "name": model.name,
            "type": model_type,
            "created": date_of(model.creation_time),
            "metadata": metadata,
        },
        "runtime": wanted[1] if wanted else model_type,
        "device": {"name": target.name, "os": target.os, "attributes": list(target.attributes)},
        "chip": target.chip,
        "soc_model": target.soc_model,
        "hexagon_arch": target.hexagon_arch,
        "qairt": version,
        "qairt_source": where,
        "qairt_variant": metadata.get("qnn_sdk_variant"),
        "kind": _kind(bundle),
        "client": f"qai-hub {hub.client_version}",
        "pulled": datetime.now(UTC).isoformat(timespec="seconds"),
        "files": files,
    }
    return record, notes


def _files(bundle: Path) -> list[dict[str, Any]]:
    """Every file with size in bytes and SHA-256; SHA256SUMS of the weights when there is none."""
    files = listed(bundle)
    weights = [file for file in files if any(fnmatchcase(str(file["name"]), w) for w in _WEIGHTS)]
    if weights and not (bundle / SUMS).exists():
        lines = "".join(f"{file['sha256']}  {file['name']}\n" for file in weights)
        (bundle / SUMS).write_text(lines, "utf-8")
    return files


def _kind(bundle: Path) -> str:
    """The kind of bundle; `files` where only a guess without any mark is left."""
    kind = guessed(bundle)
    genie = any(fnmatchcase(path.name, "*genie_config*.json") for path in bundle.iterdir())
    return "files" if kind == "genie" and not genie else kind
