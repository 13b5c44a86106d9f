"""qnn_executor_runner, built from sources at hand against the libraries of ExecuTorch's wheel, and
ExecuTorch's own reader of what it leaves.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from fleet.runtimes.stage import file_lock
from tests.support_runtime import cache_root

VERSION = "1.5.1"
LIBRARIES = (
    "libexecutorch_backend_qnn.so", "libexecutorch.so", "libexecutorch_etdump.so",
    "libexecutorch_kernels_optimized.so", "libexecutorch_kernels_quantized.so",
    "libexecutorch_threadpool.so",
)  # fmt: skip
# What the wheel's headers lack: names in a checkout of pytorch/executorch.
_HEADERS = ("backends/qualcomm/runtime/QnnExecuTorch.h", "extension/runner_util/inputs.h")
_SOURCES = (
    "examples/qualcomm/executor_runner/qnn_executor_runner.cpp",
    "extension/runner_util/inputs.cpp",
    "extension/runner_util/inputs_portable.cpp",
)
_TORCH = ("torch==2.13.0", "torchao==0.18.0")  # that 1.5.1 was tried with; the newest may not fit
_SECONDS = 600.0
_READ = """
import json, pathlib, site, sys
site.addsitedir(sys.argv[1])
from fleet.profiles.formats.executorch import read_etdump
found = read_etdump(pathlib.Path(sys.argv[2]).read_bytes()).metrics.others
print(json.dumps({name: measure.value for name, measure in found.items()}))
"""


def runner() -> tuple[Path, tuple[Path, ...]]:
    """(program, its libraries). Skipped without EXECUTORCH_SOURCE, or what building takes."""
    told = os.environ.get("EXECUTORCH_SOURCE")
    if not told:
        pytest.skip("EXECUTORCH_SOURCE=/path is not set: no package has qnn_executor_runner")
    folder = cache_root() / "programs" / f"executorch-{VERSION}"
    with file_lock(cache_root() / "programs.lock", _SECONDS):
        wheel, flags = _wheel(folder / "wheel"), _gflags(folder / "gflags")
        program = folder / "qnn_executor_runner"
        _build(Path(told), wheel, flags, program)
    (gflags,) = flags.glob("usr/lib/*/libgflags.so.2.2")
    return program, (*(wheel / "lib" / name for name in LIBRARIES), gflags)


def inspected(path: Path) -> dict[str, float]:
    """What fleet reads out of an etdump with ExecuTorch's own reader: numbers by their names.

    The reader stands behind this Python's own packages, and in a process of its own.
    """
    done = subprocess.run(
        [sys.executable, "-c", _READ, str(python()), str(path)],
        capture_output=True, text=True, check=False, timeout=_SECONDS,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    found: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return found


def python() -> Path:
    """The folder with the wheel as a package of Python, and torch."""
    folder = cache_root() / "programs" / f"executorch-{VERSION}" / "reader"
    with file_lock(cache_root() / "programs.lock", _SECONDS):
        if not folder.is_dir():
            part = folder.with_name("reader.part")
            shutil.rmtree(part, ignore_errors=True)
            pip = (sys.executable, "-m", "pip", "install", "-q", "--target", str(part))
            _run(*pip, f"executorch=={VERSION}", *_TORCH)
            part.rename(folder)
    return folder


def _run(*argv: str, cwd: Path | None = None) -> None:
    done = subprocess.run(
        argv, capture_output=True, text=True, check=False, timeout=_SECONDS, cwd=cwd
    )
    if done.returncode:
        pytest.skip(f"{argv[0]}: {done.stderr.strip()[-400:]}")


def _wheel(folder: Path) -> Path:
    if not folder.is_dir():
        part = folder.with_name("wheel.part")
        shutil.rmtree(part, ignore_errors=True)
        part.mkdir(parents=True)
        wanted = f"executorch=={VERSION}"
        pip = (sys.executable, "-m", "pip", "download", "-q", "--no-deps", "-d", ".", wanted)
        _run(*pip, cwd=part)
        (wheel,) = part.glob("*.whl")
        with zipfile.ZipFile(wheel) as packed:
            names = [
                name
                for name in packed.namelist()
                if name.startswith(("executorch/lib/", "executorch/include/"))
            ]
            packed.extractall(part, names)
        wheel.unlink()
        part.rename(folder)
    return folder / "executorch"


def _gflags(folder: Path) -> Path:
    if not folder.is_dir():
        if not shutil.which("apt-get"):
            pytest.skip("libgflags comes from Debian's packages, and this machine has no apt")
        part = folder.with_name("gflags.part")
        shutil.rmtree(part, ignore_errors=True)
        part.mkdir(parents=True)
        _run("apt-get", "download", "libgflags-dev", "libgflags2.2", cwd=part)
        for package in part.glob("*.deb"):
            _run("dpkg-deb", "-x", str(package), ".", cwd=part)
        part.rename(folder)
    return folder


def _build(source: Path, wheel: Path, flags: Path, program: Path) -> None:
    headers = program.with_name("headers") / "executorch"
    shutil.rmtree(headers, ignore_errors=True)
    for name in _HEADERS:
        place = headers / name
        place.parent.mkdir(parents=True)
        shutil.copy(source / name, place)
    include = wheel / "include"
    places = (
        include, headers.parent, include / "executorch/runtime/core/portable_type/c10",
        flags / "usr/include",
    )  # fmt: skip
    (gflags,) = flags.glob("usr/lib/*/libgflags.so")
    linked = [name.removeprefix("lib").removesuffix(".so") for name in LIBRARIES[:-1]]
    _run(
        *("g++", "-std=c++17", "-DC10_USING_CUSTOM_GENERATED_MACROS", "-DET_EVENT_TRACER_ENABLED"),
        *(f"-I{place}" for place in places),
        *(str(source / name) for name in _SOURCES),
        *("-o", str(program), f"-L{wheel / 'lib'}", f"-L{gflags.parent}"),
        *(f"-l{name}" for name in linked),
        "-lgflags",
        cwd=program.parent,
    )
