"""Bundles of kind `ort`: ONNX models for ONNX Runtime's QNN provider, and genai folders."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from fleet.bundles.closure import Launch
from fleet.bundles.ep.compatibility import Compatibility, parse
from fleet.bundles.ep.genai import GENAI
from fleet.bundles.ep.models import OnnxModel, beside, read_model
from fleet.bundles.ep.onnxlib import onnx_package
from fleet.bundles.jsonfile import read_json
from fleet.bundles.plain import inspect_plain
from fleet.model.bundle import Bundle, ContextBinary, FileContent, MissingFile, NamedFile
from fleet.model.errors import BundleError
from fleet.model.finding import Finding
from fleet.model.runtime import same_build

_FILE_KEYS = ("filename", "config_filename", "adapter_filename")
_READ_BY_GENAI = (GENAI, "tokenizer.json", "tokenizer.model", "tokenizer_config.json")
_TOKENIZERS = ("tokenizer.json", "tokenizer.model", "vocab.txt", "spiece.model")


def inspect_ort(root: Path, system_library: Path | None, *, hashes: bool) -> Bundle:
    """Return the bundle with all files of the folder, and the files that its models name.

    `config` is {"models": {name: ...}, "genai": genai_config.json or None}. Without `hashes` every
    sha256 is empty. Raises BundleError if there is no model, if a model is damaged, or if a model
    names a file outside the folder.
    """
    genai = read_json(root / GENAI) if (root / GENAI).is_file() else None
    plain = inspect_plain(root, system_library, "ort", hashes=hashes)
    names = {file.name: file for file in plain.files}
    models, named, wrong = _models(plain)
    named += _named_by_genai(genai)
    missing = {name: MissingFile(name, by) for name, by in named if name not in names}
    used = {name for name, _ in named}
    contexts = tuple(context for context in plain.contexts if context.name in used)
    opens = [NamedFile(name, by) for name, by in named if name in names]
    if genai is not None:
        read = [name for name in names if any(fnmatchcase(name, like) for like in _READ_BY_GENAI)]
        opens += [NamedFile(name, "onnxruntime-genai") for name in read]
    embedded = tuple(_embedded(model, plain) for model in models if _has_embedded(model))
    warnings = [*plain.warnings, *_remarks(models, contexts, names, genai)]
    first = next((context for context in (*contexts, *embedded) if context.build_id), None)
    return replace(
        plain,
        config={"models": {model.name: asdict(model) for model in models}, "genai": genai},
        contexts=(*contexts, *embedded),
        qairt=plain.qairt or (first.build_id if first else None),
        qairt_source=plain.qairt_source or (first.name if first else ""),
        missing=tuple(missing.values()),
        opens=tuple(opens),
        warnings=tuple(warnings),
        contents=(*plain.contents, *wrong),
    )


def _models(bundle: Bundle) -> tuple[list[OnnxModel], list[tuple[str, str]], list[FileContent]]:
    """Return the models that can be read, the files that they name, and the problems of others."""
    known = {content.name for content in bundle.contents}
    models, named, wrong = list[OnnxModel](), list[tuple[str, str]](), list[FileContent]()
    if any(file.name.endswith(".onnx") for file in bundle.files):
        onnx_package("to read ONNX models")
    for file in bundle.files:
        if not file.name.endswith(".onnx") or file.name in known:
            continue
        try:
            model = read_model(file.source, file.name)
            named += _named_by(model)
        except BundleError as error:
            text = error.message.removeprefix(file.name).lstrip(": ").removeprefix("is ")
            wrong.append(FileContent(file.name, problem=f"{text}; {error.hint}"))
        else:
            models.append(model)
    return models, named, wrong


def _named_by(model: OnnxModel) -> Iterator[tuple[str, str]]:
    for node in model.nodes:
        if node.context:
            key = "ep_cache_context"
            yield beside(model.name, node.context, key), f"{model.name}: {key}"
    for name in model.external:
        yield beside(model.name, name, "external_data"), f"{model.name}: external_data"


def _named_by_genai(genai: Mapping[str, Any] | None) -> Iterator[tuple[str, str]]:
    """Yield the files that genai_config.json names, each with its place there.

    They are every `filename`, `config_filename` and `adapter_filename` below `model`: decoder,
    pipeline parts, embedding, vision, speech (src/config.cpp of onnxruntime-genai).
    """
    stack: list[tuple[str, Any]] = [("model", (genai or {}).get("model"))]
    while stack:
        where, value = stack.pop()
        if isinstance(value, dict):
            stack += [(f"{where}.{key}", member) for key, member in value.items()]
            for key in _FILE_KEYS:
                name = value.get(key)
                if isinstance(name, str) and name:
                    yield beside(GENAI, name, f"{where}.{key}"), f"{GENAI}: {where}.{key}"
        elif isinstance(value, list):
            stack += [(where, member) for member in value]


def _has_embedded(model: OnnxModel) -> bool:
    return any(node.embedded for node in model.nodes)


def _embedded(model: OnnxModel, bundle: Bundle) -> ContextBinary:
    """Return the context binary inside a model. Its facts come from the model's own metadata."""
    file = next(file for file in bundle.files if file.name == model.name)
    node = next(node for node in model.nodes if node.embedded)
    record: Compatibility | None = parse(model.compatibility)
    return ContextBinary(
        model.name,
        file.size,
        file.sha256,
        "the model",
        build_id=node.sdk_version.removeprefix("v") or None,
        soc_model=record.soc_models[0] if record and len(record.soc_models) == 1 else None,
        hexagon_arch=f"v{record.archs[0]}" if record and len(record.archs) == 1 else None,
        backend_api=record.backend_api if record else None,
        backend_id=record.backend_id if record else None,
        graphs=tuple(node.partition for node in model.nodes if node.embedded),
    )


