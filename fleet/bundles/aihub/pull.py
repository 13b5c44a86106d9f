"""A download of a job or model of AI Hub (`aihub:ID`) into a bundle folder with its record."""

from __future__ import annotations

import fcntl
import json
import os
import re
import shlex
import shutil
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from fleet.bundles.aihub.hub import Hub, Message
from fleet.bundles.aihub.models import offered
from fleet.bundles.found import SUMS, VERSION_FILES, clean_version
from fleet.bundles.inspect import guessed
from fleet.bundles.jsonfile import read_version
from fleet.facts.soc import Row, by_hub_chipset, by_soc_model
from fleet.model.deadline import Deadline
from fleet.model.errors import (
    AiHubError,
    BundleError,
    FleetError,
    InputError,
    RuntimeStoreError,
    reason,
)
from fleet.model.files import check_name, listed
from fleet.model.runtime import same_build
from fleet.runtimes.tree import ZipTree, open_zip

# The QAIRT version that made a model, from AI Hub and from the archive, and its record.

_RECORD = "tool-versions.yaml"


def qairt_of(
    metadata: Mapping[str, str], tools: Mapping[str, str]
) -> tuple[str | None, str, list[str]]:
    """Return the QAIRT version of a model, its source, and notes about contradictions.

    The version is None and the source is "" if no source has a version. `metadata` is the metadata
    of the model; `tools` has the tool versions of the job's result by name.
    """
    texts = {
        "model metadata QAIRT_SDK_VERSION": metadata.get("qairt_sdk_version"),
        "model metadata QNN_SDK_VERSION": metadata.get("qnn_sdk_version"),
    }
    for name, value in tools.items():
        bare = re.sub(r"[^a-z]", "", name.lower())
        if bare in {"qairt", "qnn", "qairtsdk", "qnnsdk"}:
            texts[f"tool version {name} of the job"] = value
    known = {where: clean for where, text in texts.items() if (clean := clean_version(text))}
    if not known:
        return None, "", []
    source, version = next(iter(known.items()))
    notes = [
        f"{source} says QAIRT {version}, {where} says {other}"
        for where, other in known.items()
        if not same_build(version, other)
    ]
    return version, source, notes


def record_version(folder: Path, version: str | None) -> list[str]:
    """Write tool-versions.yaml if no file of the bundle has its QAIRT version, and return notes.

    A version in the archive stays unchanged, even if AI Hub gives another version.
    """
    for name, keys in VERSION_FILES:
        path = folder / name
        if not path.is_file():
            continue
        try:
            own = clean_version(read_version(path, *keys))
        except BundleError as error:
            return [f"fleet cannot read {name} of the archive: {error.message}"]
        if own and version and not same_build(own, version):
            return [f"{name} of the archive says QAIRT {own}, AI Hub says {version}"]
        if own or name == _RECORD:
            return []
    if version is None:
        return [
            (
                "fleet did not write tool-versions.yaml, because AI Hub does not say which "
                "QAIRT version made the model"
            )
        ]
    text = version if version.count(".") > 1 else f'"{version}"'  # 2.40 would become 2.4
    (folder / _RECORD).write_text(f"qairt: {text}\n", "utf-8")
    return []


# The chip that a model of AI Hub was made for, from device attributes and model metadata.


@dataclass(frozen=True)
class Target:
    """A device of AI Hub. A value of None is unknown.

    `notes` describe contradictions and are shown to the user.
    """

    name: str
    os: str
    attributes: tuple[str, ...]
    chip: str | None
    soc_model: int | None
    hexagon_arch: str | None
    notes: tuple[str, ...]


