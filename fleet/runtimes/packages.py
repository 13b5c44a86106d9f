"""Python packages for a device: wheels that are unpacked here and become files of the release.

A wheel is a zip of files with their final names, so nothing is installed or downloaded on the
device. Files for developers only (tests, headers, stubs) are left out.
"""

from __future__ import annotations

import hashlib
import json
import re
import shlex
import zipfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path, PurePosixPath
from typing import Any

from msgspec import Struct

from fleet.model.errors import InputError, RuntimeStoreError, reason
from fleet.model.files import FileRef, listed, sha256_file
from fleet.model.home import fleet_home, private_folder
from fleet.model.plain import read_plain
from fleet.runtimes import pip
from fleet.runtimes.stage import Progress, file_lock, stage_folder
from fleet.runtimes.targets import target_facts
from fleet.runtimes.tree import ZIP_ERRORS

SITE = "site"
_LOCK_SECONDS = 900.0  # another process downloads the same: about 100 MB
_OLDEST_GLIBC = 17  # manylinux2014; wheels of pure Python fit anywhere
_MANYLINUX = re.compile(r"manylinux_2_(\d+)_(\w+)")
# Files that no run needs. Licences (dist-info) are kept.
_LEFT_OUT = (
    "*/tests/*",
    "*.pyi",
    "*.h",
    "*.a",
    "*.lib",
    "ai_edge_litert/aot/*",
    "ai_edge_litert/tools/*",
    "ai_edge_litert/vendors/*",  # compilers, and dispatch libraries for other NPUs
    "ai_edge_litert/libLiteRtWebGpuAccelerator.so",
    "onnxruntime/tools/*",
    "onnxruntime/transformers/*",
    "onnxruntime/quantization/*",
    "onnxruntime/datasets/*",
    # QAIRT's own libraries come from the runtime, only for the device's chip.
    "onnxruntime_qnn/libQnn*",
    "onnxruntime_qnn/libGenie*",
    "onnxruntime_qnn/libHtpPrepare*",
    "onnxruntime_qnn/Qnn*.dll",
    "onnxruntime_qnn/Genie*.dll",
    "onnxruntime_qnn/libqnnhtp*.cat",
)


@dataclass(frozen=True)
class Packages:
    """The packages of a release. `files` are `site/...`; `wheels` maps wheel names to SHA-256."""

    files: tuple[FileRef, ...]
    wheels: Mapping[str, str]


class _File(Struct, frozen=True):
    name: str
    size: int
    sha256: str


class _Stored(Struct, frozen=True):
    files: tuple[_File, ...]
    wheels: Mapping[str, str]


def packages_for(
    requirements: tuple[str, ...],
    python: str,
    target: str,
    *,
    offline: bool,
    progress: Progress,
    root: Path | None = None,
) -> Packages:
    """Return packages for a Python (`3.12`) of a target.

    They are chosen once and then stay the same.

    Only these packages are returned, so dependencies must be named. Raises RuntimeStoreError: not
    here and `offline`, no such wheel, no network, a damaged wheel.
    """
    platforms = _platforms(target)
    wish = {"requirements": sorted(requirements), "python": python, "platforms": platforms}
    key = hashlib.sha256(json.dumps(wish, sort_keys=True).encode()).hexdigest()[:16]
    home = root or fleet_home() / "packages"
    folder = home / key
    try:
        private_folder(home)
        with file_lock(home / f".{key}.lock", _LOCK_SECONDS):
            if not (folder / "packages.json").is_file():
                if offline:
                    raise RuntimeStoreError(
                        "this workstation does not have the Python package "
                        f"{', '.join(requirements)} for Python {python} on {target}, and "
                        "--offline forbids a download",
                        hint="run the command once without --offline; fleet then keeps the files",
                    )
                _make(folder, wish, progress)
        return _read(folder)
    except OSError as error:
        raise RuntimeStoreError(
            f"fleet cannot store the Python packages in {home}: {reason(error)}",
            hint="check this path, its permissions and the free disk space (df -h), or set "
            "FLEET_HOME to another folder",
        ) from error


def _make(folder: Path, wish: dict[str, Any], progress: Progress) -> None:
    with stage_folder(folder.parent) as stage:
        downloads, made = stage / "wheels", stage / "made"
        downloads.mkdir()
        wheels = pip.download_for(
            wish["requirements"], wish["python"], wish["platforms"], downloads, progress
        )
        for wheel in wheels:
            _unpack(wheel, made / SITE)
        files = listed(made)
        sums = {wheel.name: sha256_file(wheel) for wheel in wheels}
        text = json.dumps({**wish, "wheels": sums, "files": files}, indent=1)
        (made / "packages.json").write_text(text, "utf-8")
        made.rename(folder)


def _unpack(wheel: Path, site: Path) -> None:
    try:
        with zipfile.ZipFile(wheel) as archive:
            for item in _wanted(archive):
                place = site / item.filename
                place.parent.mkdir(parents=True, exist_ok=True)
                place.write_bytes(archive.read(item))
    except ZIP_ERRORS as error:
        raise RuntimeStoreError(
            f"the wheel {wheel.name} is damaged: {reason(error)}; fleet did not unpack it",
            hint="run the command again; if it fails again, check the package index: "
            "pip config list",
        ) from error


def _wanted(archive: zipfile.ZipFile) -> Iterator[zipfile.ZipInfo]:
    for item in archive.infolist():
        path = PurePosixPath(item.filename)
        if path.is_absolute() or ".." in path.parts:
            raise ValueError(f"its file {item.filename} has a path outside the folder of the wheel")
        if not item.is_dir() and not left_out(item.filename):
            yield item


def left_out(name: str) -> bool:
    """Return True for a file of a wheel that no run needs."""
    return any(fnmatchcase(name, pattern) for pattern in _LEFT_OUT)


def _read(folder: Path) -> Packages:
    try:
        text = (folder / "packages.json").read_text("utf-8")
        stored = read_plain(_Stored, json.loads(text), "packages.json", "")
    except (ValueError, InputError) as error:
        raise RuntimeStoreError(
            f"the stored Python packages in {folder} are damaged: {reason(error)}",
            hint=f"rm -r {shlex.quote(str(folder))} (then run the command again, which downloads "
            "them)",
        ) from error
    files = (
        FileRef(folder / file.name, file.name, file.size, file.sha256) for file in stored.files
    )
    return Packages(tuple(files), stored.wheels)


def _platforms(target: str) -> list[str]:
    """Return the wheel tags that a device of this target accepts, best first."""
    facts = target_facts(target)
    tags = list(facts.wheel_platforms)
    match = next((m for tag in tags if (m := _MANYLINUX.fullmatch(tag))), None)
    if match is None and tags:
        return tags  # the tags of Windows are complete
    if match is None:
        raise RuntimeStoreError(
            f"fleet knows no Python packages of ONNX Runtime for the target {target}",
            hint="use the runner ort only on Linux and Windows devices",
        )
    newest, machine = int(match[1]), match[2]
    more = [f"manylinux_2_{minor}_{machine}" for minor in range(newest, _OLDEST_GLIBC - 1, -1)]
    return [*dict.fromkeys([*tags, *more, f"manylinux2014_{machine}"])]
