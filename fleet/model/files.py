"""A file that goes to a device."""

from __future__ import annotations

import hashlib
import os
import posixpath
import re
import shlex
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar

from fleet.model.errors import FleetError, InputError, reason

_ODD = re.compile("[\n\t\0\ud800-\udfff]")
# Microsoft, Naming Files, Paths, and Namespaces: forbidden characters, endings and names
_ODD_ON_WINDOWS = re.compile(
    r'(?P<has>[\0-\x1f<>:"\\|?*])|(?P<end>[. ]\Z)|'
    r"(?P<is>\A(?:CON|PRN|AUX|NUL|CONIN\$|CONOUT\$|(?:COM|LPT)[0-9¹²³])\s*(?:\.|\Z))",
    re.IGNORECASE,
)
BLOCK_BYTES = 1 << 16  # unit in which two versions of a large file are compared


@dataclass(frozen=True)
class FileRef:
    """A host file and its name inside a release (relative POSIX path).

    `size` is in bytes, `sha256` in lower-case hex of the whole content. `held` is the content of
    some small files that were just hashed, so that they are not read again.
    """

    source: Path
    name: str
    size: int
    sha256: str
    executable: bool = False
    held: bytes | None = field(default=None, repr=False, compare=False)
    PLAIN: ClassVar[str] = "* -source -held"

    def __post_init__(self) -> None:
        check_name(self.name)


@dataclass(frozen=True)
class Span:
    """The bytes `start` to `end` of a file. A carrier lets the kernel move them if it can.

    Other carriers call `load` to read them. Raises InputError if the file has become shorter.
    """

    path: Path
    start: int
    end: int
    load: Callable[[], bytes]

    def __len__(self) -> int:
        return self.end - self.start

    def changed(self) -> InputError:
        """Return the error for a file that has become shorter in the meantime."""
        return changed(self.path)


Chunk = bytes | Span


def changed(path: Path) -> InputError:
    """Return the error for a source file that has changed."""
    return InputError(
        f"the file {path} was modified while fleet sent it", hint="run the command again"
    )


def check_name(name: str) -> None:
    """Refuse a release name that could leave the release folder. Raises InputError."""
    parts = {part for part in name.split("/") if part not in {"", "."}}
    if not parts or name.startswith("/") or ".." in parts or _ODD.search(name):
        raise InputError(
            f"{name!r} cannot be the name of a file in a release",
            hint="rename the file; its name must be UTF-8 text, without / at the start, `..`, "
            "line breaks and tabs",
        )


def check_windows_names(names: Iterable[str]) -> None:
    """Refuse names that Windows would change, treat as a device or confuse; it ignores case.

    Raises InputError for the first such name, with the reason.
    """
    names_by_case: dict[str, str] = {}
    for name in names:
        why, inside = "", ""
        for part in name.split("/"):
            inside = posixpath.join(inside, part)
            first = names_by_case.setdefault(inside.upper(), inside)
            if first != inside:
                why = f"Windows reads the name as {first!r}"
            elif part != "." and (odd := _ODD_ON_WINDOWS.search(part)):
                why = {
                    "has": f"the name contains {odd[0]!r}",
                    "end": f"the name ends with {odd[0]!r}",
                    "is": f"{odd[0].rstrip('. ')!r} is the name of a device on Windows",
                }[odd.lastgroup or ""]
            if why:
                raise InputError(
                    f"Windows does not allow the file name {inside!r}: {why}",
                    hint=f"rename {shlex.quote(inside)}, or leave it out for Windows devices",
                )


@contextmanager
def file_errors(
    path: Path, doing: str = "read", kind: type[FleetError] = InputError, hint: str = ""
) -> Iterator[None]:
    """Turn an error of reading or writing a file into a `kind` that names the file and the
    reason.
    """
    try:
        yield
    except (OSError, UnicodeDecodeError) as error:
        look = hint or f"check that this is the right file: ls -l {shlex.quote(str(path))}"
        raise kind(f"cannot {doing} the file {path}: {reason(error)}", hint=look) from error


@contextmanager
def written_whole(target: Path, kind: type[FleetError] = InputError) -> Iterator[Path]:
    """Write a file atomically: yield a temporary path that replaces `target` at the end.

    Raises `kind` if the file cannot be written.
    """
    part = target.with_name(f"{target.name}.{os.urandom(4).hex()}.part")
    try:
        with file_errors(target, "write", kind, f"ls -ld {target.parent}"):
            yield part
            part.replace(target)
    finally:
        part.unlink(missing_ok=True)


def sha256_file(path: Path) -> str:
    """Return the SHA-256 of a file as lower-case hex; about 1 GB/s on a CPU with SHA extensions."""
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def listed(folder: Path) -> list[dict[str, str | int]]:
    """Return name, size in bytes and sha256 of every file below a folder, sorted by name."""
    return [
        {"name": str(path.relative_to(folder)), "size": path.stat().st_size,
         "sha256": sha256_file(path)}
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    ]  # fmt: skip


def file_ref(source: Path, name: str, *, executable: bool = False) -> FileRef:
    """Hash `source` and return its FileRef with this `name` and mode."""
    return FileRef(source, name, source.stat().st_size, sha256_file(source), executable)


def human_bytes(count: int | None) -> str:
    """Return bytes for people: `1.4 MB` (powers of 1000); None is `unknown`."""
    if count is None:
        return "unknown"
    value = float(count)
    for unit in ("B", "kB", "MB"):
        if value < 1000:
            return f"{value:.0f} B" if unit == "B" else f"{value:.1f} {unit}"
        value /= 1000
    return f"{value:.1f} GB"


def contents(path: str | Path) -> bytes:
    """Return the content of a small file, three times as fast as `read_bytes`. Raises OSError."""
    stream = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    parts = []
    try:
        while part := os.read(stream, BLOCK_BYTES):
            parts.append(part)
    finally:
        os.close(stream)
    return b"".join(parts)
