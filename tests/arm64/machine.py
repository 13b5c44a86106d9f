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
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from pathlib import Path

import pytest

from fleet.lab.rootfs import built_once, cache_dir, find
from fleet.runtimes.select import select_files
from tests.support_runtime import ARM, NEW, cached_runtime

NEEDS = {
    "qemu-aarch64-static": "qemu-user-static",
    "aarch64-linux-gnu-gcc": "gcc-aarch64-linux-gnu libc6-dev-arm64-cross",
    "mmdebstrap": "mmdebstrap",
}
SUITE = "bookworm"
PACKAGES = "python3,libstdc++6,libatomic1"
BUILD_SECONDS = 900  # 4 s on a quick line
RUN_SECONDS = 120.0  # 1 to 3 s on an idle machine
SESSION_SECONDS = 60
SYSTEM_LIB = "usr/lib/aarch64-linux-gnu"
SDK_LIB = f"opt/qairt/lib/{ARM}"
HTP, STUB = "libQnnHtp.so", "libQnnHtpV73Stub.so"
FASTRPC = "libcdsprpc.so"
QCS9075, SM8550, NO_CHIP = 676, 519, 9999  # the kernel's soc_id
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
    tried = subprocess.run(["unshare", "--mount", "true"], check=False, capture_output=True)
    if tried.returncode:
        pytest.skip("an arm64 board needs a mount namespace, which this machine does not give")


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


@cache
def release(version: str, target: str) -> dict[str, Path]:
    """Qualcomm's libraries for the CPU by name, as a release for v73 holds them."""
    refs = select_files(cached_runtime(version, target), target, "v73").files
    return {Path(ref.name).name: ref.source for ref in refs if ref.name.startswith("lib/")}


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

    def qairt(self, name: str, version: str = NEW, target: str = ARM) -> Path:
        """One of Qualcomm's libraries, of a build."""
        return self._kept(release(version, target)[name], f"{version}-{target}-{name}")

    def qemu(self) -> Path:
        """The program that runs AARCH64 programs; static, so it needs nothing of the tree."""
        return self._kept(Path(find("qemu-aarch64-static") or ""), "qemu-aarch64")

    def _kept(self, source: Path, name: str) -> Path:
        made = self.folder / name
        if not made.exists():
            shutil.copy(source, made)
        return made


@dataclass(frozen=True)
class Said:
    """What a session said: Qualcomm's log with our program's lines, and standard error."""

    qnn: str
    errors: str
    status: int

    @property
    def log(self) -> str:
        """Qualcomm's own lines."""
        return "\n".join(one for one in self.qnn.splitlines() if one.startswith("<"))

    @property
    def all(self) -> str:
        """Both, as somebody would paste them, without what qemu says of itself."""
        lines = [one for one in self.errors.splitlines() if not one.startswith("qemu: ")]
        return "\n".join([self.qnn, *lines])


class Board:
    """A board on which everything but the DSP is as it should be; tests change `layer`.

    Its files are links to those of `parts`: replace them, never write into them.
    """

    def __init__(self, folder: Path, parts: Parts) -> None:
        self.layer, self._root = folder / "layer", folder / "root"
        self.lib, self.system = self.layer / SDK_LIB, self.layer / SYSTEM_LIB
        soc = self.layer / "sys/devices/soc0"
        for made in (self._root, self.lib, self.system, soc, self.layer / "dev"):
            made.mkdir(parents=True)
        (self.layer / "proc").mkdir()
        for name in release(NEW, ARM):
            (self.lib / name).hardlink_to(parts.qairt(name))
        (self.system / f"{FASTRPC}.1").hardlink_to(parts.fastrpc())
        (self.system / FASTRPC).symlink_to(f"{FASTRPC}.1")
        self._soc_id = soc / "soc_id"
        self.chip(QCS9075)
        program = files("fleet.device.npu") / "fleet_session.py"
        (self.layer / "fleet_session.py").write_bytes(program.read_bytes())
        (self.layer / "qemu-aarch64").hardlink_to(parts.qemu())

    def chip(self, soc_id: int) -> None:
        """What the kernel says of the chip."""
        self._soc_id.write_text(f"{soc_id}\n")

    def replace(self, name: str, content: Path | bytes) -> None:
        """Another file, or other bytes, in place of a library of the SDK folder."""
        place = self.lib / name
        place.unlink()
        if isinstance(content, Path):
            place.hardlink_to(content)
        else:
            place.write_bytes(content)

    def session(
        self,
        *,
        node: str = "0666",
        search: str = f"/{SDK_LIB}",
        library: str = f"/{SDK_LIB}/{HTP}",
    ) -> Said:
        """Open an NPU session with the doctor's program, as an ordinary user.

        `node` is the mode of /dev/fastrpc-cdsp (of root), "" for none; `search` is
        LD_LIBRARY_PATH; `library` is a path, or a plain name for the loader to find.
        """
        argv = ["unshare", "--mount", "sh", "-c", _ENTER, "sh", str(self.layer), str(tree())]
        argv += [str(self._root), node, USER, "/qemu-aarch64", "-E", f"LD_LIBRARY_PATH={search}"]
        argv += ["/usr/bin/python3", "/fleet_session.py", library, f"{SESSION_SECONDS}"]
        process = subprocess.Popen(
            argv,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )
        try:
            said = process.communicate(timeout=RUN_SECONDS)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            raise
        text, errors = (part.decode("utf-8", "replace") for part in said)
        return Said(text, errors, process.returncode)