def target_of(name: str, os: str, attributes: Iterable[str], metadata: Mapping[str, str]) -> Target:
    """Return the chip, soc_model and Hexagon arch that a model was compiled for.

    `attributes` are those of AI Hub's device: `chipset:qualcomm-qcs9075`, `hexagon:v73`,
    `soc-model:77` (docs/sources/deployment.md 8). `metadata` is the metadata of the model. The
    values of the context binary take precedence, then the attributes, then the SoC table.
    """
    pairs = [text.partition(":")[::2] for text in attributes]
    chipsets = [value for key, value in pairs if key == "chipset"]
    models = {
        "the model": _number(metadata.get("qnn_context_bin_soc_model")),
        "the device": _number(next((v for key, v in pairs if key == "soc-model"), None)),
    }
    soc_model = next((model for model in models.values() if model), None)
    row = next((row for row in map(by_hub_chipset, chipsets) if row), None) or _only(soc_model)
    archs = {
        "the model": _arch(metadata.get("qnn_context_bin_hexagon_version")),
        "the device": _arch(next((v for key, v in pairs if key == "hexagon"), None)),
        "the table of SoCs": str(row["arch"]) if row and row.get("arch") else None,
    }
    return Target(
        name=name,
        os=os,
        attributes=tuple(attributes),
        chip=str(row["chip"]) if row else None,
        soc_model=soc_model or (row.get("soc_model") if row else None),
        hexagon_arch=next((arch for arch in archs.values() if arch), None),
        notes=(*_contradictions("Hexagon arch", archs), *_contradictions("soc_model", models)),
    )


def _only(soc_model: int | None) -> Row | None:
    rows = by_soc_model(soc_model) if soc_model else ()
    return rows[0] if len(rows) == 1 else None


def _contradictions(what: str, values: Mapping[str, object]) -> tuple[str, ...]:
    known = {source: value for source, value in values.items() if value is not None}
    if len(set(known.values())) < 2:
        return ()
    return (f"{what}: " + ", ".join(f"{source} says {value}" for source, value in known.items()),)


def _number(text: str | None) -> int | None:
    """Return a soc_model as a number, or None. 0 is QNN's value for an unspecified chip."""
    match = re.fullmatch(r"\d{1,6}", (text or "").strip())
    return (int(match[0]) or None) if match else None


def _arch(text: str | None) -> str | None:
    match = re.fullmatch(r"v?(\d{2,3})", (text or "").strip().lower())
    return f"v{match[1]}" if match else None


# A folder that is created atomically.


def require_free(folder: Path) -> None:
    """Raise InputError if the folder exists already, or if its parent does not exist."""
    if folder.exists() or folder.is_symlink():
        raise InputError(
            f"the folder {folder} already exists, and fleet does not overwrite it",
            hint=f"name another folder with -o FOLDER, or remove {folder}",
        )
    if not folder.parent.is_dir():
        raise InputError(f"there is no folder {folder.parent}", hint=f"mkdir -p '{folder.parent}'")


@contextmanager
def whole(folder: Path) -> Iterator[Path]:
    """Yield an empty staging folder, which becomes `folder` at the end.

    The staging folder is next to `folder`. It is removed if an error is raised. Files of a killed
    process are removed first. Raises AiHubError while another process creates the same folder, and
    InputError if the folder exists or was created in the meantime.
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


# The model that a reference names, and the job that made the model.

POLL_SECONDS = 10.0  # the client's own interval between two requests
_SCHEME = "aihub:"
_ID = re.compile(r"^[A-Za-z0-9]{2,64}$")
_MODEL = re.compile(r"[a-z0-9]+(_[a-z0-9]+)+")  # qwen3_4b; ids of jobs have no underscore
_HUGGING_FACE = re.compile(
    r"^(?:hf:|https://huggingface\.co/)([A-Za-z0-9]\w*(?:[.-]\w+)*/(\w+(?:[.-]\w+)*))/?$", re.ASCII
)
_ENDED = ("done", "failed")


@dataclass(frozen=True)
class HubSource:
    """A model, as the client's messages. `job` is None for an uploaded model."""

    model: Message
    job: Message | None
    job_id: str
    kind: str  # compile, link, quantize; "" without a job
    state: str
    tools: dict[str, str]


def checked_id(reference: str) -> str:
    """Return the id in a reference: `aihub:jabc123` → `jabc123`. Raises InputError."""
    scheme, colon, name = reference.partition(":")
    if f"{scheme}:" == _SCHEME and _MODEL.fullmatch(name):
        raise offered(name)
    if f"{scheme}:" != _SCHEME or not colon or not _ID.match(name):
        if repository := _HUGGING_FACE.match(reference):
            raise InputError(
                f"'{reference}' is a repository of Hugging Face, and fleet downloads only from "
                "Qualcomm AI Hub",
                hint=f"hf download {repository[1]} --local-dir {repository[2]} (a command of the "
                f"Python package huggingface_hub; then: fleet bundle inspect {repository[2]})",
            )
        raise InputError(
            f"'{reference}' is not a job or model of AI Hub",
            hint="fleet bundle pull aihub:ID (ID is the end of the address of the job's page, "
            "/jobs/ID/)",
        )
    return name


