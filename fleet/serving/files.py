"""The files of a release for a service, and the configuration of its server."""

from __future__ import annotations

import json
from importlib.resources import files
from pathlib import Path
from typing import Any

from fleet.bundles.ep.genai import GENAI
from fleet.bundles.ort import providers_of
from fleet.device.texts import path_of
from fleet.model.bundle import Bundle
from fleet.model.errors import InputError
from fleet.model.files import FileRef, file_ref
from fleet.model.manifest import Manifest
from fleet.model.playbook import Playbook
from fleet.model.serve import ServeSpec
from fleet.runners import geniex
from fleet.runners.base import Kit, Runner
from fleet.runners.genai import package_for, window_of

# for the body of a request with tensors, and for one tensor of an answer
MAX_INFER_BYTES = 32 << 20
_JSON_ESCAPES = 6  # bytes of one ASCII character as \u0041
_SERVER = (
    "answers",
    "api",
    "chat",
    "genai",
    "genie",
    "geniex",
    "openapi",
    "ort",
    "server",
    "wire",
    "work",
)
_RUNNERS = ("fleet_generate", "fleet_genie", "fleet_ort")
_JINJA = ("jinja2", "markupsafe")
_SCRIPTS = ("serve_launch", "serve_supervise")
_KINDS = {
    "genie": ("genie",),
    "ort": ("ort",),
    "genai": ("ort",),
    "geniex": ("genie", "llama.cpp"),
}


def added_files(spec: ServeSpec, kit: Kit) -> tuple[FileRef, ...]:
    """Return the files of the backend: packages for the device's Python, or GenieX."""
    backend = backend_of(spec, kit.bundle)
    if backend == "geniex":
        return geniex.served_files(spec, kit)
    if backend == "genai" and kit.site is not None:
        return kit.site((package_for(kit.bundle),))
    return ()


def service_files(*, chat: bool = False) -> tuple[FileRef, ...]:
    """Return the server as files of a release, in the folders that its imports expect.

    `chat` adds Jinja: the Python files of this computer's own packages, which need no compilation.
    """
    sources = [("fleet.device.server", "fleet_server.py", "run/fleet_server.py")]
    for package, names in (("fleet.device.server", _SERVER), ("fleet.device.npu", _RUNNERS)):
        folder = package.replace(".", "/")
        sources += [(package, f"{name}.py", f"run/{folder}/{name}.py") for name in names]
    refs = [file_ref(Path(str(files(package) / name)), target) for package, name, target in sources]
    refs += [file_ref(path_of(f"{name}.sh"), f"run/{name}.sh") for name in _SCRIPTS]
    for package in _JINJA if chat else ():
        own = Path(str(files(package)))
        refs += [file_ref(path, f"run/{package}/{path.name}") for path in sorted(own.glob("*.py"))]
    return tuple(refs)


def backend_of(spec: ServeSpec, bundle: Bundle) -> str:
    """Return the backend for a bundle. Raises InputError if there is none."""
    genai = any(file.name == GENAI for file in bundle.files)
    default = {"genie": "genie", "ort": "genai" if genai else "ort"}.get(bundle.kind)
    name = spec.backend or default
    if name is None or bundle.kind not in _KINDS[name]:
        raise InputError(
            f"fleet cannot serve a bundle of kind {bundle.kind}"
            + (f" with the backend {name}" if name else ""),
            hint="use a bundle of kind genie or ort, or `backend: geniex`; see docs/serving.md",
        )
    return name


def service_config(
    playbook: Playbook,
    manifest: Manifest,
    *,
    runner: Runner,
    kit: Kit,
    release: str,
    emulated: bool,
) -> str:
    """Return config.json of the server, for a release in the folder `release`.

    Raises InputError for a playbook without `serve:` and for a bundle that no backend serves.
    """
    spec = playbook.serve
    if spec is None:
        raise InputError(
            f"{playbook.path} has no `serve:` section",
            hint="add `serve: {port: 8000}`; see docs/serving.md",
        )
    backend = backend_of(spec, kit.bundle)
    config: dict[str, Any] = {
        "name": playbook.name,
        "release": manifest.id,
        "build": str(manifest.origin.get("build_id", "")),
        "backend": backend,
        "emulated": emulated,
        "bind": spec.bind,
        "port": spec.port,
        "queue": spec.queue,
        "max_tokens": spec.max_tokens,
        "max_prompt_bytes": spec.max_prompt_bytes,
        "max_body_bytes": spec.max_prompt_bytes * _JSON_ESCAPES + (64 << 10),
        "max_infer_bytes": MAX_INFER_BYTES,
        "request_seconds": spec.request_timeout,
        "stop_seconds": spec.stop_timeout,
        "template": None if spec.template is None else dict(spec.template),
        "site": f"{release}/site",
    }
    if backend == "geniex":  # its QAIRT is the program's own
        served = geniex.served_config(spec, kit, f"{release}/geniex")
        config.update(build="", geniex=served)
    else:
        config.update(_model_config(backend, manifest, runner, kit))
    return json.dumps(config, sort_keys=True)


def _model_config(backend: str, manifest: Manifest, runner: Runner, kit: Kit) -> dict[str, Any]:
    """Return the facts about the model that the backend needs."""
    bundle = kit.bundle
    if backend == "genie":
        context = (bundle.config.get("dialog") or {}).get("context") or {}
        return {"model": bundle.config_name, "vocabulary": _count(context.get("n-vocab"))}
    if backend == "ort":
        spec = json.loads(runner.start(kit).config)
        model = bundle.config["models"][spec["model"]]
        logits = model["outputs"].get("logits", ("", ()))[1]
        if "input_ids" not in model["inputs"] or not logits or "decoder" in spec:
            return {"ort": spec}
        return {"ort": spec, "generates": True, "text": False, "vocabulary": _count(logits[-1])}
    model = (bundle.config.get("genai") or {}).get("model", {})
    return {
        "context": _context(bundle, manifest),
        "vocabulary": _count(model.get("vocab_size")),
        "providers": providers_of(bundle),
        "window": window_of(bundle),
    }


def _context(bundle: Bundle, manifest: Manifest) -> int | None:
    """Return the context length of a genai model in tokens.

    Raises InputError if the release lacks the package for it.
    """
    if not any(file.name.startswith("site/onnxruntime_genai/") for file in manifest.files):
        raise InputError(
            f"the bundle {bundle.name} needs the Python package onnxruntime-genai, but the "
            "deployed release does not contain it",
            hint="fleet deploy; or set `backend: ort` under `serve:` in the playbook, to serve "
            "single models",
        )
    model = (bundle.config.get("genai") or {}).get("model", {})
    return _count(model.get("context_length"))


def _count(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None
