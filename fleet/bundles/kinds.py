"""What a folder without a Genie configuration looks like, for a useful refusal."""

from __future__ import annotations

from fnmatch import fnmatchcase
from pathlib import Path

from fleet.model.errors import BundleError

CONFIG = "genie_config.json"
_SHOWN = 12
PLAYBOOK_KINDS = {
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


def not_supported(root: Path, names: list[str], nodes: list[str]) -> BundleError:
    """Return the error for a folder without a Genie dialog; `nodes` are configurations of the
    nodes of a Genie pipeline.
    """
    if nodes:
        return BundleError(
            f"the folder {root} has no Genie dialog and no genie-app script, only "
            f"configurations of a pipeline's nodes: {', '.join(nodes)}",
            hint="copy the genie-app script of the model into the folder, under the name "
            "genie-app-script.txt",
        )
    have = ", ".join(names[:_SHOWN]) or "nothing"
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    kind = kind_of(names)
    looks = f"; the folder looks like {kind}" if kind else ""
    name = PLAYBOOK_KINDS.get(kind or "")
    return BundleError(
        f"the folder {root} has no genie_config.json and no other JSON file with a section "
        f"`dialog` (only: {have}{more}){looks}",
        hint=f"set the kind in the playbook: bundle: {{path: {root.name}, kind: {name}}}"
        if name
        else ("give the path of the folder that contains genie_config.json"),
    )
