"""A bundle: the folder that is deployed, as fleet reads it."""

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
    """A context binary and the metadata that could be read from it.

    `read_by` is `libQnnSystem` (authoritative), `markers` (plain text in the file) or `nothing`.
    `problem` says why the file cannot be used (truncated, not a context binary, ...). Sizes are in
    bytes; `hexagon_arch` is like `v73`; `build_id` has no leading v. `vtcm_mb` is the compiler's
    plan (its option text), `graph_vtcm_mb` the request of the graphs in the metadata (4 by
    default). The two differ in real files. `backend_id` 6 is HTP.
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
    """An engine of a Genie configuration.

    `role` is target, draft, primary, secondary, or "" for the only engine. `backend` is the backend
    type (QnnHtp, QnnGenAiTransformer, QnnGpu).
    """

    role: str
    backend: str | None


@dataclass(frozen=True)
class NamedFile:
    """A file that a run opens because `named_by` refers to it."""

    name: str
    named_by: str


@dataclass(frozen=True)
class BundleKind:
    """A kind of bundle folder.

    `models` are patterns; a file must match one of them. `contexts` is the pattern of context
    binaries; with `around` they may follow a header, or be absent. `marks` are pairs of a pattern
    and a description: a folder without `kind:` that has a matching file is of this kind. `about` is
    its description in the docs of playbooks. `needs` are other files that a run opens, each with
    its use and its pattern, unless an option of the runner names another file.
    """

    name: str
    about: str = ""
    models: tuple[str, ...] = ()
    contexts: str = ""
    around: bool = False
    marks: tuple[tuple[str, str], ...] = ()
    needs: tuple[tuple[str, str], ...] = ()


# Marks of each kind: docs/sources/deployment.md 4. The first kind with a matching mark is used.
KINDS = {
    kind.name: kind
    for kind in (
        BundleKind("genie"),
        BundleKind("mllm", "", ("*.bin", "*.mllm"), "*.bin",
                   marks=(("*.mllm", "an mllm model"),
                          ("qnn_aot_cfg*.json", "an mllm QNN AOT model")),
                   needs=(("tokenizer", "*tokenizer*.json"), ("config", "config*.json"))),
        BundleKind("executorch", ".pte", ("*.pte",), "*.pte", around=True,
                   marks=(("*.pte", "an ExecuTorch program"),)),
        BundleKind("ort", "ONNX models, with or without context binaries", ("*.onnx",), "*.bin",
                   marks=(("genai_config.json", "an onnxruntime-genai folder"),
                          ("*.onnx", "an ONNX model"))),
        BundleKind("litert", ".tflite", ("*.tflite",), "*.tflite", around=True,
                   marks=(("*.tflite", "a LiteRT model"),)),
        BundleKind("llama.cpp", ".gguf", ("*.gguf",), marks=(("*.gguf", "a llama.cpp model"),)),
        BundleKind("files", marks=(("*.mnn*", "an MNN model"),
                                   ("*.litertlm", "a LiteRT-LM model"))),
        BundleKind("qnn", "context binary, DLC or model library", ("*.bin", "*.dlc", "lib*.so"),
                   "*.bin", marks=(("*.dlc", "a QNN DLC"),
                                   ("model_libs", "libraries of qnn-model-lib-generator"),
                                   ("*.bin", "plain QNN context binaries"))),
    )
}  # fmt: skip


@dataclass(frozen=True)
class MissingFile:
    """A file that the bundle refers to but does not contain."""

    name: str
    named_by: str

    @property
    def pattern(self) -> bool:
        """True if any file with a fitting name would do, such as `*tokenizer*.json`."""
        return "*" in self.name

    @property
    def placeholder(self) -> bool:
        """True if the name is a placeholder: `<tokenizer_path>`, `${DIR}/a.bin`, `{{ x }}`."""
        return _PLACEHOLDER.search(self.name) is not None


@dataclass(frozen=True)
class FileContent:
    """The facts of a file by its content, for people.

    `about` describes the model. `problem` says why the file cannot be used: cut, or not what its
    name says. `note` is a remark on a file that can be used. `needs` is the pattern of another file
    without which it cannot run.
    """

    name: str
    about: str = ""
    problem: str = ""
    note: str = ""
    needs: str = ""


@dataclass(frozen=True)
class WrongHash:
    """A file whose content differs from SHA256SUMS."""

    name: str
    expected: str
    actual: str

    PLAIN: ClassVar[str] = "name expected found=actual"


@dataclass(frozen=True)
class Bundle:
    """A bundle folder. `qairt` is the required version or build id, None if unknown.

    `files` are the files for the device, with names relative to the bundle. `config` is the Genie
    configuration as data, {} for a genie-app script. `engines` are all engines, and `backend` is
    the backend type (QnnHtp) of the deciding one. `extensions` is the HTP extension file
    `extensions_name` as data.

    `checked_by` is SHA256SUMS if hashes were compared with it; `wrong_hashes` are those that
    differ. `opens` are the files that the bundle's own formats refer to. `absent` are required keys
    that the Genie configuration does not have. `op_packages` come from the playbook and are not
    part of `files`. `contents` has the files whose content is known.
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
    contents: tuple[FileContent, ...] = ()
    PLAIN: ClassVar[str] = "* size usable problems -config -extensions"

    @property
    def size(self) -> int:
        """The size of all files in bytes."""
        return sum(item.size for item in self.files)

    @property
    def faulty(self) -> tuple[ContextBinary | FileContent, ...]:
        """The files that are cut, or not what their names say."""
        files: tuple[ContextBinary | FileContent, ...] = (*self.contexts, *self.contents)
        return tuple(item for item in files if item.problem)

    @property
    def usable(self) -> bool:
        """False if a file or key is missing, or a file is damaged or differs from SHA256SUMS."""
        return not (self.missing or self.absent or self.wrong_hashes or self.faulty)

    @property
    def problems(self) -> list[str]:
        """The problems of the files, one sentence each."""
        return [
            *(
                f"{item.named_by} has the placeholder {item.name} in place of a file name"
                if item.placeholder
                else f"no file {item.name} is in the folder; {item.named_by} needs one"
                if item.pattern
                else f"{item.name} is missing; {item.named_by} refers to it"
                for item in self.missing
            ),
            *(f"{self.config_name} has no {key}, which Genie needs" for key in self.absent),
            *(f"{item.name}: {item.problem}" for item in self.faulty),
            *(
                (
                    f"{item.name} is damaged: its SHA-256 is {item.actual[:12]}, but "
                    f"{self.checked_by} has {item.expected[:12]}"
                )
                for item in self.wrong_hashes
            ),
        ]
