"""One file that goes to a device."""

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
# Microsoft, Naming Files, Paths, and Namespaces: what a name must not have, end with or be
_ODD_ON_WINDOWS = re.compile(
    r'(?P<has>[\0-\x1f<>:"\\|?*])|(?P<end>[. ]\Z)|'
    r"(?P<is>\A(?:CON|PRN|AUX|NUL|CONIN\$|CONOUT\$|(?:COM|LPT)[0-9¹²³])\s*(?:\.|\Z))",
    re.IGNORECASE,
)
BLOCK_BYTES = 1 << 16  # what two versions of a large file are compared by


@dataclass(frozen=True)
class FileRef:
    """A host file and its name inside a release (relative POSIX path).

    `size` in bytes, `sha256` in lower-case hex of the whole content. `held`: that content, of
    some small files that were just hashed; it need not be read again.
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
    """Bytes `start` to `end` of a file, on their way: whoever can has the kernel move them.

    `load` reads them, for all others. Raises InputError when the file has become shorter.
    """

    path: Path
    start: int
    end: int
    load: Callable[[], bytes]

    def __len__(self) -> int:
        return self.end - self.start

    def changed(self) -> InputError:
        """The error for a file that has become shorter meanwhile."""
        return changed(self.path)


Chunk = bytes | Span


def changed(path: Path) -> InputError:
    """The error for a source that is another file now."""
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
    """Refuse names that Windows would change, take for a device or mix up; it ignores case.

    Raises InputError for the first, with the reason.
    """
    seen: dict[str, str] = {}
    for name in names:
        why, inside = "", ""
        for part in name.split("/"):
            inside = posixpath.join(inside, part)
            first = seen.setdefault(inside.upper(), inside)
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
def told(
    path: Path, doing: str = "read", kind: type[FleetError] = InputError, hint: str = ""
) -> Iterator[None]:
    """Around the reading or writing of a file: what goes wrong is a `kind` that says so."""
    try:
        yield
    except (OSError, UnicodeDecodeError) as error:
        look = hint or f"check that this is the right file: ls -l {shlex.quote(str(path))}"
        raise kind(f"cannot {doing} the file {path}: {reason(error)}", hint=look) from error


def sha256_file(path: Path) -> str:
    """SHA-256 of a file as lower-case hex; about 1 GB/s on a CPU with SHA extensions."""
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def listed(folder: Path) -> list[dict[str, str | int]]:
    """Name, size in bytes and sha256 of every file below a folder, by name; plain data."""
    return [
        {"name": str(path.relative_to(folder)), "size": path.stat().st_size,
         "sha256": sha256_file(path)}
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    ]  # fmt: skip


def file_ref(source: Path, name: str, *, executable: bool = False) -> FileRef:
    """Hash `source` and describe it under `name`."""
    return FileRef(source, name, source.stat().st_size, sha256_file(source), executable)


def human_bytes(count: int | None) -> str:
    """Bytes for people: `1.4 MB` (powers of 1000); None is `unknown`."""
    if count is None:
        return "unknown"
    value = float(count)
    for unit in ("B", "kB", "MB"):
        if value < 1000:
            return f"{value:.0f} B" if unit == "B" else f"{value:.1f} {unit}"
        value /= 1000
    return f"{value:.1f} GB"


def contents(path: str | Path) -> bytes:
    """All of a small file, a third of the time of `read_bytes`. Raises OSError."""
    stream = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    parts = []
    try:
        while part := os.read(stream, BLOCK_BYTES):
            parts.append(part)
    finally:
        os.close(stream)
    return b"".join(parts)