def find(hub: Hub, name: str, wait_seconds: float, say: Callable[[str], None]) -> HubSource:
    """Return the model of a job, or a model by its own id. Ids of jobs begin with `j`.

    Waits up to `wait_seconds` for a running job and reports it to `say`. Raises AiHubError if the
    job failed or is still running, and InputError for a job that produces no model.
    """
    if not name.startswith("j"):
        model = hub.model(name)
        if not model.producer_id:
            return HubSource(model, None, "", "", "", {})
        name = model.producer_id
    kind, job, state = _ended(hub, name, wait_seconds, say)
    if not job.HasField("target_model"):
        raise AiHubError(
            f"job {name} is done, but its result contains no model",
            hint="check the job on the AI Hub web page",
        )
    model = hub.model(job.target_model.model_id)  # only complete after the job has ended
    return HubSource(model, job, name, kind, state, _tools(hub, name, kind))


def date_of(stamp: Message) -> str | None:
    """Return a time of AI Hub in UTC as ISO 8601, or None if it is not set."""
    return datetime.fromtimestamp(stamp.seconds, UTC).isoformat() if stamp.seconds else None


def _ended(
    hub: Hub, name: str, seconds: float, say: Callable[[str], None]
) -> tuple[str, Message, str]:
    deadline = Deadline(seconds)
    last_state = ""
    while True:
        kind, job = _opened(hub, name)
        state = hub.state_of(job.job_state)
        if state in _ENDED or deadline.expired:
            break
        if state != last_state:
            say(f"job {name}: {state}, waiting for up to {deadline.remaining:.0f} s")
            last_state = state
        time.sleep(min(POLL_SECONDS, deadline.remaining))
    if state == "failed":
        reason = hub.clean(job.failure_reason) or "AI Hub gives no reason"
        raise AiHubError(
            f"the {kind} job {name} failed on AI Hub: {reason}",
            hint="correct the model or the compile options, submit a new job, and pull the new job",
        )
    if state != "done":
        raise AiHubError(
            f"the {kind} job {name} is not finished on AI Hub; its state is {state}",
            hint=f"fleet bundle pull aihub:{name} --wait 3600",
        )
    return kind, job, state


def _opened(hub: Hub, name: str) -> tuple[str, Message]:
    message = hub.job(name)
    field = message.WhichOneof("job") or ""
    kind = field.removesuffix("_job")
    if kind not in {"compile", "link", "quantize"}:
        inner = getattr(message, field).model.model_id if field else ""
        raise InputError(
            f"job {name} is of {(f'kind {kind}' if kind else 'an unknown kind')}, and such a "
            "job produces no model",
            hint=f"fleet bundle pull aihub:{inner} (pulls the model of this job)"
            if inner
            else "give the id of the compile or link job: fleet bundle pull aihub:ID",
        )
    return kind, getattr(message, field)


def _tools(hub: Hub, name: str, kind: str) -> dict[str, str]:
    """Return the tool versions by name. They are empty if AI Hub no longer keeps the result."""
    try:
        result = getattr(hub.job_result(name), f"{kind}_job_result")
    except InputError:
        return {}
    detail = getattr(result, f"{kind}_detail")
    return {tool.name: tool.version for tool in getattr(detail, "tool_versions", ())}


# The files of a bundle from the downloaded file of a model. An archive is not trusted.

RECORD = "aihub.json"
_MAX_MEMBER = 64_000_000_000  # the largest known shard has 1.5 GB; a float ONNX model is one file
_MAX_FILES = 10_000
_MAX_RATIO = 250  # of all files together; weights shrink 1 to 4 times
_HEADROOM_BYTES = 50_000_000


def safe_name(text: str, otherwise: str) -> str:
    """Return a name of AI Hub as a file name of letters, digits, `.`, `_` and `-`.

    `otherwise` is returned if no such character is left.
    """
    return re.sub(r"[^A-Za-z0-9._-]+", "_", text)[:100].strip("._-") or otherwise


