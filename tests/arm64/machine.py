"""An arm64 board's files without an arm64 kernel: a Debian tree under qemu-user.

The tree is unpacked once from Debian's packages (no program of it runs while it is made) and
cached. A board is a folder that lies over it, read-only (overlayfs), entered in a mount namespace
of its own with its own /dev. Nothing has to be registered with the kernel: qemu is started by name.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import signal
import subprocess
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from fleet.doctor.device import __file__ as device_folder
from fleet.lab.rootfs import built_once, cache_dir, find
from fleet.runtimes.select import select_files
from tests.support_runtime import ARM, NEW, cached_runtime

NEEDS = {
    "qemu-aarch64-static": "qemu-user-static",
    "aarch64-linux-gnu-gcc": "gcc-aarch64-linux-gnu libc6-dev-arm64-cross",
    "mmdebstrap": "mmdebstrap",
    "unshare": "util-linux",
}
SUITE = "bookworm"
PACKAGES = "python3,libstdc++6,libatomic1"
BUILD_SECONDS = 900  # 4 s on a quick line
RUN_SECONDS = 120.0  # 1 to 3 s on an idle machine
SESSION_SECONDS = 60
SYSTEM_LIB = "usr/lib/aarch64-linux-gnu"
RELEASE_LIB = "opt/npu/lib"
STUB = "libQnnHtpV73Stub.so"
QCS9075, SM8550, NO_CHIP = "676", "519", "9999"  # the kernel's soc_id
USER = "1000:1000"
_SOURCE = Path(__file__).with_name("cdsprpc.c")
# The shell stays: it says what killed the program, as the shell of a board does.
_ENTER = """set -eu
layer=$1 tree=$2 root=$3 node=$4 user=$5; shift 5
ulimit -c 0
mount -t overlay -o "lowerdir=$layer:$tree" overlay "$root"
mount -t proc proc "$root/proc"
mount -t tmpfs -o mode=755 tmpfs "$root/dev"
mknod -m 666 "$root/dev/null" c 1 3
mknod -m 666 "$root/dev/urandom" c 1 9
[ -z "$node" ] || mknod -m "$node" "$root/dev/fastrpc-cdsp" c 1 3
set +e
chroot --userspec="$user" --groups= "$root" "$@"
exit $?
"""


def require() -> None:
    """Skip, with the reason, where the tools are not there or this user cannot mount."""
    lacking = sorted({package for name, package in NEEDS.items() if find(name) is None})
    if lacking or os.geteuid() != 0:
        pytest.skip(f"an arm64 board needs root and: {', '.join(lacking) or 'nothing else'}")


def tree() -> Path:
    """The cached Debian tree; made when it is not there."""
    name = hashlib.sha256(f"{SUITE} {PACKAGES}".encode()).hexdigest()[:12]
    return built_once(cache_dir() / f"arm64-{SUITE}-{name}", {}, _build, install=False)


def _build(target: Path) -> None:
    part = target.with_name(target.name + ".part")
    shutil.rmtree(part, ignore_errors=True)
    argv = ["mmdebstrap", "--quiet", "--variant=extract", "--architectures=arm64"]
    argv += [f"--include={PACKAGES}", SUITE, str(part)]
    sources = Path("/etc/apt/sources.list.d/debian.sources")
    if sources.is_file() and SUITE in sources.read_text("utf-8", "replace"):
        argv.append(str(sources))
    subprocess.run(argv, check=True, timeout=BUILD_SECONDS)
    part.replace(target)


@dataclass(frozen=True)
class Parts:
    """What boards are made of: files on one disk, so that a board only links them."""

    folder: Path

    def fastrpc(self, *, dspqueue_read: bool = True) -> Path:
        """Our stand-in for libcdsprpc."""
        made = self.folder / ("libcdsprpc" if dspqueue_read else "libcdsprpc-old")
        if not made.exists():
            argv = ["aarch64-linux-gnu-gcc", "-shared", "-fPIC", "-O1", "-Wall", "-Wextra"]
            argv += ["-Werror", "-Wl,-soname,libcdsprpc.so.1", "-Wl,-z,defs"]
            argv += [] if dspqueue_read else ["-DWITHOUT_DSPQUEUE_READ"]
            subprocess.run([*argv, "-o", str(made), str(_SOURCE)], check=True, timeout=60)
        return made

    def qairt(self, version: str = NEW, target: str = ARM) -> dict[str, Path]:
        """Qualcomm's libraries of a build by name, as a release for v73 holds them."""
        folder = self.folder / f"{version}-{target}"
        if not folder.exists():
            folder.mkdir()
            for ref in select_files(cached_runtime(version, target), target, "v73").files:
                if ref.name.startswith("lib/"):
                    shutil.copyfile(ref.path, folder / Path(ref.name).name)
        return {path.name: path for path in folder.iterdir()}


@dataclass(frozen=True)
class Said:
    """What a session said: Qualcomm's log and our session's lines, and standard error."""

    qnn: str
    errors: str
    status: int

    @property
    def all(self) -> str:
        return f"{self.qnn}\n{self.errors}"


@dataclass(frozen=True)
class Board:
    """The state of a board; as it is here, everything but the DSP is as it should be."""

    soc_id: str = QCS9075
    node: str = "0666"  # mode of /dev/fastrpc-cdsp, "" for none
    user: str = USER
    search: str = f"/{RELEASE_LIB}"  # LD_LIBRARY_PATH

    def session(self, folder: Path, parts: Parts, files: dict[str, Path]) -> Said:
        """Open an NPU session with the doctor's program on a board that has `files`."""
        layer, root = folder / "layer", folder / "root"
        self._lay(layer, parts, files)
        root.mkdir()
        argv = ["unshare", "--mount", "sh", "-c", _ENTER, "sh", str(layer), str(tree())]
        argv += [str(root), self.node, self.user, "/qemu-aarch64"]
        argv += ["-E", f"LD_LIBRARY_PATH={self.search}", "/usr/bin/python3", "-ISc"]
        argv += [_PROGRAM.read_text(), f"/{RELEASE_LIB}/libQnnHtp.so", f"{SESSION_SECONDS}"]
        return _run(argv)
