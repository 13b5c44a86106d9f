"""What a folder without a Genie configuration looks like, for a useful refusal."""

from __future__ import annotations

from fnmatch import fnmatchcase
from pathlib import Path

from fleet.model.errors import BundleError

_SHOWN = 12
_PLAYBOOK_KINDS = {
    "an mllm model": "mllm",
    "an mllm QNN AOT model": "mllm",
    "an ExecuTorch program": "executorch",
    "a llama.cpp model": "llama.cpp",
    "a LiteRT model": "litert",
    "a QNN DLC": "qnn",
    "an onnxruntime-genai folder": "ort",
    "an ONNX model": "ort",
    "plain QNN context binaries": "qnn",
}
# First match wins. Marks of each kind: docs/sources/deployment.md 4.
_KINDS = (
    ("genai_config.json", "an onnxruntime-genai folder"),
    ("*.mllm", "an mllm model"),
    ("qnn_aot_cfg*.json", "an mllm QNN AOT model"),
    ("*.pte", "an ExecuTorch program"),
    ("*.onnx", "an ONNX model"),
    ("*.tflite", "a LiteRT model"),
    ("*.gguf", "a llama.cpp model"),
    ("*.dlc", "a QNN DLC"),
    ("*.bin", "plain QNN context binaries"),
)


def kind_of(names: list[str]) -> str | None:
    """A guess from file names, for messages only; None when nothing fits."""
    for pattern, kind in _KINDS:
        if any(fnmatchcase(name, pattern) for name in names):
            return kind
    return None


def guessed(root: Path) -> str:
    """The kind of a bundle folder by its marks; genie where nothing fits."""
    try:
        names = sorted(path.name for path in root.iterdir())
    except OSError:
        return "genie"
    if any(fnmatchcase(name, "*genie_config*.json") for name in names):
        return "genie"
    return _PLAYBOOK_KINDS.get(kind_of(names) or "", "genie")


def not_supported(root: Path, names: list[str]) -> BundleError:
    """The error for a folder that is no Genie bundle."""
    have = ", ".join(names[:_SHOWN]) or "nothing"
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    kind = kind_of(names)
    looks = f"; the folder looks like {kind}" if kind else ""
    name = _PLAYBOOK_KINDS.get(kind or "")
    return BundleError(
        f"the folder {root} has no genie_config.json (only: {have}{more}){looks}",
        hint=f"set the kind in the playbook: bundle: {{path: {root.name}, kind: {name}}}"
        if name
        else ("give the path of the folder that contains genie_config.json"),
    )
