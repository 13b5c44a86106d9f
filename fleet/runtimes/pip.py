"""Downloads of wheels with the user's own pip, which handles indexes, proxies and certificates."""

from __future__ import annotations

import importlib.metadata
import os
import re
import shutil
import subprocess
import sys
import tempfile
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import IO

from packaging.version import Version

from fleet.data import load
from fleet.model.errors import RuntimeStoreError
from fleet.runtimes.releases import require_known
from fleet.runtimes.stage import Progress

_PIP_SECONDS = 3600.0  # 100 MB over a slow line; pip itself gives up on a silent server
_RAW_PROGRESS = Version("24.1")  # `--progress-bar raw` prints `Progress DONE of TOTAL`
_PROGRESS = re.compile(rb"^Progress (\d+) of (\d+)")
_ABSENT = re.compile(r"No matching distribution found|Could not find a version that satisfies")
_BROKEN = re.compile(r"connection broken|ConnectionError|ProxyError|Max retries|SSLError|timed out")


def download(requirement: str, platforms: Sequence[str], folder: Path, progress: Progress) -> Path:
    """Download the wheel of `requirement` for one of `platforms` into `folder`.

    A wheel is tagged for one Python. The newest available one is used, because QAIRT's files are
    the same in all. Raises RuntimeStoreError: no pip, no such wheel, no network, or a file that
    differs from the published one.
    """
    command = _command(requirement, platforms, folder)
    output = ""
    for python in load("runtime_files")["wheel_pythons"]:
        status, output = _run(
            [*command, "--python-version", python, requirement],
            f"downloading {requirement}",
            progress,
        )
        if status == 0:
            return _only_wheel(folder, requirement)
        if _BROKEN.search(output) or not _ABSENT.search(output):
            break
    cause = _last_error(output)
    if _BROKEN.search(output) or not _ABSENT.search(output):
        raise RuntimeStoreError(
            f"pip could not download {requirement}: {cause}",
            hint="check the network and the index of pip (pip config list), or add a "
            "wheel file: fleet runtime add FILE.whl",
        )
    raise RuntimeStoreError(
        f"pip found no wheel of {requirement} for {platforms[0]}: {cause}",
        hint="check the version number, or add a QAIRT SDK: fleet runtime add PATH",
    )


def download_for(
    requirements: Sequence[str],
    python: str,
    platforms: Sequence[str],
    folder: Path,
    progress: Progress,
) -> list[Path]:
    """Download wheels of exactly these packages, without dependencies, for one Python (`3.12`).

    Raises RuntimeStoreError: no pip, no such wheel, no network, or a file that differs from the
    published one.
    """
    names = ", ".join(requirements)
    command = [*_command(names, platforms, folder), "--python-version", python, *requirements]
    status, output = _run(command, f"downloading {names}", progress)
    if status == 0:
        wheels = sorted(folder.glob("*.whl"))
        for wheel in wheels:
            require_known(wheel)
        return wheels
    cause = _last_error(output)
    if _ABSENT.search(output) and not _BROKEN.search(output):
        raise RuntimeStoreError(
            f"the package index has no wheel for Python {python} on {platforms[0]}: {cause}",
            hint="set another `runtime:` in the playbook, or install another Python on the device",
        )
    raise RuntimeStoreError(
        f"pip could not download {names}: {cause}",
        hint="check the network and the index of pip: pip config list",
    )


def _command(requirement: str, platforms: Sequence[str], folder: Path) -> list[str]:
    pip, bar = [sys.executable, "-m", "pip"], "raw"
    try:
        bar = "raw" if Version(importlib.metadata.version("pip")) >= _RAW_PROGRESS else "off"
    except importlib.metadata.PackageNotFoundError as error:
        uv = os.environ.get("UV") or shutil.which("uv")  # its environments have no pip
        if uv is None:
            raise RuntimeStoreError(
                f"fleet needs pip to download {requirement}, but {sys.executable} has no pip",
                hint=f"{sys.executable} -m ensurepip, or fleet runtime add FILE.whl",
            ) from error
        pip = [uv, "tool", "run", "--quiet", "--from", f"pip>={_RAW_PROGRESS}", "pip"]
    command = [*pip, "download", "--no-deps", "--only-binary=:all:"]
    command += ["--no-input", "--disable-pip-version-check", "--progress-bar", bar]
    command += ["--implementation", "cp", "--dest", str(folder)]
    for platform in platforms:
        command += ["--platform", platform]
    return command


def _run(command: Sequence[str], doing: str, progress: Progress) -> tuple[int, str]:
    """Run pip; return its exit status and its output. Progress lines are forwarded."""
    progress(doing, 0, None)
    with tempfile.TemporaryFile() as errors:
        with subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=errors
        ) as process:
            timer = threading.Timer(_PIP_SECONDS, process.kill)
            timer.start()
            try:
                printed = _listen(process.stdout, doing, progress)
            finally:
                timer.cancel()
        errors.seek(0)
        return process.returncode, printed + errors.read().decode("utf-8", "replace")


def _listen(stream: IO[bytes] | None, doing: str, progress: Progress) -> str:
    lines = []
    for line in stream or ():
        match = _PROGRESS.match(line)
        if match:
            progress(doing, int(match[1]), int(match[2]) or None)
        else:
            lines.append(line.decode("utf-8", "replace"))
    return "".join(lines)


def _only_wheel(folder: Path, requirement: str) -> Path:
    wheels = sorted(folder.glob("*.whl"))
    if len(wheels) != 1:
        raise RuntimeStoreError(
            f"pip downloaded {len(wheels)} wheels for {requirement} instead of one",
            hint=f"pip download --no-deps '{requirement}', then: fleet runtime add FILE.whl (that "
            "for the system and the CPU of the devices)",
        )
    require_known(wheels[0])
    return wheels[0]


def _last_error(output: str) -> str:
    lines = [line for line in output.splitlines() if line.startswith("ERROR:")]
    last = output.strip().rpartition("\n")[2][-300:] or "pip printed nothing"
    return (lines[0] if lines else last).removeprefix("ERROR:").strip()
