"""An SDK or wheel as a set of named files, from a folder or a zip.

A zip is not trusted: absolute names, `..`, links and excessive sizes are refused, and only needed
members are extracted.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import stat
import struct
import zipfile
import zlib
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path, PurePosixPath

from fleet.model.errors import RuntimeStoreError, reason
from fleet.model.files import human_bytes

_GLOBS = ("*", "lib/*/*", "lib/hexagon-*/unsigned/*", "bin/*/*")
_MAX_MEMBER = 2_000_000_000  # the largest QAIRT library seen has 106 MB
_MAX_RATIO = 250  # QAIRT libraries compress 2 to 10 times; a zip bomb 1000 times
_METHODS = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)  # of SDKs, wheels and AI Hub
_RATIO_FROM = 10_000_000  # a small file full of zeros is not a bomb
_FICLONE = 0x40049409  # ioctl of Linux: share the blocks of a file (btrfs, xfs)
_CHUNK = 1 << 20
_RUNS = stat.S_IXUSR | stat.S_IXGRP | stat.S_IXOTH
# The exceptions of zipfile for invalid or unsupported zips.
ZIP_ERRORS = (
    zipfile.BadZipFile,
    zlib.error,
    struct.error,
    EOFError,
    IndexError,
    OverflowError,
    RuntimeError,  # includes NotImplementedError
    ValueError,  # includes UnicodeDecodeError
)


class FolderTree:
    """An extracted SDK. Only `lib/*/`, `bin/*/`, `lib/hexagon-*/unsigned/` and the top are used."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def sizes(self) -> Mapping[str, int]:
        """Return the relevant files of the SDK; docs and examples are never walked."""
        return {
            path.relative_to(self.root).as_posix(): path.stat().st_size
            for pattern in _GLOBS
            for path in sorted(self.root.glob(pattern))
            if path.is_file()
        }

    def head(self, name: str, count: int) -> bytes:
        """Return the first bytes of a file."""
        with (self.root / name).open("rb") as stream:
            return stream.read(count)

    def place(self, name: str, destination: Path) -> None:
        """Share the blocks of a file, else hard-link, else copy it: an SDK has gigabytes."""
        source = (self.root / name).resolve()
        if not _reflink(source, destination):
            try:
                os.link(source, destination)
            except OSError:  # another filesystem, or it refuses links
                shutil.copyfile(source, destination)
            else:
                return
        if source.stat().st_mode & _RUNS:
            _let_run(destination)


def _let_run(path: Path) -> None:
    """Add the execute right for everybody who may read the file."""
    mode = stat.S_IMODE(path.stat().st_mode)
    path.chmod(mode | (mode & 0o444) >> 2)


def _reflink(source: Path, destination: Path) -> bool:
    with source.open("rb") as old, destination.open("xb") as new:
        try:
            fcntl.ioctl(new.fileno(), _FICLONE, old.fileno())
        except OSError:
            destination.unlink()
            return False
    return True


class ZipTree:
    """A zip. Raises RuntimeStoreError for a broken or hostile one."""

    def __init__(
        self, archive: zipfile.ZipFile, prefix: str = "", max_member: int = _MAX_MEMBER
    ) -> None:
        self._archive = archive
        self._max_member = max_member
        self.prefix = prefix
        self._members = {
            info.filename.removeprefix(prefix): info
            for info in archive.infolist()
            if _checked(info) and info.filename.startswith(prefix) and not info.is_dir()
        }

    def below(self, prefix: str) -> ZipTree:
        """Return the same zip as seen from one of its folders (`qairt/2.51.0/`)."""
        return ZipTree(self._archive, prefix, self._max_member)

    def sizes(self) -> Mapping[str, int]:
        """Return all members."""
        return {name: info.file_size for name, info in self._members.items()}

    @property
    def contents_start(self) -> int:
        """The offset of the table of contents (the central directory) in the file."""
        return self._archive.start_dir

    def spans(self, names: Collection[str]) -> list[tuple[int, int]]:
        """Return the byte ranges of the file that contain these members with their headers."""
        starts = sorted({info.header_offset for info in self._archive.infolist()})
        ends = dict(zip(starts, [*starts[1:], self.contents_start], strict=True))
        offsets = (self._members[name].header_offset for name in names)
        return [(start, ends[start]) for start in offsets]

    def head(self, name: str, count: int) -> bytes:
        """Return the first bytes of a member."""
        with _zip_errors(name), self._archive.open(self._usable(name)) as stream:
            return stream.read(count)

    def place(self, name: str, destination: Path) -> None:
        """Extract one member and verify its checksum."""
        info = self._usable(name)
        with _zip_errors(name), self._archive.open(info) as stream, destination.open("xb") as out:
            shutil.copyfileobj(stream, out, _CHUNK)
            if out.tell() != info.file_size:
                raise zipfile.BadZipFile(f"{out.tell()} bytes instead of {info.file_size}")
        mode = info.external_attr >> 16  # 0: made on a system without modes, such as Windows
        if mode & _RUNS or (not mode and name.startswith("bin/")):
            _let_run(destination)

    def _usable(self, name: str) -> zipfile.ZipInfo:
        info = self._members[name]
        if stat.S_ISLNK(info.external_attr >> 16):
            raise _hostile(f"{name} is a link")
        if info.compress_type not in _METHODS:
            raise _hostile(
                f"{name} uses the compression method {info.compress_type}, but fleet supports "
                "only 0 (stored) and 8 (deflated)"
            )
        most = min(self._max_member, max(_RATIO_FROM, _MAX_RATIO * info.compress_size))
        if info.file_size > most:
            packed, size = human_bytes(info.compress_size), human_bytes(info.file_size)
            raise _hostile(
                f"{name} would grow from {packed} to {size}, but the limit is {human_bytes(most)}"
            )
        return info


FileTree = FolderTree | ZipTree  # named files with their sizes, which can be copied to a place


@contextmanager
def open_zip(path: Path, max_member: int = _MAX_MEMBER) -> Iterator[ZipTree]:
    """Open the zip at `path`. Raises RuntimeStoreError if it is not a zip or is truncated.

    A member of more than `max_member` bytes is refused when it is placed.
    """
    try:
        archive = zipfile.ZipFile(path)
    except (*ZIP_ERRORS, OSError) as error:
        raise RuntimeStoreError(
            f"{path} is not a zip file, or is damaged: {reason(error)}",
            hint="give the SDK's zip file or a wheel, or download it again",
        ) from error
    with archive:
        yield ZipTree(archive, max_member=max_member)


def _checked(info: zipfile.ZipInfo) -> bool:
    name = info.filename
    if not name:
        raise _hostile("a file has no name")
    drive = len(name) > 1 and name[1] == ":"
    if name.startswith("/") or drive or "\\" in name or ".." in PurePosixPath(name).parts:
        raise _hostile(f"the file {name!r} has a path outside the folder")
    return True


@contextmanager
def _zip_errors(name: str) -> Iterator[None]:
    try:
        yield
    except ZIP_ERRORS as error:
        raise RuntimeStoreError(
            f"the zip file is damaged: fleet cannot extract {name} ({reason(error)})",
            hint="download the zip file again",
        ) from error


def _hostile(why: str) -> RuntimeStoreError:
    return RuntimeStoreError(
        f"the zip file is not safe to extract: {why}",
        hint="download the SDK or wheel from its publisher again",
    )
