"""What is deployed: a bundle folder as fleet understands it."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from fleet.model.files import FileRef
from fleet.model.op_package import OpPackage

_PLACEHOLDER = re.compile(r"<[^<>]+>|\$\{[^}]+\}|\{\{.+?\}\}")


@dataclass(frozen=True)
class ContextBinary:
    """One context binary and what could be read of it.

    `read_by` is `libQnnSystem` (authoritative), `markers` (plain text in the file) or
    `nothing`. `problem` says why it cannot be used (truncated, not a context binary, ...).
    Sizes in bytes; `hexagon_arch` like `v73`; `build_id` without leading v. `vtcm_mb` is what
    the compiler planned for (its option text), `graph_vtcm_mb` what the graphs ask for in the
    metadata (4 when nobody asked); the two differ in real files. `backend_id` 6 is HTP.
    """

    name: str
    size: int
    sha256: str
    read_by: str
    build_id: str | None = None
    soc_type: str | None = None
    soc_model: int | None = None
    hexagon_arch: str | None = None
    vtcm_mb: int | None = None
    backend_api: str | None = None
    blob_version: str | None = None
    blob_size: int | None = None
    graphs: tuple[str, ...] = ()
    problem: str = ""
    graph_vtcm_mb: int | None = None
    backend_id: int | None = None


@dataclass(frozen=True)
class Engine:
    """An engine of a Genie configuration: its `role` (target, draft, primary, secondary, or ""
    for the only one) and its backend type (QnnHtp, QnnGenAiTransformer, QnnGpu).
    """

    role: str
    backend: str | None


@dataclass(frozen=True)
class NamedFile:
    """A file that a run opens because `named_by` says so."""

    name: str
    named_by: str


@dataclass(frozen=True)
class BundleKind:
    """A kind of bundle folder.

    `models`: patterns of which a file must be there. `contexts`: the pattern of files that are
    context binaries, or hold one behind a head of their own (`around`) or none. `marks`: patterns
    of files by which a folder without `kind:` is recognised, and what it looks like. `about`: what
    the docs of playbooks call it.
    """

    name: str
    about: str = ""
    models: tuple[str, ...] = ()
    contexts: str = ""
    around: bool = False
    marks: tuple[tuple[str, str], ...] = ()


# Marks of each kind: docs/sources/deployment.md 4. The first kind with a mark that fits is taken.
KINDS = {
    kind.name: kind
    for kind in (
        BundleKind("genie"),
        BundleKind("mllm", "", ("*.bin", "*.mllm"), "*.bin",
                   marks=(("*.mllm", "an mllm model"),
                          ("qnn_aot_cfg*.json", "an mllm QNN AOT model"))),
        BundleKind("executorch", ".pte", ("*.pte",), "*.pte", around=True,
                   marks=(("*.pte", "an ExecuTorch program"),)),
        BundleKind("ort", "ONNX models, with or without context binaries", ("*.onnx",), "*.bin",
                   marks=(("genai_config.json", "an onnxruntime-genai folder"),
                          ("*.onnx", "an ONNX model"))),
        BundleKind("litert", ".tflite", ("*.tflite",), "*.tflite", around=True,
                   marks=(("*.tflite", "a LiteRT model"),)),
        BundleKind("llama.cpp", ".gguf", ("*.gguf",), marks=(("*.gguf", "a llama.cpp model"),)),
        BundleKind("qnn", "context binary, DLC or model library", ("*.bin", "*.dlc", "lib*.so"),
                   "*.bin", marks=(("*.dlc", "a QNN DLC"),
                                   ("*.bin", "plain QNN context binaries"))),
        BundleKind("files"),
    )
}  # fmt: skip


@dataclass(frozen=True)
class MissingFile:
    """A file that the bundle names and does not have."""

    name: str
    named_by: str

    @property
    def placeholder(self) -> bool:
        """Whether the name is to be replaced: `<tokenizer_path>`, `${DIR}/a.bin`, `{{ x }}`."""
        return _PLACEHOLDER.search(self.name) is not None


@dataclass(frozen=True)
class WrongHash:
    """A file whose content is not what SHA256SUMS says."""

    name: str
    expected: str
    found: str


@dataclass(frozen=True)
class Bundle:
    """A bundle folder. `qairt` is the required version or build id, None when unknown.

    `files` are all that goes to the device, under names relative to the bundle.
    `config` is the Genie configuration as data, {} for a genie-app script; `backend` is the
    backend type (QnnHtp) of the engine that decides, `engines` are all of its engines;
    `extensions` the HTP extension file `extensions_name` as data. `checked_by` is SHA256SUMS
    when hashes were compared with it. `wrong_hashes` are those that differ.
    `opens` are the files that the bundle's own formats name, found apart from `files`.
    `absent` are the keys that the Genie configuration must have and does not.
    `op_packages` come from the playbook and go along with it; they are not among `files`.
    """

    kind: str
    name: str
    root: Path
    config_name: str
    config: dict[str, Any]
    backend: str | None
    extensions: dict[str, Any]
    qairt: str | None
    qairt_source: str
    contexts: tuple[ContextBinary, ...]
    files: tuple[FileRef, ...]
    missing: tuple[MissingFile, ...]
    context_size: int | None = None
    warnings: tuple[str, ...] = ()
    extensions_name: str = ""
    wrong_hashes: tuple[WrongHash, ...] = ()
    checked_by: str = ""
    op_packages: tuple[OpPackage, ...] = ()
    engines: tuple[Engine, ...] = ()
    opens: tuple[NamedFile, ...] = ()
    absent: tuple[str, ...] = ()
    PLAIN: ClassVar[str] = "* size usable problems -config -extensions"

    @property
    def size(self) -> int:
        """Bytes of all files."""
        return sum(item.size for item in self.files)

    @property
    def usable(self) -> bool:
        """False when a file or key is missing, or a file is damaged or not that of SHA256SUMS."""
        broken = any(item.problem for item in self.contexts)
        return not (self.missing or self.absent or self.wrong_hashes or broken)

    @property
    def problems(self) -> list[str]:
        """What is wrong with its files, a sentence each."""
        return [
            *(
                f"{item.named_by} has the placeholder {item.name} in place of a file name"
                if item.placeholder
                else f"{item.name} is missing; {item.named_by} refers to it"
                for item in self.missing
            ),
            *(f"{self.config_name} has no {key}, which Genie needs" for key in self.absent),
            *(f"{item.name}: {item.problem}" for item in self.contexts if item.problem),
            *(
                (
                    f"{item.name} is damaged: its SHA-256 is {item.found[:12]}, but "
                    f"{self.checked_by} has {item.expected[:12]}"
                )
                for item in self.wrong_hashes
            ),
        ]