def _remarks(
    models: list[OnnxModel],
    contexts: tuple[ContextBinary, ...],
    names: Mapping[str, object],
    genai: Mapping[str, Any] | None,
) -> Iterator[str]:
    builds = {context.name: context.build_id for context in contexts}
    for model in models:
        for node in model.nodes:
            name = beside(model.name, node.context, "ep_cache_context") if node.context else ""
            build, says = builds.get(name), node.sdk_version.removeprefix("v")
            if build and says and not same_build(build, says):
                yield (
                    f"{model.name} says QAIRT {says}, but {name} was built with {build}; fleet "
                    f"uses {build}"
                )
        if model.nodes and model.others:
            yield (
                f"{model.name} has {model.others} nodes that are not compiled for the NPU: the "
                "device compiles them at each start, or cannot run them"
            )
        if not model.nodes and genai is None:
            yield (
                f"{model.name} is not compiled for the NPU: the device compiles it at each start"
            )
    if genai is not None and not any(
        fnmatchcase(name, pattern) for name in names for pattern in _TOKENIZERS
    ):
        yield f"the folder has {GENAI} but no tokenizer file ({', '.join(_TOKENIZERS)})"


def models_of(bundle: Bundle) -> Mapping[str, Mapping[str, Any]]:
    """Return the models of a bundle of kind ort by name. Raises BundleError for another kind."""
    if bundle.kind != "ort":
        raise BundleError(
            f"this runner needs ONNX models, but the bundle {bundle.name} contains none",
            hint="set `kind: ort` for the bundle in the playbook, or choose another `runner:`",
        )
    models: Mapping[str, Mapping[str, Any]] = bundle.config["models"]
    return models


def providers_of(bundle: Bundle) -> list[str]:
    """Return the names of all providers that genai_config.json configures, in lower case."""
    return providers_in(bundle.config.get("genai"))


def providers_in(config: object) -> list[str]:
    """Return the names of all providers in a part of genai_config.json, in lower case."""
    names: set[str] = set()
    stack: list[object] = [config]
    while stack:
        value = stack.pop()
        if isinstance(value, dict):
            options = value.get("provider_options")
            for provider in options if isinstance(options, list) else ():
                names |= (
                    {str(name).lower() for name in provider}
                    if isinstance(provider, dict)
                    else set()
                )
            stack += value.values()
        elif isinstance(value, list):
            stack += value
    return sorted(names)


_OPERATORS = "fleet/data/qnn_operators.yaml; onnxruntime-qnn 2.7.0, measured"
_SHOWN = 5  # obstacles of one kind that a plan lists for one model


def untaken(bundle: Bundle, launches: Sequence[Launch]) -> tuple[Finding, ...]:
    """Return refusals for the obstacles of the models that the starts open in the QNN provider.

    At most `_SHOWN` obstacles of one kind are returned for one model.
    """
    models: Mapping[str, Mapping[str, Any]] = bundle.config.get("models", {})
    if bundle.kind != "ort":
        return ()
    findings: dict[tuple[str, str], Finding] = {}
    for launch in launches:
        spec = _json(launch.config)
        given = spec.get("dimensions") or {}
        for name in _opened(spec, bundle):
            for number, item in enumerate(models.get(name, {}).get("obstacles", ())):
                if not (item["dimension"] and item["dimension"] in given):
                    findings.setdefault((name, str(number)), _finding(name, item))
    return tuple(_few(findings.values()))


def _finding(name: str, item: Mapping[str, str]) -> Finding:
    message, have, need, cure = (item[key] for key in ("message", "have", "need", "cure"))
    return Finding(item["rule"], "refuse", f"{name} {message}", have, need, cure, _OPERATORS)


def _few(findings: Iterable[Finding]) -> Iterator[Finding]:
    counts: dict[tuple[str, str], int] = {}
    for finding in findings:
        key = (finding.rule, finding.message.partition(" ")[0])
        counts[key] = counts.get(key, 0) + 1
        if counts[key] <= _SHOWN:
            yield finding


def _opened(spec: Mapping[str, Any], bundle: Bundle) -> Iterator[str]:
    """Yield the names of the models that a run with this `spec` opens with the QNN provider."""
    if spec.get("accelerator") == "cpu":
        return
    named = [spec.get(key) for key in ("model", "decoder", "decoder_with_past")]
    yield from (name for name in named if isinstance(name, str))
    if "npu_alone" in spec:
        yield from _of_genai(bundle.config.get("genai"))


def _of_genai(part: object) -> Iterator[str]:
    """Yield each `filename` of genai_config.json whose own options name QNN."""
    if isinstance(part, dict):
        name = part.get("filename")
        if isinstance(name, str) and "qnn" in providers_in(part.get("session_options")):
            yield name
        for value in part.values():
            yield from _of_genai(value)
    elif isinstance(part, list):
        for value in part:
            yield from _of_genai(value)


def _json(text: str) -> dict[str, Any]:
    try:
        value = json.loads(text or "{}")
    except ValueError:
        return {}
    return value if isinstance(value, dict) else {}
