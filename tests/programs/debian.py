"""llama.cpp of Debian unstable, unpacked below the tests' cache folder: nothing is installed."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from fleet.runtimes.stage import file_lock
from tests.apt import SECONDS, downloaded
from tests.support_runtime import cache_root

PACKAGES = (
    *("llama.cpp-tools", "libllama0", "libggml0", "libc6", "libstdc++6", "libgcc-s1"),
    *("libgomp1", "libssl3t64", "libzstd1", "zlib1g"),
)


def llama_cpp() -> tuple[Path, str]:
    """(the unpacked tree, the version of llama.cpp-tools); fetched when the cache lacks it.

    The test is skipped where this machine has no apt of Debian, or no network and no cache.
    """
    folder = cache_root() / "programs" / "llama.cpp"
    with file_lock(cache_root() / "programs.lock", SECONDS):
        version = folder / "version"
        if not version.is_file():
            version.write_text(_fetched(folder))
    return folder / "tree", (folder / "version").read_text()


def wrapped(tree: Path, program: str, folder: Path) -> Path:
    """A program of the tree as one file to deploy: it starts with the tree's own loader, from the
    folder of the backends, where llama.cpp looks for them beside what it was started by.
    """
    libraries = tree / "usr" / "lib" / "x86_64-linux-gnu"
    paths = f"{libraries}:{libraries}/llama:{libraries}/ggml/backends0"
    loader = libraries / "ggml" / "backends0" / "ld-linux-x86-64.so.2"
    path = folder / program
    path.write_text(
        "#!/bin/sh\nunset LD_LIBRARY_PATH\n"
        f'exec {loader} --library-path {paths} {tree}/usr/bin/{program} "$@"\n'
    )
    path.chmod(0o755)
    return path


def _fetched(folder: Path) -> str:
    shutil.rmtree(folder, ignore_errors=True)
    apt, tree = folder / "apt", folder / "tree"
    try:
        packages = downloaded(apt, PACKAGES, "main")
    except OSError as error:
        pytest.skip(f"llama.cpp comes from Debian's packages: {error}")
    for package in packages:
        subprocess.run(["dpkg-deb", "-x", str(package), str(tree)], check=True, timeout=SECONDS)
    libraries = tree / "usr" / "lib" / "x86_64-linux-gnu"
    shutil.copy(libraries / "ld-linux-x86-64.so.2", libraries / "ggml" / "backends0")
    (tools,) = [path for path in packages if path.name.startswith("llama.cpp-tools_")]
    version = subprocess.run(
        ["dpkg-deb", "-f", str(tools), "Version"], capture_output=True, text=True, check=True
    )
    shutil.rmtree(apt)
    return version.stdout.strip()
