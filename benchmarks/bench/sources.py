"""What is sent: random bytes, which nothing can compress, and their hashes."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

MIB = 1 << 20
SETTLED = 1_700_000_000  # an mtime long ago, in whole seconds: every tool can carry it


def blob(path: Path, size: int) -> Path:
    """A file of `size` random bytes."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("wb") as sink:
        for left in range(size, 0, -MIB):
            sink.write(os.urandom(min(MIB, left)))
    os.utime(path, (SETTLED, SETTLED))
    return path


def change(path: Path, size: int, at: int, mtime: int) -> None:
    """Put `size` new random bytes at `at`; the file is then of second `mtime`."""
    with path.open("r+b") as sink:
        sink.seek(at)
        sink.write(os.urandom(size))
    os.utime(path, (mtime, mtime))


def tree(folder: Path, files: int, folders: int, size: int = 4096) -> Path:
    """`files` files of random bytes, spread over `folders` folders."""
    for number in range(files):
        place = folder / f"d{number % folders:02d}" / f"f{number // folders:03d}"
        blob(place, size)
    return folder


def hashes(source: Path) -> dict[str, str]:
    """Name below the parent of `source` -> SHA-256: `big`, or `many/d00/f000`."""
    files = sorted(source.rglob("*")) if source.is_dir() else [source]
    found = {}
    for path in files:
        if path.is_file():
            with path.open("rb") as stream:
                digest = hashlib.file_digest(stream, "sha256").hexdigest()
            found[path.relative_to(source.parent).as_posix()] = digest
    return found


def size_of(source: Path) -> int:
    """Bytes of a file, or of all files below a folder."""
    if source.is_file():
        return source.stat().st_size
    return sum(path.stat().st_size for path in source.rglob("*") if path.is_file())


def arrived(wanted: dict[str, str], found: dict[str, str]) -> str:
    """Why `found` (path -> SHA-256) does not hold `wanted` below one folder; "" when it does.

    Some tools put a folder, others what is in it: names may lack their first part.
    """
    first, digest = next(iter(wanted.items()))
    shorter = {name.partition("/")[2]: value for name, value in wanted.items()}
    for names in (wanted, shorter) if "/" in first else (wanted,):
        name = next(iter(names))
        for path in found:
            prefix = path.removesuffix(name)
            if path.endswith(name) and (not prefix or prefix.endswith("/")):
                wrong = [one for one in names if found.get(prefix + one) != names[one]]
                if not wrong:
                    return ""
                return f"{len(wrong)} of {len(names)} files are wrong or missing, first {wrong[0]}"
    return f"{first} ({digest[:12]}) is not there; there are {len(found)} files"
