"""llama.cpp of Debian unstable, unpacked below the tests' cache folder: nothing is installed."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from fleet.runtimes.lock import file_lock
from tests.support_runtime import cache_root

PACKAGES = (
    *("llama.cpp-tools", "libllama0", "libggml0", "libc6", "libstdc++6", "libgcc-s1"),
    *("libgomp1", "libssl3t64", "libzstd1", "zlib1g"),
)
KEYS = Path("/usr/share/keyrings/debian-archive-keyring.gpg")
_SECONDS = 600.0
_CONFIGURATION = """\
Dir "{root}";
Dir::State::status "{root}/var/lib/dpkg/status";
Dir::Etc::sourceparts "-";
APT::Architecture "amd64";
APT::Sandbox::User "root";
Acquire::Languages "none";
Acquire::Check-Valid-Until "false";
"""


def llama_cpp() -> tuple[Path, str]:
    """(the unpacked tree, the version of llama.cpp-tools); fetched when the cache lacks it.

    The test is skipped where this machine has no apt of Debian, or no network and no cache.
    """
    folder = cache_root() / "programs" / "llama.cpp"
    with file_lock(cache_root() / "programs.lock", _SECONDS):
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
    if not KEYS.is_file() or not shutil.which("apt-get"):
        pytest.skip("llama.cpp comes from Debian's packages, and this machine has no apt of Debian")
    shutil.rmtree(folder, ignore_errors=True)
    apt, archives = folder / "apt", folder / "apt" / "var" / "cache" / "apt" / "archives"
    for name in ("etc/apt/preferences.d", "var/lib/apt/lists/partial", "var/lib/dpkg"):
        (apt / name).mkdir(parents=True)
    (archives / "partial").mkdir(parents=True)
    (apt / "var" / "lib" / "dpkg" / "status").touch()
    (apt / "etc" / "apt" / "sources.list").write_text(
        f"deb [arch=amd64 signed-by={KEYS}] {_mirror()} sid main\n"
    )
    configuration = apt / "apt.conf"
    configuration.write_text(_CONFIGURATION.format(root=apt))
    for words in (("update",), ("download", *PACKAGES)):
        done = subprocess.run(
            ["apt-get", *words], capture_output=True, text=True, check=False, cwd=archives,
            timeout=_SECONDS, env={**os.environ, "APT_CONFIG": str(configuration)},
        )  # fmt: skip
        if done.returncode:
            pytest.skip(f"apt-get {words[0]} of Debian sid: {done.stderr.strip()[-300:]}")
    tree = folder / "tree"
    for package in sorted(archives.glob("*.deb")):
        subprocess.run(["dpkg-deb", "-x", str(package), str(tree)], check=True, timeout=_SECONDS)
    libraries = tree / "usr" / "lib" / "x86_64-linux-gnu"
    shutil.copy(libraries / "ld-linux-x86-64.so.2", libraries / "ggml" / "backends0")
    (tools,) = archives.glob("llama.cpp-tools_*.deb")
    version = subprocess.run(
        ["dpkg-deb", "-f", str(tools), "Version"], capture_output=True, text=True, check=True
    )
    shutil.rmtree(apt)
    return version.stdout.strip()


def _mirror() -> str:
    """Where this machine's own apt has Debian from."""
    for source in (Path("/etc/apt/sources.list.d/debian.sources"), Path("/etc/apt/sources.list")):
        text = source.read_text() if source.is_file() else ""
        found = re.search(r"^(?:URIs:|deb(?: \[.*\])?) *(\S*/debian/?)(?= |$)", text, re.MULTILINE)
        if found:
            return found[1]
    pytest.skip("no mirror of Debian among the sources of apt")
