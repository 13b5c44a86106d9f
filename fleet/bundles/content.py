"""The content of a file, compared with its name: a wrong file, a cut file, a pointer to a file.

Sources: the pointer of Git LFS (docs/spec.md of git-lfs/git-lfs) and of git-annex (its manual,
pointer files); schema/program.fbs and extended_header.h of pytorch/executorch; the head of GGUF
(docs/gguf.md of ggml-org/llama.cpp); PKWARE's APPNOTE for ZIP, the container of a DLC, whose
`dlc.metadata` names its converter.
"""

from __future__ import annotations

import mmap
import re
import shlex
import struct
import zipfile
from collections.abc import Callable
from fnmatch import fnmatchcase
from pathlib import Path

from fleet.bundles.gguf import ON_HEXAGON, read_gguf
from fleet.bundles.tflite import operations
from fleet.model.bundle import FileContent
from fleet.model.errors import BundleError
from fleet.model.files import human_bytes
from fleet.runtimes.tree import ZIP_ERRORS

_LFS = re.compile(rb"version https://git-lfs\.github\.com/spec/v\d+\r?\n")
_LFS_SIZE = re.compile(rb"(?m)^size (\d{1,18})\r?$")
_ANNEX = re.compile(rb"[^\n]{0,200}/annex/objects/")
# An XML file is the answer of a server only if it is an <Error>, as object stores send it.
_PAGE = re.compile(
    rb"(?:\xef\xbb\xbf)?\s*(?:<\?xml[^>]*>\s*)?<(?:!doctype html|html|head|body|error)\b",
    re.IGNORECASE,
)
_READABLE = (
    *("*.htm", "*.html", "*.xml", "*.svg", "*.txt", "*.md", "*.csv", "*.yaml", "*.yml", "*.json"),
    *("*.jinja", "*.log", "*.py", "*.sh", "LICENSE*", "NOTICE*", "README*", "SHA256SUMS"),
)
# The place and the bytes of the mark that each file of this suffix has.
_MARKS = {
    ".gguf": (0, b"GGUF", "a GGUF model"),
    ".pte": (4, b"ET", "an ExecuTorch program"),
    ".tflite": (4, b"TFL3", "a LiteRT model"),
}
_OTHERS = (
    *_MARKS.values(),
    (0, b"\x7fELF", "an ELF library or program"),
    (0, b"PK\x03\x04", "a ZIP archive"),
    (0, b"\x1f\x8b", "a gzip archive"),
    (0, b"MZ", "a Windows program or library"),
    (0, b"\x89HDF", "an HDF5 file"),
)
HEAD = 1024
_EXTENDED = 8  # the place of the extended header of a .pte: eh00, length, sizes and places
_DELEGATE = re.compile(rb"(Qnn|Xnnpack|Vulkan|CoreML|MPS|EthosU|Neuropilot|Enn|Openvino)Backend")
_METADATA_BYTES = 1 << 20  # a dlc.metadata has a few kB
_CONVERTER = re.compile(r"(?m)^converter-version=[vV]?(\d[\w.]*)")


def file_content(name: str, path: Path) -> FileContent | None:
    """Return the facts of a file by its content; None if its suffix has no known content.

    A `problem` says that the file is not what its name says, or is cut. Raises OSError.
    """
    base = name.rpartition("/")[2].lower()
    with path.open("rb") as stream:
        head = stream.read(HEAD)
    if found := pointer(head, path) or _page(base, head):
        return FileContent(name, problem="; ".join(found))
    suffix = base[base.rfind(".") :] if "." in base else ""
    if suffix in _MARKS:
        place, mark, what = _MARKS[suffix]
        if head[place : place + len(mark)] != mark:
            return FileContent(name, problem=f"not {what}: {described(head)}")
    reader = _READERS.get(suffix)
    return reader(name, path) if reader else None


def pointer(head: bytes, path: Path) -> tuple[str, str] | None:
    """Return the problem of a pointer file, whose content is on a server, and its cure."""
    git, size = f"git -C {shlex.quote(str(path.parent))}", path.stat().st_size
    if _LFS.match(head):
        real = _LFS_SIZE.search(head)
        whole = f" of {human_bytes(int(real[1]))}" if real else ""
        text = f"a Git LFS pointer of {size} bytes in place of the file{whole}"
        return text, f"{git} lfs pull (gets the file)"
    if size <= HEAD and _ANNEX.match(head):
        cure = f"{git} annex get {shlex.quote(path.name)} (gets the file)"
        return "a git-annex pointer in place of the file", cure
    return None