def lay_out(asset: Path, folder: Path, stem: str) -> None:
    """Unpack a zip into `folder`, or move any other file there as `stem` with its suffix.

    If a zip has a single folder at its top, the files of this folder go to the root of the bundle.
    Raises AiHubError for a damaged or hostile archive, and for a full disk.
    """
    try:
        if asset.suffix.lower() == ".zip":
            with open_zip(asset, _MAX_MEMBER) as tree:
                _unpack(_below_single_folder(tree), asset, folder)
        else:
            asset.rename(folder / safe_name(stem + asset.suffix, stem))
    except RuntimeStoreError as error:
        raise AiHubError(
            "the archive from AI Hub is damaged or unsafe, so fleet wrote nothing: "
            f"{error.message}",
            hint="run the command again; if it still fails, check the job on the AI Hub web page",
        ) from error
    except OSError as error:
        raise AiHubError(
            f"the bundle folder {error.filename or folder} cannot be written: {reason(error)}",
            hint="run the command again with another folder: -o FOLDER",
        ) from error


def _below_single_folder(tree: ZipTree) -> ZipTree:
    tops = {name.partition("/")[::2] for name in tree.sizes()}
    names = {top for top, _ in tops}
    return tree.below(f"{names.pop()}/") if len(names) == 1 and all(r for _, r in tops) else tree


def _unpack(tree: ZipTree, asset: Path, folder: Path) -> None:
    sizes = tree.sizes()
    total = sum(sizes.values())
    if not sizes:
        raise AiHubError(
            "the archive that AI Hub sent is empty", hint="check the job on the AI Hub web page"
        )
    # The members of a zip bomb share their bytes, so each member alone looks harmless.
    if len(sizes) > _MAX_FILES or total > _HEADROOM_BYTES + _MAX_RATIO * asset.stat().st_size:
        raise AiHubError(
            "fleet did not unpack the archive from AI Hub, because its size is implausible: "
            f"{asset.stat().st_size} bytes would become {len(sizes)} files with {total} bytes",
            hint="check the job on the AI Hub web page",
        )
    free = shutil.disk_usage(folder).free
    if free < total + _HEADROOM_BYTES:
        raise AiHubError(
            f"not enough disk space for {folder}: the bundle needs {total / 1e6:.0f} MB, "
            f"the disk has {free / 1e6:.0f} MB free",
            hint="name a folder that you can write to: -o FOLDER",
        )
    if RECORD in sizes:
        raise AiHubError(
            f"the archive from AI Hub contains a file {RECORD}, but fleet uses this name itself",
            hint=f"download the archive from the AI Hub web page, unpack it without {RECORD}, and "
            "name that folder as the bundle in the playbook",
        )
    for name in sizes:
        try:
            check_name(name)
        except FleetError as error:
            raise AiHubError(
                f"the archive from AI Hub is not safe to unpack: {error.message}",
                hint="check the job on the AI Hub web page",
            ) from error
        place = folder / name
        place.parent.mkdir(parents=True, exist_ok=True)
        tree.place(name, place)


_WEIGHTS = ("*.bin", "*.dlc", "*.data", "*.onnx", "*.tflite")
_RUNTIME = re.compile(r"--target_runtime[= ]+([A-Za-z0-9_]+)")


@dataclass(frozen=True)
class Pulled:
    """A new bundle folder. `record` is the content of aihub.json; `notes` are for the user."""

    folder: Path
    record: dict[str, Any]
    notes: tuple[str, ...]

    @property
    def next_commands(self) -> list[str]:
        """Commands that fit the files: an inspection, and wrappers for context binaries without
        one.
        """
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
    """Download the model of `reference` into `folder`, which must not exist.

    The default folder is named after the model and the id. `verbose` shows the client's progress,
    and `say` gets fleet's. Raises InputError or AiHubError; after an error there is no folder.
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
    """Return a name without the endings of file formats, because the file has its own suffix."""
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
    """Return every file with its size in bytes and its SHA-256.

    Writes SHA256SUMS of the weights if the bundle has no such file.
    """
    files = listed(bundle)
    weights = [file for file in files if any(fnmatchcase(str(file["name"]), w) for w in _WEIGHTS)]
    if weights and not (bundle / SUMS).exists():
        lines = "".join(f"{file['sha256']}  {file['name']}\n" for file in weights)
        (bundle / SUMS).write_text(lines, "utf-8")
    return files


def _kind(bundle: Path) -> str:
    """Return the kind of the bundle, or `files` if the kind is only a guess without any mark."""
    kind = guessed(bundle)
    genie = any(fnmatchcase(path.name, "*genie_config*.json") for path in bundle.iterdir())
    return "files" if kind == "genie" and not genie else kind
