"""Programs of playbooks in archives: downloaded once, verified, unpacked once.

An archive is not trusted: devices, paths and links that lead outside, and excessive sizes are
refused. Its folder is `$FLEET_HOME/programs/<sha256>` and is created atomically.
"""

from __future__ import annotations

import os
import shutil
import tarfile
import zipfile
import zlib
from pathlib import Path, PurePosixPath
from typing import Any

from fleet.model.errors import InputError, RuntimeStoreError, reason
from fleet.model.files import human_bytes, sha256_file
from fleet.model.home import fleet_home, kept
from fleet.model.playbook import RunSpec
from fleet.model.serve import ProgramArchive, ServeSpec
from fleet.runtimes.stage import Progress, stage_folder
from fleet.runtimes.tree import open_zip

_MOST_BYTES = 4_000_000_000  # a release of GenieX has 0.4 GB
_MOST_FILES = 20_000
_RUNS = 0o111
# KeyError: a link to a file that the archive does not have; RecursionError: circular links.
_TAR_ERRORS = (
    *(tarfile.TarError, zlib.error, EOFError, OSError, ValueError, KeyError, RecursionError),
)


def bring_program(
    user: RunSpec | ServeSpec | None, progress: Progress, *, offline: bool = False
) -> None:
    """Provide the program of a run or service if it comes in an archive.

    Raises RuntimeStoreError for an archive that is unavailable (`offline`: not here), different or
    hostile, and InputError for a program that it does not contain.
    """
    if user is None or user.archive is None or user.program is None:
        return
    archive, program = user.archive, user.program
    if not archive.folder.is_dir():
        with kept(archive.folder):
            _bring(archive, progress, offline=offline)
    if not program.is_file():
        wanted = program.relative_to(archive.folder).as_posix()
        same = sorted(path.relative_to(archive.folder).as_posix()
                      for path in archive.folder.rglob(program.name))  # fmt: skip
        raise InputError(
            f"the archive {archive.source} does not contain {wanted}",
            hint=f"write `file: {same[0]}` under `program:` in the playbook"
            if same
            else f"correct `file:` under `program:` in the playbook; ls {archive.folder}",
        )


def stored_programs(folder: Path) -> list[dict[str, Any]]:
    """Return the unpacked archives: SHA-256, size in bytes, and the playbooks that name them.

    The playbooks are the YAML files in `folder` and in its direct subfolders; files that this user
    cannot read are skipped.
    """
    home = fleet_home() / "programs"
    playbooks = [path for pattern in ("*.y*ml", "*/*.y*ml") for path in sorted(folder.glob(pattern))
                 if path.is_file() and os.access(path, os.R_OK)]  # fmt: skip
    texts = {str(path): path.read_bytes() for path in playbooks}
    return [
        {
            "sha256": root.name,
            "size": sum(path.lstat().st_size for path in root.rglob("*")),
            "used_by": [name for name, text in texts.items() if root.name.encode() in text],
        }
        for root in sorted(home.glob("?" * 64))
    ]


def remove_program(start: str) -> str:
    """Remove the archive whose SHA-256 begins with `start`, and return it. Raises InputError."""
    roots = [root for root in (fleet_home() / "programs").glob("?" * 64)
             if root.name.startswith(start)]  # fmt: skip
    if len(roots) != 1 or not start:
        raise InputError(
            f"{len(roots)} archives of programs have a SHA-256 that begins with '{start}'",
            hint="fleet runtime programs (lists them)",
        )
    with kept(roots[0]):
        shutil.rmtree(roots[0])
    return roots[0].name


def _bring(archive: ProgramArchive, progress: Progress, *, offline: bool) -> None:
    home, remote = archive.folder.parent, "://" in archive.source
    if remote and offline:
        raise RuntimeStoreError(
            f"the archive {archive.source} is not on this workstation, and --offline or --frozen "
            "forbids a download",
            hint="download it elsewhere, and write its path as `archive:` under `program:`",
        )
    if not remote:
        _unpack(Path(archive.source), archive, progress)
        return
    from fleet.runtimes import download  # noqa: PLC0415 - 0.1 s for httpx

    folder = home / ".downloads"
    with download.part_lock(folder, archive.sha256):
        if archive.folder.is_dir():
            return  # another process was faster
        path = download.download(archive.source, archive.sha256, folder, progress)
        try:
            _unpack(path, archive, progress)
        finally:
            path.unlink(missing_ok=True)


def _unpack(path: Path, archive: ProgramArchive, progress: Progress) -> None:
    digest = sha256_file(path)
    if digest != archive.sha256:
        raise RuntimeStoreError(
            f"the SHA-256 of {archive.source} is {digest}, but the playbook says {archive.sha256}",
            hint="compare both with the value that the publisher states",
        )
    progress("unpacking", 0, None)
    with stage_folder(archive.folder.parent) as stage:
        root = stage / "files"
        root.mkdir()
        if not zipfile.is_zipfile(path):
            _untar(path, root)
        else:
            with open_zip(path) as zipped:
                _require_small(sum(zipped.sizes().values()), len(zipped.sizes()))
                for name in zipped.sizes():
                    (root / name).parent.mkdir(parents=True, exist_ok=True)
                    zipped.place(name, root / name)
        entries = list(root.iterdir())
        if len(entries) == 1 and entries[0].is_dir():
            root = entries[0]
        root.chmod(0o700)
        root.rename(archive.folder)


def _untar(path: Path, root: Path) -> None:
    """Unpack files and folders. A link within the archive becomes a copy of its file."""
    total = 0
    try:
        with tarfile.open(path) as tar:
            for count, member in enumerate(tar):
                if member.isdir():
                    continue
                name = PurePosixPath(member.name)
                stream = tar.extractfile(member) if not member.isdev() else None
                if stream is None or name.is_absolute() or ".." in name.parts:
                    raise _hostile(f"{member.name!r} is a device or a path outside")
                place = root / name
                place.parent.mkdir(parents=True, exist_ok=True)
                with stream, place.open("xb") as out:
                    shutil.copyfileobj(stream, out)
                    total += out.tell()
                place.chmod(0o755 if member.mode & _RUNS else 0o644)
                _require_small(total, count)
    except _TAR_ERRORS as error:
        raise RuntimeStoreError(
            f"fleet cannot unpack the archive {path}: {reason(error)}",
            hint="download the archive again; fleet unpacks .tar.gz, .tar.xz, .tar.bz2 and .zip",
        ) from error


def _require_small(total: int, count: int) -> None:
    if total > _MOST_BYTES or count > _MOST_FILES:
        raise _hostile(f"it holds more than {human_bytes(_MOST_BYTES)} or {_MOST_FILES} files")


def _hostile(why: str) -> RuntimeStoreError:
    return RuntimeStoreError(
        f"the archive of the program is not safe to unpack: {why}",
        hint="download the archive from its publisher again",
    )