def _page(base: str, head: bytes) -> tuple[str, str] | None:
    if _PAGE.match(head) and not any(fnmatchcase(base, like.lower()) for like in _READABLE):
        return "a web page or an error of a server in place of the file", "download it again"
    return None


def described(head: bytes) -> str:
    """Return what a file is by its first bytes, as the end of a sentence."""
    if not head:
        return "the file is empty"
    for place, mark, what in _OTHERS:
        if head[place : place + len(mark)] == mark:
            return f"it is {what}"
    try:
        text = head.decode("utf-8").strip()
    except UnicodeDecodeError:
        text = ""
    if text and all(char.isprintable() or char.isspace() for char in text):
        return f"it is a text that begins with `{' '.join(text.split())[:40]}`"
    return f"it begins with the bytes {head[:8].hex(' ')}"


def _gguf(name: str, path: Path) -> FileContent:
    try:
        with (
            path.open("rb") as stream,
            mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ) as data,
        ):
            model, size = read_gguf(data), len(data)
    except struct.error:
        return FileContent(name, problem="a GGUF model that is cut: the file ends inside its head")
    except (ValueError, RecursionError) as error:
        return FileContent(name, problem=f"a GGUF model that is cut or damaged: {error}")
    if not model.types and "split.count" not in model.values:  # a first part may have no tensors
        return FileContent(name, problem="a GGUF file with a vocabulary only: it has no tensors")
    if model.end > size:
        return FileContent(
            name, problem=f"truncated: the file has {size} bytes, but its tensors need {model.end}"
        )
    others = sorted(kind for kind in model.types if kind not in ON_HEXAGON)
    note = (
        f"{name} has tensors of the types {', '.join(others)}: the Hexagon backend of older "
        "llama.cpp builds computes only F16, Q4_0, Q8_0, IQ4_NL and MXFP4, and leaves these to "
        "the CPU"
        if others
        else ""
    )
    return FileContent(name, model.about, note=note)


def _pte(name: str, path: Path) -> FileContent:
    with path.open("rb") as stream, mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ) as data:
        size, program = len(data), len(data)
        if data[_EXTENDED : _EXTENDED + 4] == b"eh00" and size >= _EXTENDED + 32:
            length, program, base = struct.unpack_from("<IQQ", data, _EXTENDED + 4)
            more = struct.unpack_from("<Q", data, _EXTENDED + 24)[0] if length >= 32 else 0
            if (need := max(program, base + more)) > size:
                return FileContent(
                    name, problem=f"truncated: the file has {size} bytes, but needs {need}"
                )
        speaks = data.find(b"get_vocab_size", 0, program) >= 0  # a method of exported LLMs
        backends = sorted({match[0].decode() for match in _DELEGATE.finditer(data, 0, program)})
    note = (
        ""
        if "QnnBackend" in backends
        else (
            f"{name} is compiled for {' and '.join(backends) or 'no backend'}, not for QNN: it "
            "does not run on the NPU"
        )
    )
    about = f"{'language model' if speaks else 'program'} for {', '.join(backends) or 'the CPU'}"
    needs = "*tokenizer*" if speaks else ""
    return FileContent(name, f"ExecuTorch {about}", note=note, needs=needs)


def _tflite(name: str, path: Path) -> FileContent:
    try:
        count = operations(path)
    except BundleError as error:
        return FileContent(name, problem=error.message)
    about = (
        f"{count.compiled} parts compiled for an NPU, {count.others} operations for the CPU"
        if count.compiled
        else f"{count.others} operations, none compiled for an NPU"
    )
    return FileContent(name, f"LiteRT model: {about}")


def _dlc(name: str, path: Path) -> FileContent | None:
    with path.open("rb") as stream:
        head = stream.read(HEAD)
    if head[:2] != b"PK":
        text = described(head)
        fault = not head or text.startswith("it is")
        return FileContent(name, problem=f"not a DLC: {text}") if fault else None
    try:
        with zipfile.ZipFile(path) as archive, archive.open("dlc.metadata") as member:
            text = member.read(_METADATA_BYTES).decode("utf-8", "replace")
    except KeyError:
        return None
    except (*ZIP_ERRORS, OSError) as error:
        return FileContent(name, problem=f"a DLC that is cut or damaged: {error}")
    version = _CONVERTER.search(text)
    return FileContent(name, f"DLC, converted with QAIRT {version[1]}") if version else None


_READERS: dict[str, Callable[[str, Path], FileContent | None]] = {
    ".gguf": _gguf,
    ".pte": _pte,
    ".tflite": _tflite,
    ".dlc": _dlc,
}
